"""Epochs are exact: every seed once, whatever the rank, the batch size and where one starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.errors import NodeOutOfRange, UnknownNodeType
from gids.graph.schema import Schema
from gids.sampling.seeds import SeedBatches

SCHEMA = Schema({"author": 900, "paper": 3000}, [("author", "writes", "paper")])


def delivered(batches: SeedBatches, epoch: int) -> list[tuple[str, int]]:
    found = []
    for number in range(len(batches)):
        for name, ids in batches.batch(epoch, number).nodes.items():
            found += [(name, int(node)) for node in ids]
    return found


@given(
    st.integers(0, 200),
    st.integers(0, 60),
    st.integers(1, 70),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2**64 - 1),
)
def test_each_seed_comes_once_over_all_ranks(
    n_papers: int, n_authors: int, batch_size: int, world_size: int, shuffle: bool, seed: int
) -> None:
    indices = {"paper": np.arange(n_papers) * 7, "author": np.arange(n_authors)}
    numbers, found, lengths = [], [], []
    for rank in range(world_size):
        batches = SeedBatches(
            indices,
            SCHEMA,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        found += delivered(batches, epoch=3)
        numbers += [batches.batch(3, number).number for number in range(len(batches))]
        lengths.append(len(batches))
    expected = [(name, int(node)) for name, ids in indices.items() for node in ids]
    assert sorted(found) == sorted(expected)
    assert len(set(numbers)) == len(numbers)
    assert max(lengths) - min(lengths) <= 1


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 4))
def test_drop_last_gives_every_rank_full_batches(n: int, batch_size: int, world_size: int) -> None:
    lengths = set()
    for rank in range(world_size):
        batches = SeedBatches(
            {"paper": np.arange(n)},
            SCHEMA,
            batch_size=batch_size,
            drop_last=True,
            rank=rank,
            world_size=world_size,
        )
        lengths.add(len(batches))
        for number in range(len(batches)):
            assert len(batches.batch(0, number).nodes["paper"]) == batch_size
    assert len(lengths) == 1


def test_an_unshuffled_epoch_keeps_the_order() -> None:
    batches = SeedBatches({"paper": [5, 3, 9, 1]}, SCHEMA, batch_size=3)
    assert batches.batch(0, 0).nodes["paper"].tolist() == [5, 3, 9]
    assert batches.batch(7, 1).nodes["paper"].tolist() == [1]


def test_epochs_and_seeds_give_other_orders_and_repeat() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = SeedBatches({"paper": np.arange(500)}, SCHEMA, batch_size=500, shuffle=True, seed=seed)
        return batches.batch(epoch, 0).nodes["paper"].tolist()

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}) == 16


def test_a_shuffle_is_uniform_enough() -> None:
    """Chi-square of where each of 20 seeds ends up over 4,000 epochs (fixed, so the outcome is too)."""
    n, epochs = 20, 4000
    counts = np.zeros((n, n))
    batches = SeedBatches({"paper": np.arange(n)}, SCHEMA, batch_size=n, shuffle=True, seed=11)
    for epoch in range(epochs):
        counts[np.arange(n), batches.batch(epoch, 0).nodes["paper"]] += 1
    chi_square = ((counts - epochs / n) ** 2 / (epochs / n)).sum()
    degrees = (n - 1) ** 2
    assert abs(chi_square - degrees) < 5 * np.sqrt(2 * degrees)


def test_masks_and_wrong_indices() -> None:
    mask = np.zeros(3000, bool)
    mask[[4, 8]] = True
    assert SeedBatches({"paper": mask}, SCHEMA, batch_size=9).batch(0, 0).nodes["paper"].tolist() == [4, 8]
    with pytest.raises(NodeOutOfRange):
        SeedBatches({"paper": [1, 3000]}, SCHEMA, batch_size=1)
    with pytest.raises(UnknownNodeType, match="paper"):
        SeedBatches({"papre": [1]}, SCHEMA, batch_size=1)
    for wrong in ([0.5], [[1]]):
        with pytest.raises(ConfigError):
            SeedBatches({"paper": wrong}, SCHEMA, batch_size=1)
    with pytest.raises(ConfigError, match="mapping"):
        SeedBatches([1], SCHEMA, batch_size=1)
    with pytest.raises(ConfigError, match="rank"):
        SeedBatches({"paper": [1]}, SCHEMA, batch_size=1, rank=2, world_size=2)
    assert len(SeedBatches({"paper": []}, SCHEMA, batch_size=4)) == 0
