"""Entry point of `python -m bam.bench`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

from bam.bench.bulk import run_bulk
from bam.bench.bulk_command import add_bulk_arguments, bulk_plan, print_bulk
from bam.bench.gpu import run_gpu
from bam.bench.io import run_io
from bam.config import parse_bytes
from bam.errors import BamError

FILE_HELP = "made when absent or of another size; a file of something else is left alone"


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; prints its figures and, with `--json`, writes them to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m bam.bench", description="Benchmarks of the storage layer."
    )
    names = parser.add_subparsers(dest="name", required=True)
    io = names.add_parser("io", help="engine and array against the disk's ceilings")
    io.add_argument("file", type=Path, help=FILE_HELP)
    io.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (default 3)")
    gpu = names.add_parser("gpu", help="the GPU's read path against the machine's ceilings")
    gpu.add_argument("file", type=Path, nargs="?", default=Path("build/bench-io.bin"), help=FILE_HELP)
    bulk = names.add_parser("bulk", help="bulk reads by task size, threads, engine and destination")
    bulk.add_argument("file", type=Path, help=FILE_HELP)
    add_bulk_arguments(bulk)
    for name in (io, gpu):
        name.add_argument("--iobench", type=Path, help="an independent program to compare with")
    for name in (io, gpu, bulk):
        name.add_argument("--size", default="4GiB", help="its size (default 4GiB)")
        name.add_argument("--json", type=Path, help="write the result there")
        name.add_argument("--rounds", type=int, default=3, help="how often each side is measured (default 3)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        n_bytes = parse_bytes(chosen.size, "size")
        if chosen.name == "io":
            result = run_io(chosen.file, n_bytes, chosen.iobench, chosen.rounds, chosen.seconds)
        elif chosen.name == "bulk":
            result = run_bulk(chosen.file, n_bytes, bulk_plan(chosen, n_bytes))
        else:
            result = run_gpu(
                chosen.file, n_bytes, chosen.iobench, chosen.rounds, lambda found: save(found, chosen.json)
            )
    except (BamError, OSError) as error:
        parser.exit(1, f"{parser.prog} {chosen.name}: {error}\n")
    save(result, chosen.json)
    {"io": print_io, "gpu": print_gpu, "bulk": print_bulk}[chosen.name](result)
    return 1 if result.get("errors") else 0


def save(result: dict[str, Any], path: Path | None) -> None:
    """Write what was found to a file, if one is wanted."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")


def print_io(result: dict[str, Any]) -> None:
    """Medians with their spread, and ratios."""
    for key, figure in result["figures"].items():
        sys.stdout.write(
            f"{key:28} {figure['median']:14,.2f} {figure['unit']:8} "
            f"({figure['min']:,.2f} to {figure['max']:,.2f})\n"
        )
    for key, ratio in result["ratios"].items():
        sys.stdout.write(f"{key:28} {ratio:14.3f}\n")


def print_gpu(result: dict[str, Any]) -> None:
    """Values beside their ceilings."""
    for key, figure in result["figures"].items():
        sys.stdout.write(
            f"{key:28} {figure['value']:14,.2f} {figure['unit']:14} "
            f"ceiling {figure['ceiling']:14,.2f}  ratio {figure['ratio']:.3f}\n"
        )
    for key, error in result["errors"].items():
        sys.stdout.write(f"{key:28} failed: {error}\n")


if __name__ == "__main__":
    sys.exit(main())
