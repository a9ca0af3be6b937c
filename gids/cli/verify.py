"""``gids verify``: check every byte of a store."""

from __future__ import annotations

import argparse
import sys

from gids.cli.bars import byte_bar
from gids.graph.manifest import read_manifest
from gids.graph.store import verify_store

NAME = "verify"
HELP = "check every checksum of a store and every id of its graph"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--workers", type=int, help="threads (default: one per CPU)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status: 1 when something is damaged."""
    damage = verify_store(arguments.dir, workers=arguments.workers, progress=byte_bar)
    for error in damage:
        print(error, file=sys.stderr)
    if damage:
        print(f"{arguments.dir}: damaged; convert it again from its source", file=sys.stderr)
        return 1
    print(f"{arguments.dir}: all {len(read_manifest(arguments.dir).files)} files are as they were written")
    return 0
