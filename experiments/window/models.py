"""Plain models against what the loader's stages count: random traces, and recorded mini-batches of a graph.

    python experiments/window/models.py --json F [--path host] [--traces 1000] [NAME=STORE ...]

Each random trace (hypothesis draws them) is read with one combination of techniques, in turn, so that every
combination gets as many traces; every recorded one with none, each alone, and all. A store is a converted
data set, of which only the graph and the order of its rows are used.

`--path cuda` reads on a GPU, `--path emulated` on one that the host emulates: there one warp looks all pages
up, as counts depend on the order in which pages find room, and policies take turns too. How much they differ
where many warps look up, in any order, is measured on recorded traces.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bam.bench.machine import command, commit, describe_machine
from bam.cache.device.gpu import Gpu, Grid
from bam.cache.page_cache import PolicyKind
from gids.bench.gpu_model_check import GpuTracePath
from gids.bench.model_check import (
    HostTracePath,
    Techniques,
    Trace,
    TracePath,
    all_combinations,
    differences,
)
from gids.bench.random_traces import FORESIGHT, GPU_TABLES, LINES, TABLES, WINDOW, random_trace
from gids.cli.options import write_json
from gids.fetch.counts import FetchCounts
from gids.graph.open_dataset import open_dataset
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

#: Of recorded traces: rows of 512 bytes, a cache for a fiftieth of them, a constant buffer for a hundredth.
ROW_BYTES, RECORDED_BATCHES, RECORDED_SEEDS, FANOUTS = 512, 6, 128, [10, 5]
RECORDED_WINDOW = 2
#: Pages of a flight for recorded traces, so that many warps have work; and sixteen of an emulated GPU.
RECORDED_SLOTS, MANY_WARPS = 2048, Grid(5, 128)
MANY_WARPS_RUNS = 5
EMULATED_GPU = Path(__file__).resolve().parents[2] / "tests" / "bam" / "cache" / "device"


def random_traces(n_traces: int, paths: Sequence[TracePath]) -> dict[str, Any]:
    """Differences over random traces, which end at the first one."""
    combinations = all_combinations(WINDOW, FORESIGHT)
    turn = itertools.cycle(itertools.product(paths, combinations))
    tables = GPU_TABLES if isinstance(paths[0], GpuTracePath) else TABLES
    done = {"traces": 0, "mini_batches": 0, "rows": 0, "pages_read": 0, "pages_bypassed": 0}

    @settings(
        max_examples=n_traces,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1), st.sampled_from(LINES))
    def check(seed: int, lines: int) -> None:
        trace = random_trace(tables, seed, lines)
        path, techniques = next(turn)
        found = differences(trace, techniques, path)
        assert found == [], (seed, lines, techniques, found)
        done["traces"] += 1
        done["mini_batches"] += len(trace.batches)
        done["rows"] += sum(len(ids) for batch in trace.batches for ids in batch.values())
        for counts in path.predict(trace, techniques).values():
            done["pages_read"] += counts.pages_read
            done["pages_bypassed"] += counts.pages_bypassed

    check()
    return {**done, "combinations": len(combinations), "policies": len(paths), "differences": 0}


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


def many_warps(store: Path, path: GpuTracePath) -> dict[str, Any]:
    """How far counts are from those foretold for one warp, where many look up, in any order."""
    trace, results = recorded_trace(store), {}
    for name, techniques in {"none": Techniques(), "window": Techniques(window=RECORDED_WINDOW)}.items():
        foretold = sum_of(path.predict(trace, techniques))
        found = [sum_of(path.read(trace, techniques).counts) for _ in range(MANY_WARPS_RUNS)]
        exact = {key for key in foretold if all(each[key] == foretold[key] for each in found)}
        results[name] = {
            "exact": sorted(exact),
            "pages_read_foretold": foretold["pages_read"],
            "pages_read": [each["pages_read"] for each in found],
            "largest_relative_difference": {
                key: max(abs(each[key] - foretold[key]) for each in found) / foretold[key]
                for key in foretold
                if key not in exact and foretold[key]
            },
        }
        print(name, results[name], flush=True)
    return results


def sum_of(counts: Mapping[str, FetchCounts]) -> dict[str, int]:
    """Of all tables, by counter."""
    return asdict(sum(counts.values(), FetchCounts()))


def gpu_maker(kind: str) -> tuple[Callable[[], Gpu], torch.device]:
    """Makes GPUs, emulated ones with another order of their threads each, and says where tensors are."""
    if kind == "cuda":
        from bam.cache.device.cupy_gpu import CupyGpu

        return CupyGpu, torch.device("cuda", torch.cuda.current_device())
    sys.path.append(str(EMULATED_GPU))
    from emulated_gpu import EmulatedGpu, few_threads

    seeds = itertools.count(1)

    def make() -> Gpu:
        gpu: Gpu = few_threads(EmulatedGpu(next(seeds)))
        gpu.grids["bam_submit_rows"] = MANY_WARPS
        return gpu

    return make, torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="*", metavar="NAME=STORE")
    parser.add_argument("--path", choices=["host", "emulated", "cuda"], default="host", help="what reads")
    parser.add_argument("--traces", type=int, default=1000, help="random ones (default 1000)")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    paths: list[TracePath] = [HostTracePath()]
    recorded: TracePath = paths[0]
    unordered: GpuTracePath | None = None
    if arguments.path != "host":
        gpu = gpu_maker(arguments.path)
        paths = [GpuTracePath(*gpu, policy) for policy in PolicyKind]
        recorded = GpuTracePath(*gpu, slots=RECORDED_SLOTS)
        unordered = GpuTracePath(*gpu, slots=RECORDED_SLOTS, one_warp=False)
    result: dict[str, Any] = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path.cwd()),
        "path": arguments.path,
        "random": random_traces(arguments.traces, paths),
    }
    print(result["random"], flush=True)
    result["recorded"] = {}
    for each in arguments.stores:
        name, _, store = each.partition("=")
        result["recorded"][name] = recorded_traces(Path(store), recorded)
        if unordered is not None:
            result["recorded"][name]["many_warps"] = many_warps(Path(store), unordered)
        write_json(arguments.json, result)
    write_json(arguments.json, result)


if __name__ == "__main__":
    main()
