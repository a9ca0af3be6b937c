"""`gids prepare`: the data that a configuration needs."""

from __future__ import annotations

import argparse

from gids.cli.bars import byte_bar
from gids.cli.options import add_config_arguments

NAME = "prepare"
HELP = "make the synthetic folder and the store of a configuration, unless they are there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_config_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from gids.bench.data import data_root, prepare_data
    from gids.config import load_config

    config = load_config(arguments.config, arguments.set)
    root = data_root(arguments.data)
    for path in prepare_data(config.data, root, byte_bar) or ["nothing to make"]:
        print(path)
    return 0
