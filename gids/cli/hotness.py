"""`gids hotness`: find out how often an epoch asks for each node's features, and keep it."""

from __future__ import annotations

import argparse

from gids.cli.bars import count_bar
from gids.cli.text import size_text

NAME = "hotness"
HELP = "count how often an epoch asks for each node's features, for the constant buffer and the window"
METHODS = ("expected", "measured", "pagerank", "degree")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", metavar="DIR", help="store or IGBH folder")
    parser.add_argument(
        "--method",
        choices=METHODS,
        default=METHODS[0],
        help="expected (default): one pass over the edges for each hop; measured: sample whole epochs; "
        "pagerank: weighted reverse PageRank; degree",
    )
    parser.add_argument("--fanouts", default="10,5", help="of the training, first layer first (default 10,5)")
    parser.add_argument("--batch-size", type=int, default=512, help="of the training (default 512)")
    parser.add_argument("--epochs", type=int, default=2, help="epochs that are sampled (default 2)")
    parser.add_argument("--task", help="task whose training nodes are the seeds (default: the first)")
    parser.add_argument("--split", help="igb, mlperf or files (default: the data set's own)")
    parser.add_argument("--seed", type=int, default=0, help="of sampling (default 0)")
    parser.add_argument("--out", metavar="DIR", help="where to keep it (default: DIR, where loaders look)")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from bam.errors import ConfigError
    from gids.errors import did_you_mean
    from gids.fetch.expected_requests import HotnessMethod, save_expected
    from gids.fetch.hotness_methods import expect_requests
    from gids.graph.open_dataset import open_dataset
    from gids.sampling.neighbor import NeighborSampler

    dataset = open_dataset(arguments.dir)
    name = arguments.task or next(iter(dataset.tasks), "")
    if name not in dataset.tasks:
        raise ConfigError("--task", name, f"a task of the data set; {did_you_mean(name, dataset.tasks)}")
    task = dataset.tasks[name]
    split = task.usual_split(arguments.split or "")
    fanouts = [int(each) for each in arguments.fanouts.split(",")]
    found = expect_requests(
        dataset.graph,
        dataset.features,
        {task.node_type: split.train},
        NeighborSampler(fanouts, seed=arguments.seed),
        batch_size=arguments.batch_size,
        method=HotnessMethod(arguments.method),
        epochs=arguments.epochs,
        progress=count_bar,
    )
    index = save_expected(found, arguments.out or arguments.dir)
    n_rows = sum(len(levels) for levels in found.levels.values())
    asked = sum(int((levels > 0).sum()) for levels in found.levels.values())
    print(f"{index}: {size_text(n_rows)}; {asked:,} of {n_rows:,} rows are asked for in an epoch")
    print(f"dispersion of counts between epochs: {found.dispersion:.2f}")
    return 0
