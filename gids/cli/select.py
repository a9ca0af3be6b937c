"""``gids select``: rows of a table that a condition chooses, and what was read to find them."""

from __future__ import annotations

import argparse

import numpy as np

from gids.table.table import open_table

NAME = "select"
HELP = "rows of an Arrow or Parquet table for which a condition holds, read with its min/max statistics"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", metavar="TABLE", help="a file, or a folder of .arrow or .parquet files")
    parser.add_argument("condition", metavar="CONDITION", help="such as 'year >= 2018 and lang == 3'")
    parser.add_argument("--out", metavar="F", help="write the row numbers as an npy file of int64")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    with open_table(arguments.table) as table:
        chosen = table.where(arguments.condition)
    print(chosen)
    if arguments.out:
        np.save(arguments.out, chosen.rows)
    return 0
