"""Options and printout of `python -m bam.bench bulk`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bam.bench.bulk import BulkPlan
from bam.bench.bulk_sweep import ENGINES, TASK_BYTES, THREADS
from bam.config import parse_bytes, parse_kind
from bam.storage.bulk.settings import BulkEngineKind, Destination


def add_bulk_arguments(parser: argparse.ArgumentParser) -> None:
    """What is measured; lists are separated by commas."""
    parser.add_argument("--read", help="bytes that each measurement reads (default: the whole file)")
    parser.add_argument("--engines", default=",".join(each.value for each in ENGINES))
    parser.add_argument("--destinations", default=",".join(each.value for each in Destination))
    parser.add_argument("--tasks", default=",".join(f"{size >> 20}MiB" for size in TASK_BYTES))
    parser.add_argument("--threads", default=",".join(map(str, THREADS)))
    parser.add_argument("--numa", action="store_true", help="keep threads next to disk and GPU")


def bulk_plan(chosen: argparse.Namespace, n_bytes: int) -> BulkPlan:
    """What the options ask for.

    Raises
    ------
    ConfigError
    """
    return BulkPlan(
        read_bytes=parse_bytes(chosen.read, "read") if chosen.read else n_bytes,
        rounds=chosen.rounds,
        engines=[parse_kind("engines", name, BulkEngineKind) for name in chosen.engines.split(",")],
        destinations=[
            parse_kind("destinations", name, Destination) for name in chosen.destinations.split(",")
        ],
        task_bytes=[parse_bytes(size, "tasks") for size in chosen.tasks.split(",")],
        threads=[parse_bytes(number, "threads") for number in chosen.threads.split(",")],
        numa=chosen.numa,
    )


def print_bulk(result: dict[str, Any]) -> None:
    """Ceilings, every point, what is missing, and the best."""
    lines = [f"{name:20} {_spread(figure)}" for name, figure in result["ceilings"].items()]
    for point in result["points"]:
        where = f"{point['engine']:7} {point['destination']:7}"
        how = f"{_tasks(point):12} {'direct' if point['direct'] else 'posix':6}"
        state = "warm" if point["warm"] else "cold"
        share = "" if point["of_ceiling"] is None else f"  {point['of_ceiling']:.2f} of the ceiling"
        lines.append(f"{where} {how} {state} by {point['ran']['path']:6} {_spread(point['figure'])}{share}")
    for name, reason in result["unavailable"].items():
        lines.append(f"not measured: {name}: {reason}")
    for name, best in result["best"].items():
        way = "direct" if best["direct"] else "posix"
        lines.append(f"best cold {name}: {_tasks(best)} {way}, {best['median']:,.0f} MB/s")
    sys.stdout.write("\n".join(lines) + "\n")


def _tasks(point: dict[str, Any]) -> str:
    return f"{point['task_bytes'] >> 20} MiB x {point['threads']}"


def _spread(figure: dict[str, Any]) -> str:
    return f"{figure['median']:10,.0f} MB/s ({figure['min']:,.0f} to {figure['max']:,.0f})"
