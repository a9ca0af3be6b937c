"""`gids report`: result files as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "report"
HELP = "make one self-contained page of result files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("results", metavar="F", nargs="+", help="result files, as `--json` writes them")
    parser.add_argument("--out", default="report.html", help="the page (default report.html)")
    parser.add_argument("--markdown", metavar="M", help="write the tables as Markdown, too")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from gids.bench.report import html_page, markdown_page, read_results

    results = read_results(arguments.results)
    Path(arguments.out).write_text(html_page(results), encoding="utf-8")
    print(arguments.out)
    if arguments.markdown:
        Path(arguments.markdown).write_text(markdown_page(results), encoding="utf-8")
        print(arguments.markdown)
    return 0
