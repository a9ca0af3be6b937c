"""`gids train`: train a model; run again, the command goes on where it was stopped."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gids.cli.options import add_config_arguments, write_json

NAME = "train"
HELP = "train a model through a loader; the same command goes on where it was stopped"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_config_arguments(parser)
    parser.add_argument(
        "--loader", default="gids", help="gids (default), dgl-mmap, dgl-mmap-tuned or in-memory"
    )
    parser.add_argument(
        "--same-batches",
        action="store_true",
        help="let DGL's loaders deliver the mini-batches that the sampler of gids makes",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the run (default runs/<name>-<loader>)")
    parser.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=60.0,
        help="at most so much work is done again after a kill (default 60)",
    )
    parser.add_argument("--json", metavar="F", help="write the result file")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    # Before torch is loaded: its idle threads would otherwise spin while the loader's threads have work.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from bam.errors import ConfigError
    from gids.bench.data import data_root
    from gids.bench.loaders import LOADERS, READ_AHEAD_KIB
    from gids.bench.training import run_training
    from gids.config import load_config
    from gids.errors import did_you_mean

    names = [name for name in LOADERS if name not in READ_AHEAD_KIB]
    if arguments.loader not in names:
        expected = f"one of {', '.join(names)}; {did_you_mean(arguments.loader, names)}"
        raise ConfigError("--loader", arguments.loader, expected)
    config = load_config(arguments.config, arguments.set)
    out = Path(arguments.out or Path("runs") / f"{config.name}-{arguments.loader}")
    result = run_training(
        config,
        data_root(arguments.data),
        out,
        loader=arguments.loader,
        same_batches=arguments.same_batches,
        checkpoint_seconds=arguments.checkpoint_seconds,
        report=print,
    )
    write_json(arguments.json, result)
    print(
        f"test accuracy {result['test_accuracy']:.4f}, macro-F1 {result['test_macro_f1']:.4f} "
        f"(weights of epoch {result['best_epoch']} in {out / 'model.pt'})"
    )
    return 0
