"""What `loader.metrics()` costs when it is asked for after every mini-batch.

python experiments/window/metrics_cost.py STORE --json F
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bam.bench.machine import command, commit, describe_machine
from gids.cli.options import write_json
from gids.graph.open_dataset import open_dataset
from gids.loader.loader import DataLoader
from gids.sampling.neighbor import NeighborSampler

BATCHES = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("store")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    dataset = open_dataset(arguments.store)
    task = next(iter(dataset.tasks.values()))
    seeds = {task.node_type: task.split().train}
    metrics_s = 0.0
    sampler = NeighborSampler([10, 5], seed=0)
    with DataLoader(dataset, seeds, sampler, batch_size=512, cache="20%", cpu_buffer="5%") as loader:
        loader.features.wait_until_loaded()
        begin = time.perf_counter()
        for number, _ in zip(range(BATCHES), loader, strict=False):
            before = time.perf_counter()
            loader.metrics()
            metrics_s += time.perf_counter() - before
            if number == BATCHES - 1:
                break
        epoch_s = time.perf_counter() - begin
    result = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(arguments.store)),
        "batches": BATCHES,
        "metrics_us": 1e6 * metrics_s / BATCHES,
        "batch_ms": 1e3 * epoch_s / BATCHES,
        "share": metrics_s / epoch_s,
    }
    print(result)
    write_json(arguments.json, result)


if __name__ == "__main__":
    main()
