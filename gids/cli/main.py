"""Entry point: one module per command."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from bam.errors import BamError
from gids.cli import (
    bench,
    calibrate,
    convert,
    hotness,
    import_,
    info,
    plan,
    prepare,
    report,
    select,
    synth,
    train,
    verify,
)


class Command(Protocol):
    """What a command's module has."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Carry the command out; the exit status."""


COMMANDS: tuple[Command, ...] = (
    *(synth, convert, import_, info, verify, select, calibrate, hotness, prepare, plan, train, bench, report),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="gids", description="Train graph neural networks whose features do not fit in memory."
    )
    parser.add_argument("--log-level", default="WARNING", help="DEBUG, INFO, WARNING (default) or ERROR")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns
    -------
    int
        0; 1 after an error that the message on standard error explains; 130 after Ctrl-C.
    """
    arguments = build_parser().parse_args(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever reads the output (head, less) has seen enough; the interpreter must not flush again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
        return 0
    except (BamError, OSError) as error:
        print(f"gids: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("gids: interrupted; finished work is kept, the same command goes on from it", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
