"""Accuracy on a real data set: one configuration, several seeds, a result file with their mean.

    python experiments/real/accuracy.py configs/acm.toml --data DIR --json F

Each seed draws its own weights, mini-batches and, where the set has no published split, its own split.
Mini-batches come from `gids.DataLoader`. `--features-only` trains the classifier that does not see the graph.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

# Before torch is loaded: its idle threads would otherwise spin while the loader's threads have work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from bam.bench.machine import command, commit, describe_machine
from gids.config import RunConfig, as_table, load_config
from gids.graph.real.by_name import load_real
from gids.models.batches import DatasetBatches
from gids.models.config import ModelName
from gids.models.spec import DataSpec
from gids.models.train import EpochResult, train

SCHEMA = 1

#: What is to be reached, and where it stands. A figure goes in here once its source has been looked up.
PUBLISHED: dict[str, dict[str, Any]] = {
    "debian": {
        "model": "logistic regression on averaged neighbour text, converged, mean of 3 splits",
        "accuracy": 0.841,
        "macro_f1": 0.732,
        "source": "SOURCES.md beside the data; own text alone: 0.645 and 0.540",
    },
}


def run_seed(config: RunConfig, folder: Path, seed: int) -> dict[str, Any]:
    """Train with one seed; what came out."""
    dataset = load_real(config.data.name, folder, split_seed=seed)
    settings = replace(config.training, seed=seed)

    def tell(epoch: int, result: EpochResult) -> None:
        score = result.validation
        print(
            f"seed {seed} epoch {epoch}: validation {score.accuracy:.4f} / {score.macro_f1:.4f}, "
            f"{result.train_s:.1f} s",
            flush=True,
        )

    with DatasetBatches(dataset, config.data.task, config.sampling, seed) as batches:
        _, result = train(
            DataSpec.of_dataset(dataset, config.data.task),
            config.model,
            settings,
            batches,
            steps_per_epoch=batches.steps_per_epoch,
            on_epoch=tell,
        )
    best = result.epochs[result.best_epoch]
    print(f"seed {seed}: test {result.test.accuracy:.4f} / {result.test.macro_f1:.4f}", flush=True)
    return {
        "seed": seed,
        "test_accuracy": result.test.accuracy,
        "test_macro_f1": result.test.macro_f1,
        "test_nodes": result.test.n,
        "validation_accuracy": best.validation.accuracy,
        "validation_macro_f1": best.validation.macro_f1,
        "best_epoch": result.best_epoch,
        "epochs": len(result.epochs),
        "steps": len(result.losses),
        "last_loss": result.losses[-1],
        "seconds": round(result.seconds, 1),
        "wait_seconds": round(sum(epoch.wait_s for epoch in result.epochs), 1),
    }


def summary(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Mean and standard deviation over the seeds."""
    found = {}
    for name in ("test_accuracy", "test_macro_f1"):
        values = [run[name] for run in runs]
        found[f"{name}_mean"] = mean(values)
        found[f"{name}_std"] = stdev(values) if len(values) > 1 else 0.0
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all seeds and write the result; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a file of configs/")
    parser.add_argument("--data", required=True, help="folder that holds all data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--features-only", action="store_true", help="train without the graph")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="go over the file")
    parser.add_argument("--json", metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    config = load_config(given.config, given.set)
    if given.features_only:
        config = replace(config, model=replace(config.model, name=ModelName.MLP))
    folder = Path(given.data) / config.data.folder
    runs = [run_seed(config, folder, seed) for seed in range(given.seeds)]
    result = {
        "schema": SCHEMA,
        "name": f"accuracy_{config.name}",
        "commit": commit(),
        "command": command(),
        "machine": {**describe_machine(folder), "threads": torch.get_num_threads()},
        "config": as_table(config),
        "published": PUBLISHED.get(config.data.name) if not given.features_only else None,
        **summary(runs),
        "runs": runs,
    }
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(summary(runs), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
