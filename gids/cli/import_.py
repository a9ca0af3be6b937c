"""``gids import``: what a database query returns, as an Arrow file."""

from __future__ import annotations

import argparse
import time

from gids.cli.bars import count_bar
from gids.cli.convert import names
from gids.table.database import import_query, without_password
from gids.table.write import BATCH_ROWS

NAME = "import"
HELP = "write what a query of PostgreSQL, SQLite or DuckDB returns as an Arrow file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("uri", metavar="URI", help="postgresql://…, sqlite:///file or duckdb:///file")
    parser.add_argument(
        "--query",
        action="append",
        required=True,
        metavar="SQL",
        help="may be repeated: then tables are joined side by side on --key; let each query ORDER BY it",
    )
    parser.add_argument("--key", help="column that all queries return, in the same order")
    parser.add_argument("--out", required=True, metavar="F", help="the Arrow file to make")
    parser.add_argument("--stats", type=names, default=[], help="columns that get min/max statistics")
    parser.add_argument(
        "--batch-rows", type=int, default=BATCH_ROWS, help=f"rows of a record batch (default {BATCH_ROWS})"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    begin = time.monotonic()
    rows = import_query(
        arguments.uri,
        arguments.query,
        arguments.out,
        key=arguments.key,
        stats=arguments.stats,
        batch_rows=arguments.batch_rows,
        progress=count_bar,
    )
    shown = without_password(arguments.uri)
    print(f"{shown} to {arguments.out}: {rows:,} rows, {time.monotonic() - begin:.1f} s")
    return 0
