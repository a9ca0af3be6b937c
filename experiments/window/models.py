"""Plain models against what the loader's stages count: random traces, and recorded mini-batches of a graph.

    python experiments/window/models.py --json F [--traces 1000] [NAME=STORE ...]

Each random trace (hypothesis draws them) is read with one combination of techniques, in turn, so that every
combination gets as many traces; every recorded one with none, each alone, and all. A store is a converted
data set, of which only the graph and the order of its rows are used.
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bam.bench.machine import command, commit, describe_machine
from gids.bench.model_check import (
    HostTracePath,
    Techniques,
    Trace,
    TracePath,
    all_combinations,
    differences,
)
from gids.cli.options import write_json
from gids.graph.open_dataset import open_dataset
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

PAGE_BYTES = 512
TABLES = {
    "a": np.random.default_rng(0).integers(-128, 128, (150, 700), np.int8),
    "b": np.random.default_rng(1).integers(-128, 128, (300, 64), np.int8),
}
WINDOW, FORESIGHT = 4, 3
#: Of recorded traces: rows of 512 bytes, a cache for a fiftieth of them, a constant buffer for a hundredth.
ROW_BYTES, RECORDED_BATCHES, RECORDED_SEEDS, FANOUTS = 512, 6, 128, [10, 5]
RECORDED_WINDOW = 2


def random_traces(n_traces: int, path: TracePath) -> dict[str, Any]:
    """Differences over random traces, which end at the first one."""
    combinations = all_combinations(WINDOW, FORESIGHT)
    turn = itertools.cycle(combinations)
    done = {"traces": 0, "mini_batches": 0, "rows": 0}

    @settings(
        max_examples=n_traces,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1), st.sampled_from([1, 20, 40, 100, 300]))
    def check(seed: int, lines: int) -> None:
        random = np.random.default_rng(seed)
        skew = random.integers(1, 5)
        batches = [
            {
                name: np.unique((len(each) * random.random(random.integers(0, 50)) ** skew).astype(np.int64))
                for name, each in TABLES.items()
            }
            for _ in range(random.integers(1, 12))
        ]
        trace = Trace(TABLES, batches, {"a": np.arange(0, 150, 7)}, lines, PAGE_BYTES, 60_000)
        techniques = next(turn)
        found = differences(trace, techniques, path)
        assert found == [], (seed, lines, techniques, found)
        done["traces"] += 1
        done["mini_batches"] += len(batches)
        done["rows"] += sum(len(ids) for batch in batches for ids in batch.values())

    check()
    return {**done, "combinations": len(combinations), "differences": 0}


def recorded_trace(store: Path) -> Trace:
    """The first mini-batches of a graph's epoch; all rows are of 512 bytes."""
    dataset = open_dataset(store)
    task = next(iter(dataset.tasks.values()))
    sampler = NeighborSampler(FANOUTS, seed=0)
    order = SeedBatches(
        {task.node_type: task.split().train},
        dataset.graph.schema,
        batch_size=RECORDED_SEEDS,
        shuffle=True,
        seed=0,
    )
    batches = []
    for number in range(RECORDED_BATCHES):
        nodes = order.batch(0, number).nodes
        batch = sampler.sample(dataset.graph, nodes, epoch=0, batch=number)
        batches.append({name: each.rows_of(batch.nodes[name]) for name, each in dataset.features.items()})
    random = np.random.default_rng(0)
    tables = {
        name: random.integers(-128, 128, (each.n_rows, ROW_BYTES), np.int8)
        for name, each in dataset.features.items()
    }
    n_rows = sum(map(len, tables.values()))
    constant = {name: np.arange(len(rows) // 100) for name, rows in tables.items()}
    largest = max(sum(map(len, batch.values())) for batch in batches)
    return Trace(tables, batches, constant, n_rows // 50, ROW_BYTES, 3 * largest * ROW_BYTES)


def recorded_traces(store: Path, path: TracePath) -> dict[str, Any]:
    """Differences with none of the techniques, each alone, and all of them."""
    trace = recorded_trace(store)
    everything = Techniques(RECORDED_WINDOW, FORESIGHT, True, True, True, True)
    chosen = {"none": Techniques(), "all": everything}
    for name, value in asdict(everything).items():
        chosen[name] = Techniques(**{name: value})
    found = {}
    for name, techniques in chosen.items():
        begin = time.perf_counter()
        found[name] = differences(trace, techniques, path)
        print(f"{name}: {len(found[name])} differences, {time.perf_counter() - begin:.0f} s", flush=True)
        assert found[name] == [], found[name]
    rows = sum(len(ids) for batch in trace.batches for ids in batch.values())
    return {
        "mini_batches": len(trace.batches),
        "rows": rows,
        "lines": trace.lines,
        "techniques": list(found),
        "differences": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="*", metavar="NAME=STORE")
    parser.add_argument("--traces", type=int, default=1000, help="random ones (default 1000)")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    path = HostTracePath()
    result: dict[str, Any] = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path.cwd()),
        "path": "host",
        "random": random_traces(arguments.traces, path),
    }
    print(result["random"], flush=True)
    result["recorded"] = {}
    for each in arguments.stores:
        name, _, store = each.partition("=")
        result["recorded"][name] = recorded_traces(Path(store), path)
        write_json(arguments.json, result)
    write_json(arguments.json, result)


if __name__ == "__main__":
    main()
