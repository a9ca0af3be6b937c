"""Entry point of `python -m bam.bench`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from bam.bench.io import run_io
from bam.config import parse_bytes
from bam.errors import BamError


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; prints its figures and, with `--json`, writes them to a file."""
    parser = argparse.ArgumentParser(
        prog="python -m bam.bench", description="Benchmarks of the storage layer."
    )
    names = parser.add_subparsers(dest="name", required=True)
    io = names.add_parser("io", help="engine and array against the disk's ceilings")
    io.add_argument(
        "file",
        type=Path,
        help="made when absent or of another size; a file of something else is left alone",
    )
    io.add_argument("--size", default="4GiB", help="its size (default 4GiB)")
    io.add_argument("--json", type=Path, help="write the result there")
    io.add_argument("--iobench", type=Path, help="an independent program to compare with")
    io.add_argument("--rounds", type=int, default=3, help="how often each side is measured (default 3)")
    io.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (default 3)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        n_bytes = parse_bytes(chosen.size, "size")
        result = run_io(chosen.file, n_bytes, chosen.iobench, chosen.rounds, chosen.seconds)
    except (BamError, OSError) as error:
        io.exit(1, f"{io.prog}: {error}\n")
    text = json.dumps(result, indent=2)
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(text + "\n")
    for key, figure in result["figures"].items():
        sys.stdout.write(
            f"{key:28} {figure['median']:14,.2f} {figure['unit']:8} "
            f"({figure['min']:,.2f} to {figure['max']:,.2f})\n"
        )
    for key, ratio in result["ratios"].items():
        sys.stdout.write(f"{key:28} {ratio:14.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
