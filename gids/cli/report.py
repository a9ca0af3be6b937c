"""`gids report`: result files as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "report"
HELP = "make one self-contained page of result files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("results", metavar="F", nargs="*", help="result files, as `--json` writes them")
    parser.add_argument("--out", default="report.html", help="the page (default report.html)")
    parser.add_argument("--markdown", metavar="M", help="write the tables as Markdown, too")
    parser.add_argument(
        "--benchmarks", metavar="M", help="write the page of benchmarks, of the files in --folder"
    )
    parser.add_argument(
        "--folder", default="experiments/results", metavar="DIR", help="(default experiments/results)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from bam.errors import ConfigError
    from gids.bench.report import html_page, markdown_page, read_results
    from gids.bench.report.benchmarks import benchmarks_page

    if not arguments.results and not arguments.benchmarks:
        raise ConfigError("F", "none", "result files, or --benchmarks")
    if arguments.benchmarks:
        page = benchmarks_page(Path(arguments.folder))
        Path(arguments.benchmarks).write_text(page, encoding="utf-8")
        print(arguments.benchmarks)
    if arguments.results:
        results = read_results(arguments.results)
        Path(arguments.out).write_text(html_page(results), encoding="utf-8")
        print(arguments.out)
        if arguments.markdown:
            Path(arguments.markdown).write_text(markdown_page(results), encoding="utf-8")
            print(arguments.markdown)
    return 0
