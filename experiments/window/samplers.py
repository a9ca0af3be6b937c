"""Samplers that share random numbers: what accuracy they reach, and what they read.

    GIDS_DATA=DIR python experiments/window/samplers.py NAME=STORE ... --configs configs/acm.toml ... --json F

Accuracy: each configuration is trained with each sampler and several seeds; validation and test sample
independently. Reads: an epoch of a converted data set's graph through the loader's fetcher, window 8, from an
empty cache, as in `belady.py`, with hotness measured on other epochs of the same sampler.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

# Before torch is loaded: its idle threads would otherwise spin while the loader's threads have work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from belady import FANOUTS, WINDOW, Trace, pages_read

from bam.bench.machine import command, commit, describe_machine
from gids.bench.belady_gap import optimal_misses
from gids.bench.data import data_root
from gids.bench.training import run_training
from gids.cli.options import write_json
from gids.config import RunConfig, load_config
from gids.sampling.sampler_kind import SamplerKind, make_sampler

SHARES = (0.1, 0.2)


@dataclass(frozen=True)
class Choice:
    """A sampler and its strength."""

    kind: SamplerKind
    kappa: int = 0

    @property
    def name(self) -> str:
        """For tables."""
        return f"{self.kind.value}, kappa {self.kappa}" if self.kappa else self.kind.value


CHOICES = (
    Choice(SamplerKind.NEIGHBOR),
    Choice(SamplerKind.LABOR),
    Choice(SamplerKind.LABOR, 16),
    Choice(SamplerKind.DEPENDENT, 16),
    Choice(SamplerKind.DEPENDENT, 64),
)


def accuracy(config: RunConfig, seeds: int, root: Path) -> dict[str, Any]:
    """Test accuracy of each sampler; every seed has the same split and first weights for all of them."""
    found = {}
    for choice in CHOICES:
        sampling = replace(config.sampling, sampler=choice.kind, kappa=choice.kappa)
        runs = []
        for seed in range(seeds):
            seeded = replace(
                config,
                sampling=sampling,
                data=replace(config.data, split_seed=seed),
                training=replace(config.training, seed=seed),
            )
            with tempfile.TemporaryDirectory(prefix="gids-samplers-") as folder:
                runs.append(run_training(seeded, root, Path(folder) / "run", report=lambda _: None))
        scores = [run["test_accuracy"] for run in runs]
        found[choice.name] = {
            "test_accuracy_mean": mean(scores),
            "test_accuracy_std": stdev(scores) if seeds > 1 else 0.0,
            "test_macro_f1_mean": mean(run["test_macro_f1"] for run in runs),
            "test_accuracy": scores,
        }
        print(config.name, choice.name, found[choice.name], flush=True)
    return {"seeds": seeds, "fanouts": list(config.sampling.fanouts), "samplers": found}


def reads(store: Path) -> dict[str, Any]:
    """Requests of an epoch by each sampler, and pages read for them."""
    found = {}
    for choice in CHOICES:
        trace = Trace(store, 2**62, make_sampler(choice.kind, FANOUTS, kappa=choice.kappa))
        by_share = {}
        for share in SHARES:
            lines = int(share * trace.n_rows)
            pages = pages_read(trace, lines, WINDOW, "look_ahead_global", trace.requests, "auto")
            by_share[f"{share:.0%}"] = {
                "lines": lines,
                "pages_read": pages,
                "optimal_misses": optimal_misses(trace.pages, lines),
            }
        found[choice.name] = {
            "requests": len(trace.pages),
            "distinct_rows": trace.n_distinct,
            "cache": by_share,
        }
        print(store.name, choice.name, found[choice.name], flush=True)
    return {"fanouts": FANOUTS, "window": WINDOW, "samplers": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="*", metavar="NAME=STORE")
    parser.add_argument("--configs", nargs="*", default=[], metavar="F")
    parser.add_argument("--data", help="folder that holds all data sets (default $GIDS_DATA, else data)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path.cwd()),
        "reads": {},
        "accuracy": {},
    }
    for each in arguments.stores:
        name, _, store = each.partition("=")
        result["reads"][name] = reads(Path(store))
        write_json(arguments.json, result)
    for file in arguments.configs:
        config = load_config(file)
        result["accuracy"][config.name] = accuracy(config, arguments.seeds, data_root(arguments.data))
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
