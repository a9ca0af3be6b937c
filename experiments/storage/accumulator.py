"""How near to its peak the loader drives three modelled SSDs, with the accumulator and without it.

    python experiments/storage/accumulator.py --json F [--real SCALE]

Small mini-batches: each needs few reads, as on a homogeneous graph with a cache that serves part of them.
The devices are models (`bam.storage.LatencyEngine`) over rows in memory. By default their clock is manual:
time passes only where a read is awaited, so the figures say what the order of reads allows, whatever the
processor. With `--real SCALE` their clock is the real one, reads a second are divided by SCALE and latencies
multiplied by it, which keeps the number of reads that must be under way.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np

import bam
import gids
from bam.bench.machine import command, commit, describe_machine
from bam.storage.engine import Engine
from bam.storage.latency import LatencyEngine, LognormalLatency, SsdModel
from bam.storage.native import NativeEngine
from gids.fetch.device_model import SsdFacts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.storage_model import storage_model
from gids.fetch.table import StoredTable
from gids.graph.graph import Graph

DEVICES = {
    "optane": SsdFacts(1_500_000, 11),
    "flash": SsdFacts(700_000, 324),
    "many": SsdFacts(3_000_000, 60),
}
PAGE_BYTES = 4096
N_NODES = 40_000
N_BATCHES = 1500
BATCH_SIZE = 16
CACHE = "16MiB"
WINDOW = 4


@dataclass(frozen=True)
class Driven:
    """What one run reached.

    Attributes
    ----------
    share_of_peak : float
        Reads a second over those the device can do.
    mean_in_flight : float
        By Little's law, from rate and latency.
    reads, seconds : number
        Of the device's own clock.
    reads_per_group, batches_per_group : list of int
        In the order of reading.
    """

    share_of_peak: float
    mean_in_flight: float
    reads: int
    seconds: float
    reads_per_group: list[int]
    batches_per_group: list[int]


def make_graph() -> Graph:
    """Skewed towards low numbers, so that a cache serves part of the rows."""
    random = np.random.default_rng(0)
    destinations = np.repeat(np.arange(N_NODES), 8)
    sources = (N_NODES * random.random(len(destinations)) ** 3).astype(np.int64)
    return Graph.from_coo({("node", "to", "node"): (sources, destinations)}, {"node": N_NODES})


def drive(graph: Graph, rows: np.ndarray, facts: SsdFacts, accumulate: int | str, *, real: bool) -> Driven:
    """One epoch through a loader over the modelled device."""
    engines: list[LatencyEngine] = []

    def modelled(engine: Engine) -> Engine:
        assert isinstance(engine, NativeEngine)
        model = SsdModel(facts.iops, 1e12, LognormalLatency(facts.latency_us))
        engines.append(LatencyEngine(engine, model, manual_clock=not real))
        return engines[-1]

    cache = bam.SharedCache(CACHE, policy="look_ahead")
    table = StoredTable("node", bam.open_array(rows, cache=cache, merge_bytes=PAGE_BYTES, wrap=modelled))
    storage = storage_model(None, PAGE_BYTES, contiguous=False, ssd=facts)
    loader = gids.DataLoader(
        graph,
        np.arange(N_BATCHES * BATCH_SIZE),
        gids.NeighborSampler([4]),
        batch_size=BATCH_SIZE,
        shuffle=True,
        features=FeatureStore({"node": table}, storage=storage),
        window=WINDOW,
        accumulate=accumulate,
    )
    with loader:
        begin_ns = engines[0].now_ns()
        for batch in loader:
            assert batch.features["node"][:, 0].tolist() == batch.nodes["node"].tolist()
        seconds = (engines[0].now_ns() - begin_ns) / 1e9
        metrics = loader.metrics()
    table.close()
    assert metrics.accumulator is not None
    reads = metrics.total.reads
    history = metrics.accumulator.history
    rate = reads / seconds
    return Driven(
        rate / facts.iops,
        rate * facts.latency_us / 1e6,
        reads,
        seconds,
        [group_reads for _, group_reads in history],
        [batches for batches, _ in history],
    )


def main() -> None:
    """Run all devices and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", required=True)
    parser.add_argument("--real", type=float, default=0.0, metavar="SCALE")
    arguments = parser.parse_args()
    graph = make_graph()
    rows = np.zeros((N_NODES, PAGE_BYTES // 4), np.float32)
    rows[:, 0] = np.arange(N_NODES)
    scale = arguments.real or 1.0
    result: dict[str, Any] = {
        "schema": 1,
        "name": "accumulator",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(arguments.json).resolve().parent),
        "clock": "real" if arguments.real else "manual",
        "scale": scale,
        "peak_share": 0.95,
        "devices": {},
    }
    for name, published in DEVICES.items():
        facts = SsdFacts(published.iops / scale, published.latency_us * scale)
        runs = {}
        for variant, accumulate in (("alone", 0), ("accumulated", 2**27)):
            driven = drive(graph, rows, facts, accumulate, real=bool(arguments.real))
            runs[variant] = asdict(driven)
            print(
                f"{name} {variant}: {100 * driven.share_of_peak:.1f} % of peak, "
                f"{driven.mean_in_flight:.1f} in flight, {driven.reads} reads in "
                f"{len(driven.reads_per_group)} groups, N = {facts.reads_needed():.0f}"
            )
        result["devices"][name] = {**asdict(facts), "reads_needed": facts.reads_needed(), **runs}
    Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
