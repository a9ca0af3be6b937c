"""`gids calibrate`: measure the device under a data set."""

from __future__ import annotations

import argparse
from pathlib import Path

from gids.cli.text import size_text, table_text

NAME = "calibrate"
HELP = "measure the device under a data set, while the machine is idle: reads a second and latency"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR", help="store or IGBH folder")
    parser.add_argument("--engine", default="auto", help="auto (default), uring or file, as for training")
    parser.add_argument("--seconds", type=float, default=15.0, help="all measurements together (default 15)")
    parser.add_argument("--force", action="store_true", help="measure even if the device was measured before")
    parser.add_argument("--out", metavar="DIR", help="folder of calibration.json (default: DIR)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from bam.config import EngineKind, parse_kind
    from bam.storage.bulk.settings import Destination
    from gids.fetch.bulk_points import best_point
    from gids.fetch.calibration import SMALL_FILE_BYTES, calibrate, load_calibration, store_calibration
    from gids.graph.open_dataset import largest_feature_file

    engine = parse_kind("--engine", arguments.engine, EngineKind)
    folder = Path(arguments.out or arguments.dir)
    found = None if arguments.force else load_calibration(folder, arguments.dir)
    if found is None:
        found = calibrate(largest_feature_file(arguments.dir), engine=engine, seconds=arguments.seconds)
        print(f"measured; written to {store_calibration(found, folder)}")
    else:
        print("measured before, and the device is the same; --force measures again")
    device = found.device
    print(f"device {device.number} {device.model} {device.serial}, {device.file_system} on {device.mount}")
    print(f"engine {found.engine}, {'direct' if found.direct else 'through the page cache'}")
    if found.file_bytes < SMALL_FILE_BYTES:
        print(
            f"note: the file has {size_text(found.file_bytes)}; the device may have answered from its cache"
        )
    rows = [
        (
            size_text(p.read_bytes),
            p.depth,
            f"{p.reads_per_s:,.0f}",
            f"{p.latency_us:,.0f}",
            f"{p.reads_per_s * p.read_bytes / 1e6:,.0f}",
        )
        for p in found.points
    ]
    print(table_text(("read", "depth", "reads/s", "latency us", "MB/s"), rows))
    facts, cost = found.facts(4096), found.cost_model()
    print(
        f"4 KiB: {facts.iops:,.0f} reads/s, {facts.latency_us:.0f} us alone; "
        f"{facts.reads_needed():,.0f} reads under way reach 95 % of the peak\n"
        f"merged reads up to {size_text(cost.merge_bytes(4096))}, over holes up to "
        f"{size_text(cost.bridge_bytes(4096))}"
    )
    for destination in Destination:
        if best := best_point(found.bulk, destination):
            print(
                f"bulk reads to {destination.value} memory: {size_text(best.task_bytes)} a task, "
                f"{best.threads} threads, {best.engine}: {best.bytes_per_s / 1e6:,.0f} MB/s"
            )
    return 0
