"""``gids synth``: write a synthetic IGBH folder."""

from __future__ import annotations

import argparse
import time

from gids.cli.bars import byte_bar
from gids.cli.text import size_text
from gids.graph.igbh_facts import PUBLISHED_DIM
from gids.graph.synth import plan_synthesis, synthesize, total_bytes

NAME = "synth"
HELP = "write a synthetic IGBH folder with the published layout and node counts"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--scale", required=True, help="tiny, small, medium, large, full, or a share of tiny such as 0.1"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes (default 0)")
    parser.add_argument(
        "--dim", type=int, default=PUBLISHED_DIM, help="elements of a feature row (default 1024)"
    )
    parser.add_argument("--workers", type=int, help="threads (default: one per CPU)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    n_bytes = total_bytes(plan_synthesis(arguments.scale, arguments.seed, dim=arguments.dim))
    begin = time.monotonic()
    out = synthesize(
        arguments.out,
        arguments.scale,
        arguments.seed,
        dim=arguments.dim,
        workers=arguments.workers,
        progress=byte_bar,
    )
    print(f"{out}: {size_text(n_bytes)}, {time.monotonic() - begin:.1f} s")
    return 0
