"""Resident memory of the loader and of a conversion beside their stated bounds, in processes of their own.

    python experiments/robustness/memory.py IGBH_FOLDER STORE --json F

The loader may take its cache, its constant buffer, the mini-batches that are in memory (the one in use, the
one ahead of it, and one being read; what is read together up to twice, see `accumulate`) and 300 MB. The
conversion may take `memory_bytes`, of data at least ten times as large. What a process has when everything is
imported and opened, or what a conversion of a few kilobytes takes, counts for neither.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bam.bench.machine import command, commit, describe_machine
from gids.graph.convert import convert_igbh
from gids.graph.synth import synthesize

SCHEMA = 1
MIB = 2**20
ALLOWED_MORE = 300 * 10**6
TIMES_LARGER = 10

LOADER = """
import json, sys
import torch, numba
import gids
from gids.bench.observe import peak_rss_bytes
store, asked = sys.argv[1], json.loads(sys.argv[2])
dataset = gids.open_dataset(store)
train = dataset.tasks["19"].split().train
before = peak_rss_bytes()
steps = asked.pop("steps")
largest = 0
sampler = gids.NeighborSampler([10, 5])
settings = dict(batch_size=512, shuffle=True, prefetch=1, **asked)
with gids.DataLoader(dataset, {"paper": train}, sampler, **settings) as loader:
    done = 0
    while done < steps:
        for batch in loader:
            largest = max(largest, sum(each.nbytes for each in batch.features.values()))
            del batch
            done += 1
            if done == steps:
                break
print(json.dumps({"taken": peak_rss_bytes() - before, "before": before, "largest_batch": largest}))
"""

CONVERSION = """
import json, sys
from gids.bench.observe import peak_rss_bytes
from gids.graph.convert import convert_igbh
convert_igbh(sys.argv[1], sys.argv[2], memory_bytes=int(sys.argv[3]))
print(json.dumps({"peak": peak_rss_bytes()}))
"""


@dataclass(frozen=True)
class LoaderCase:
    """Settings of one loader; sizes in bytes."""

    cache: int
    cpu_buffer: int
    window: int
    accumulate: int


CASES = (
    LoaderCase(256 * MIB, 0, 8, 0),
    LoaderCase(512 * MIB, 256 * MIB, 8, 0),
    LoaderCase(64 * MIB, 128 * MIB, 32, 256 * MIB),
)


def run(code: str, *arguments: str) -> dict[str, Any]:
    """What a fresh interpreter prints."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure_loader(store: str, case: LoaderCase, steps: int) -> dict[str, Any]:
    """One loader over a store."""
    found = run(LOADER, store, json.dumps({**asdict(case), "steps": steps}))
    in_memory = max(3 * found["largest_batch"], found["largest_batch"] + 2 * case.accumulate)
    bound = case.cache + case.cpu_buffer + in_memory + ALLOWED_MORE
    return {
        **asdict(case),
        "largest_batch_bytes": found["largest_batch"],
        "rss_before_bytes": found["before"],
        "taken_bytes": found["taken"],
        "bound_bytes": bound,
        "beyond_cache_buffer_and_batches_bytes": found["taken"] - (bound - ALLOWED_MORE),
        "within": found["taken"] <= bound,
    }


def measure_conversion(folder: str, memory_bytes: int) -> dict[str, Any]:
    """A conversion of a folder that is larger than the bound, beside one of next to nothing."""
    size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(prefix="gids-memory-") as work:
        small = synthesize(Path(work) / "small", 0.001, dim=4)
        convert_igbh(small, Path(work) / "compiled")
        base = run(CONVERSION, str(small), f"{work}/base", str(memory_bytes))["peak"]
        peak = run(CONVERSION, folder, f"{work}/store", str(memory_bytes))["peak"]
    return {
        "memory_bytes": memory_bytes,
        "data_bytes": size,
        "times_larger": round(size / memory_bytes, 1),
        "peak_bytes": peak,
        "peak_of_a_tiny_conversion_bytes": base,
        "taken_bytes": peak - base,
        "within": peak - base <= memory_bytes and size >= TIMES_LARGER * memory_bytes,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare; the exit status is 1 where a bound was not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="an IGBH folder")
    parser.add_argument("store", help="its store")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--memory", type=int, default=64 * MIB, help="bound of the conversion, bytes")
    parser.add_argument("--json", metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    result = {
        "schema": SCHEMA,
        "name": "memory",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(given.store)),
        "loader": {
            f"case {number}": measure_loader(given.store, case, given.steps)
            for number, case in enumerate(CASES, 1)
        },
        "conversion": measure_conversion(given.folder, given.memory),
    }
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    measured = [*result["loader"].values(), result["conversion"]]
    print(json.dumps(measured, indent=1))
    return 0 if all(each["within"] for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
