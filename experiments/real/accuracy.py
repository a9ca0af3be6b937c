"""Accuracy on a data set: one configuration, several seeds, a result file with their mean.

    GIDS_DATA=DIR python experiments/real/accuracy.py configs/acm.toml --features-only --json F

Each seed draws its own weights and mini-batches and, where the set has no published split, its own split.
The first of `--loaders` trains every seed; the others train as many as `--other-seeds` says, on the same
mini-batches, and the losses are compared bit for bit. `--features-only` also trains the classifier that does
not see the graph. Finished runs are kept in `--runs`: the same command goes on where it was stopped.

Where the figures to compare with come from:

- ACM. HeCo (Wang, Liu, Han and Shi, "Self-supervised Heterogeneous Graph Neural Network with Co-contrastive
  Learning", KDD 2021, arXiv:2105.09111) made the split used here; its authors give their result with 60
  labels a class as micro-F1 88.71 and macro-F1 89.04 (github.com/BUPT-GAMMA/OpenHGNN,
  openhgnn/output/HeCo/README.md, row "paper"), above that of HAN. HAN (Wang et al., "Heterogeneous Graph
  Attention Network", WWW 2019) reports micro-F1 89.22 and macro-F1 89.40 on ACM with 20 % of the papers
  labelled (github.com/Jhy1993/HAN issue 2; github.com/dmlc/dgl, examples/pytorch/han/README.md, row "Paper").
- Cora, public split. GCN (Kipf and Welling, ICLR 2017) 81.5 (github.com/dmlc/dgl,
  examples/pytorch/gcn/README.md, column "Paper").
- Amazon Photo, random splits with 20 labels a class. GCN 91.2 and a classifier of features 69.6 (Shchur et
  al., "Pitfalls of Graph Neural Network Evaluation", 2018, arXiv:1811.05868; read in the table of
  github.com/papersubmit123/NbodyGNN-WWW, README.md, which repeats them).
- Debian. Logistic regression on averaged neighbour text, beside the data in SOURCES.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

# Before torch is loaded: its idle threads would otherwise spin while the loader's threads have work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from bam.bench.machine import command, commit, describe_machine
from gids.bench.data import data_root
from gids.bench.training import run_training
from gids.config import RunConfig, as_table, load_config
from gids.models.config import ModelName

SCHEMA = 1

#: What others reached, by data set. A figure goes in here once its source has been looked up.
PUBLISHED: dict[str, list[dict[str, Any]]] = {
    "acm": [
        {
            "model": "HeCo, this split (60 labels a class)",
            "accuracy": 0.8871,
            "macro_f1": 0.8904,
            "source": "Wang et al., KDD 2021, arXiv:2105.09111; OpenHGNN, openhgnn/output/HeCo/README.md",
        },
        {
            "model": "HAN, 20 % of the papers labelled",
            "accuracy": 0.8922,
            "macro_f1": 0.8940,
            "source": "Wang et al., WWW 2019; github.com/Jhy1993/HAN issue 2",
        },
    ],
    "amazon_photo": [
        {
            "model": "GCN, random splits",
            "accuracy": 0.912,
            "macro_f1": None,
            "source": "Shchur et al., 2018, arXiv:1811.05868",
        },
        {
            "model": "features only, random splits",
            "accuracy": 0.696,
            "macro_f1": None,
            "source": "Shchur et al., 2018, arXiv:1811.05868",
        },
    ],
    "cora": [
        {
            "model": "GCN",
            "accuracy": 0.815,
            "macro_f1": None,
            "source": "Kipf and Welling, ICLR 2017; github.com/dmlc/dgl, examples/pytorch/gcn/README.md",
        },
    ],
    "debian": [
        {
            "model": "logistic regression on averaged neighbour text, mean of 3 splits",
            "accuracy": 0.841,
            "macro_f1": 0.732,
            "source": "SOURCES.md beside the data",
        },
        {
            "model": "logistic regression on own text, mean of 3 splits",
            "accuracy": 0.645,
            "macro_f1": 0.540,
            "source": "SOURCES.md beside the data",
        },
    ],
}

#: What is kept of each training.
KEPT = (
    *("steps", "epochs", "best_epoch", "test_accuracy", "test_macro_f1"),
    *("losses", "losses_sha256", "seconds", "path"),
)


def run_seed(config: RunConfig, seed: int, loader: str, root: Path, runs: Path) -> dict[str, Any]:
    """Train with one seed through one loader; what came out."""
    seeded = replace(
        config,
        data=replace(config.data, split_seed=seed),
        training=replace(config.training, seed=seed),
    )
    name = f"{config.model.name.value}-{loader}-{seed}"
    result = run_training(
        seeded,
        root,
        runs / name,
        loader=loader,
        same_batches=True,
        report=lambda line: print(f"{name}: {line}", flush=True),
    )
    print(f"{name}: test {result['test_accuracy']:.4f} / {result['test_macro_f1']:.4f}", flush=True)
    return {"seed": seed, **{key: result[key] for key in KEPT}}


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds, then the runs."""
    found: dict[str, Any] = {"seeds": len(runs)}
    for name in ("test_accuracy", "test_macro_f1"):
        values = [run[name] for run in runs]
        found[f"{name}_mean"] = mean(values)
        found[f"{name}_std"] = stdev(values) if len(values) > 1 else 0.0
    bests = [max(epoch["validation_accuracy"] for epoch in run["epochs"]) for run in runs]
    found["validation_accuracy_mean"] = mean(bests)
    return {**found, "runs": list(runs)}


