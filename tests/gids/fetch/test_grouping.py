"""Which mini-batches a GPU reads together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gids.fetch.accumulator import GroupMember
from gids.fetch.cost_model import CostModel
from gids.fetch.cuda.grouping import Grouping
from gids.fetch.device_model import SsdFacts
from gids.fetch.read_plan import ReadRules
from gids.fetch.storage_model import StorageModel

PAGE = 4096
COST = CostModel.linear(7.0, 0.4)
MERGING = StorageModel(
    SsdFacts(1e5, 100.0),
    ReadRules(PAGE, COST.merge_bytes(PAGE), COST.bridge_bytes(PAGE)),
    COST,
    "calibration",
)
RNG = np.random.default_rng(7)
BATCH_BYTES = 1000


def members(n_batches: int, n_pages: int, of: int) -> list[GroupMember]:
    """Mini-batches of random pages."""
    return [
        GroupMember({"": np.sort(RNG.choice(of, n_pages, replace=False))}, BATCH_BYTES)
        for _ in range(n_batches)
    ]


def sizes(grouping: Grouping, waiting: list[GroupMember]) -> list[int]:
    found = []
    while waiting:
        size = grouping.extend(waiting)
        found.append(size.n_batches)
        grouping.begun()
        waiting = waiting[size.n_batches :]
    return found


def test_dense_mini_batches_are_read_together_within_the_budget() -> None:
    assert sizes(Grouping(MERGING, 5 * BATCH_BYTES), members(12, 500, 2000)) == [5, 5, 2]


def test_mini_batches_far_apart_are_read_alone() -> None:
    assert sizes(Grouping(MERGING, 5 * BATCH_BYTES), members(4, 500, 10**9)) == [1] * 4


@pytest.mark.parametrize(
    "grouping",
    [
        Grouping(MERGING, 0),
        Grouping(MERGING, 5 * BATCH_BYTES, merges=False),
        Grouping(StorageModel(), 5 * BATCH_BYTES),
    ],
)
def test_nothing_is_grouped_where_it_cannot_pay(grouping: Grouping) -> None:
    assert not grouping.on
    assert sizes(grouping, members(3, 500, 2000)) == [1, 1, 1]
    assert grouping.extend([]).n_batches == 0


def test_cached_pages_are_not_waited_for() -> None:
    grouping = Grouping(MERGING, 5 * BATCH_BYTES)
    for _ in range(20):
        grouping.observe(1000, 0)
    assert sizes(grouping, members(3, 500, 2000)) == [1, 1, 1]
    for _ in range(3):
        grouping.observe(1000, 1000)
    assert sizes(grouping, members(3, 500, 2000)) == [3]


def test_where_nothing_may_be_read_the_first_mini_batch_tells() -> None:
    waiting, grouping = members(9, 500, 2000), Grouping(MERGING, 5 * BATCH_BYTES, begins_alone=True)
    assert sizes(grouping, waiting[:2]) == [1, 1]
    grouping.observe(500, 400)
    assert sizes(grouping, waiting[2:]) == [5, 2]


@pytest.mark.parametrize("of", [torch.from_numpy, np.asarray])
def test_a_share_of_a_large_store_says_enough(of: Any) -> None:
    n_pages = 3_000_000
    grouping = Grouping(MERGING, 5 * BATCH_BYTES, n_pages)
    pages = np.arange(n_pages)
    kept = np.asarray(grouping.sampled(of(pages)))
    assert len(kept) == pytest.approx(n_pages / 8, rel=0.05)
    runs = np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1)
    assert min(map(len, runs[:-1])) == 256  # what lies near is kept together
    # Decisions and sizes are about those of all pages.
    waiting = members(6, 200_000, n_pages)
    some = [GroupMember({"": grouping.sampled(each.pages[""])}, BATCH_BYTES) for each in waiting]
    assert sizes(grouping, some) == sizes(Grouping(MERGING, 5 * BATCH_BYTES), waiting) == [5, 1]
    grouping.extend(some)
    whole = Grouping(MERGING, 5 * BATCH_BYTES)
    whole.extend(waiting)
    assert grouping.begun() == pytest.approx(whole.begun(), rel=0.05)
    small = Grouping(MERGING, 5 * BATCH_BYTES, 100_000)
    assert small.sampled(pages) is pages
