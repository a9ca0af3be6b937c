"""Every technique of a loader on and off, in every combination: the same mini-batches, the same bytes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_loaders import SEEDS, make_data

import gids
from bam.native import available
from gids.graph.dataset import Dataset
from gids.loader.loader import DataLoader
from gids.sampling.sampler_kind import SamplerKind, make_sampler

#: Of each technique: off, and on.
CHOICES: dict[str, tuple[Any, Any]] = {
    "window": (0, 2),
    "foresight": (0, 2),
    "cross_epochs": (False, True),
    "accumulate": (0, "1MiB"),
    "contiguous": (False, True),
    "cpu_buffer": (0, "10%"),
}
#: Taken in turn: one far too small for a mini-batch, and one that has to give up pages.
CACHES = ("4KiB", "20%")
EPOCHS = 2


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A small store, with hotness measured on another epoch."""
    return gids.open_dataset(make_data(Path(tmp_path_factory.mktemp("every")), "measured"))


def delivered(dataset: Dataset, kind: SamplerKind, settings: Mapping[str, Any]) -> list[str]:
    """A fingerprint of each mini-batch: seeds, edges, nodes, bytes of features."""
    with DataLoader(
        dataset,
        {name: ids[:150] for name, ids in SEEDS.items()},
        make_sampler(kind, [4, 3], seed=5),
        batch_size=50,
        shuffle=True,
        seed=3,
        page_bytes=512,
        **settings,
    ) as loader:
        found = []
        for _ in range(EPOCHS):
            for batch in loader:
                digest = hashlib.sha256(f"{batch.epoch} {batch.index}".encode())
                for block in batch.blocks:
                    for edges in block.edges.values():
                        digest.update(edges.indptr.tobytes() + edges.indices.tobytes())
                for name, nodes in batch.nodes.items():
                    rows = dataset.features[name].take(nodes)
                    assert batch.features[name].numpy().tobytes() == np.asarray(rows).tobytes(), settings
                    digest.update(name.encode() + nodes.tobytes() + batch.features[name].numpy().tobytes())
                found.append(digest.hexdigest())
    return found


def combinations(kind: SamplerKind) -> list[dict[str, Any]]:
    """All for the usual sampler; for the others none, all, and each alone."""
    places = itertools.product((0, 1), repeat=len(CHOICES))
    chosen = [each for each in places if kind is SamplerKind.NEIGHBOR or sum(each) in (0, 1, len(CHOICES))]
    return [{name: CHOICES[name][on] for name, on in zip(CHOICES, each, strict=True)} for each in chosen]


@pytest.mark.skipif(not available(), reason="the Python reader takes minutes for this")
@pytest.mark.parametrize("kind", list(SamplerKind))
def test_the_same_mini_batches_and_bytes(dataset: Dataset, kind: SamplerKind) -> None:
    first, *others = combinations(kind)
    expected = delivered(dataset, kind, {**first, "cache": CACHES[0]})
    assert len(expected) == len(set(expected)) == EPOCHS * 3
    for settings, cache in zip(others, itertools.cycle(CACHES), strict=False):
        settings["cache"] = cache
        assert delivered(dataset, kind, settings) == expected, settings