def equal_losses(loaders: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether all loaders had equal losses in all steps of the seeds they share; None for one loader."""
    if len(loaders) < 2:
        return None
    by_seed: dict[int, set[str]] = {}
    for each in loaders.values():
        for run in each["runs"]:
            by_seed.setdefault(run["seed"], set()).add(run["losses_sha256"])
    return all(len(digests) == 1 for digests in by_seed.values())


def features_only(config: RunConfig) -> RunConfig:
    """The same with the model that does not see the graph, for which no neighbour need be read."""
    nobody = (0,) * config.model.layers
    return replace(
        config,
        model=replace(config.model, name=ModelName.MLP),
        sampling=replace(config.sampling, fanouts=nobody, evaluation_fanouts=()),
    )


def parse(arguments: Iterable[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a file of configs/")
    parser.add_argument("--data", help="folder that holds all data sets (default $GIDS_DATA, else data)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--loaders", default="gids,dgl-mmap", help="default gids,dgl-mmap")
    parser.add_argument("--other-seeds", type=int, help="of every loader but the first (default all)")
    parser.add_argument("--features-only", action="store_true", help="also train without the graph")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="go over the file")
    parser.add_argument("--runs", metavar="DIR", help="of the trainings (default runs/accuracy-<name>)")
    parser.add_argument("--json", metavar="F", help="write the result file")
    return parser.parse_args(None if arguments is None else list(arguments))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all seeds and write the result; the exit status."""
    given = parse(arguments)
    torch.set_num_threads(given.threads)
    config = load_config(given.config, given.set)
    root = data_root(given.data)
    runs = Path(given.runs or Path("runs") / f"accuracy-{config.name}")
    # Now, and not after hours in which the working tree may change.
    measured = commit()
    first, *others = given.loaders.split(",")
    seeds = {first: given.seeds} | dict.fromkeys(others, given.other_seeds or given.seeds)
    loaders = {
        loader: summary([run_seed(config, seed, loader, root, runs) for seed in range(count)])
        for loader, count in seeds.items()
    }
    plain = features_only(config) if given.features_only else None
    without = [run_seed(plain, seed, first, root, runs) for seed in range(given.seeds)] if plain else []
    result = {
        "schema": SCHEMA,
        "name": "accuracy",
        "commit": measured,
        "command": command(),
        "machine": {
            **describe_machine(root / config.data.folder),
            "threads": torch.get_num_threads(),
        },
        "config": as_table(config),
        "published": PUBLISHED.get(config.data.name, []),
        "equal_losses": equal_losses(loaders),
        "loaders": loaders,
        "features_only": summary(without) if without else None,
    }
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    for name, each in {**loaders, "features only": result["features_only"]}.items():
        if each:
            print(f"{name}: test {each['test_accuracy_mean']:.4f} / {each['test_macro_f1_mean']:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
