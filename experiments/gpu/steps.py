"""Figures `cached_step` and `disk_bound_step`: training steps on a GPU, beside what bounds them.

    python experiments/gpu/steps.py FOLDER --json gpu.json

`cached_step`: RGAT on synthetic IGBH-tiny (fp32, 1024 dimensions), 512 seeds, fanouts 10 and 5. Steps whose
mini-batches come from a loader with every page in the GPU's cache, beside the same steps on the same
mini-batches that are in the GPU's memory already. `disk_bound_step`: the same with a cache of a tenth of the
rows, beside the time that its reads take at the disk's own best rate. Bytes are verified first; sides take
turns; figures are medians. They are added to the file's `figures`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gids
from bam.bench.random_reads import random_reads_per_s
from gids.graph.convert import convert_igbh
from gids.graph.convert_options import ConvertOptions
from gids.graph.dataset import Dataset
from gids.graph.store import is_store
from gids.graph.synth import synthesize
from gids.models.config import ModelConfig, TrainConfig
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer

BATCH_SIZE, FANOUTS, TASK = 512, [10, 5], "19"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where data are made, 4.5 GB, unless they are there")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--rounds", type=int, default=3, help="of the disk-bound step; four times as many cached ones"
    )
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    dataset = made(arguments.folder, arguments.scale, arguments.dim)
    check_bytes(dataset)
    figures = {
        "cached_step": cached_step(dataset, arguments.steps, 4 * arguments.rounds),
        "disk_bound_step": disk_bound_step(dataset, arguments.steps, arguments.rounds),
    }
    found: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
    found["figures"] = {**found.get("figures", {}), **figures}
    arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    for name, figure in figures.items():
        print(name, json.dumps(figure))


def made(folder: Path, scale: str, dim: int) -> Dataset:
    """The store, written unless it is there."""
    store = folder / "store"
    if not is_store(store):
        begin = time.perf_counter()
        synthesize(folder / "igbh", scale, dim=dim)
        written = time.perf_counter()
        convert_igbh(folder / "igbh", store, ConvertOptions())
        print(f"synthesized in {written - begin:.1f} s, converted in {time.perf_counter() - written:.1f} s")
    return gids.open_dataset(store)


def open_loader(dataset: Dataset, **settings: Any) -> gids.DataLoader:
    seeds = dataset.tasks[TASK].split().train
    return gids.DataLoader(
        dataset,
        {"paper": seeds},
        gids.NeighborSampler(FANOUTS, seed=1),
        batch_size=BATCH_SIZE,
        shuffle=True,
        drop_last=True,
        labels=TASK,
        device="cuda",
        prefetch=2,
        **settings,
    )


def check_bytes(dataset: Dataset) -> None:
    """Features of two mini-batches are those of the files."""
    with open_loader(dataset, cache="10%") as loader:
        for batch in islice(loader, 2):
            for name, rows in batch.features.items():
                nodes = batch.nodes[name].cpu().numpy()
                np.testing.assert_array_equal(rows.cpu().numpy(), dataset.features[name].take(nodes))


def new_trainer(dataset: Dataset) -> Trainer:
    spec = DataSpec.of_dataset(dataset, TASK)
    model = build_model(spec, ModelConfig(hidden=128, heads=4), 0).to("cuda")
    return Trainer(model, TrainConfig(learning_rate=0.001), 0)


def seconds_a_step(batches: Iterable[Any], steps: int, work: Callable[[Any], object]) -> float:
    """From one synchronisation to the next, after two steps that do not count."""
    iterator, begin = iter(batches), 0.0
    for number in range(steps + 2):
        if number == 2:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        work(next(iterator))
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / steps


def cached_step(dataset: Dataset, steps: int, rounds: int) -> dict[str, Any]:
    trainer, ours, resident = new_trainer(dataset), [], []
    with open_loader(dataset, cache="auto") as loader:
        loader.set_epoch(0)
        kept = list(islice(loader, steps + 2))  # every page of these is in the cache now
        for number in range(rounds + 1):
            for turn in (number, number + 1):  # either is the first in every other round
                if turn % 2:
                    resident.append(seconds_a_step(kept, steps, trainer.step))
                    continue
                loader.set_epoch(0)
                iterator = iter(loader)
                ours.append(seconds_a_step(iterator, steps, trainer.step))
                iterator.close()
        loader.set_epoch(0)
        iterator = iter(loader)
        alone = seconds_a_step(iterator, steps, lambda batch: None)
        iterator.close()
        pages_read = loader.metrics().total.pages_read
    # Of steps that were timed one after the other: a machine's processor is not as fast in every minute.
    ratios = [beside / mine for mine, beside in zip(ours[1:], resident[1:], strict=True)]
    return {
        "value": 1e3 * statistics.median(ours[1:]),
        "unit": "ms a step",
        "ceiling": 1e3 * statistics.median(resident[1:]),
        "ratio": statistics.median(ratios),
        "all_ms": [1e3 * each for each in ours[1:]],
        "all_resident_ms": [1e3 * each for each in resident[1:]],
        "loader_alone_ms": 1e3 * alone,
        "pages_read": pages_read,
    }


def disk_bound_step(dataset: Dataset, steps: int, rounds: int) -> dict[str, Any]:
    trainer, ours, bounds, alone, rates = new_trainer(dataset), [], [], [], []
    path = str(dataset.features["author"].description.files[0].path)
    with open_loader(dataset, cache="10%", window=8) as loader:
        for number in range(rounds):
            # Around the loader's turn, because the disk's rate changes from minute to minute.
            around = [_best_rate(path, 10 * number)]
            for turn, (work, times) in enumerate(((trainer.step, ours), (lambda batch: None, alone))):
                loader.set_epoch(2 * number + turn)
                before = loader.metrics().total.reads
                iterator = iter(loader)
                times.append(seconds_a_step(iterator, steps, work))
                iterator.close()
                around.append(_best_rate(path, 10 * number + len(around)))
                if times is ours:
                    reads = (loader.metrics().total.reads - before) / (steps + 2)
                    bounds.append(reads / statistics.mean(around))
            rates += around
    ratios = [bound / value for bound, value in zip(bounds, ours, strict=True)]
    return {
        "value": 1e3 * statistics.median(ours),
        "unit": "ms a step",
        "ceiling": 1e3 * statistics.median(bounds),
        "ratio": statistics.median(ratios),
        "all_ms": [1e3 * each for each in ours],
        "all_reads_alone_ms": [1e3 * each for each in bounds],
        "loader_alone_ms": [1e3 * each for each in alone],
        "disk_reads_per_s": rates,
    }


def _best_rate(path: str, seed: int) -> float:
    return max(random_reads_per_s(path, depth, 4096, seed=seed + depth, seconds=0.7) for depth in (128, 256))


if __name__ == "__main__":
    main()
