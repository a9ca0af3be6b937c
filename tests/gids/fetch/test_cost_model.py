"""Which reads are worth merging, by what reads cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.fetch.cost_model import MAX_MERGE_BYTES, CostModel


@given(st.floats(0, 100), st.floats(0.01, 10), st.sampled_from([512, 4096, 16384]))
def test_holes_of_a_straight_line(read_us: float, us_per_kib: float, page_bytes: int) -> None:
    cost = CostModel.linear(read_us, us_per_kib)
    hole = cost.bridge_bytes(page_bytes)
    worth = read_us / us_per_kib * 1024  # bytes that take as long as a read's fixed part
    assert hole <= worth * (1 + 1e-9) + 1e-6
    # It ends because the next page does not pay, or because the read would get too long.
    longest = cost.merge_bytes(page_bytes)
    assert hole + page_bytes > worth * (1 - 1e-9) or hole + 3 * page_bytes > longest


def test_costs_between_and_past_what_was_measured() -> None:
    cost = CostModel((4096, 8192), (10.0, 14.0))
    np.testing.assert_allclose(cost.cost_us([512, 4096, 6144, 8192, 16384]), [10, 10, 12, 14, 28])


def test_a_longer_read_that_seems_cheaper_is_noise() -> None:
    cost = CostModel.of_rates({4096: 50_000, 8192: 100_000, 16384: 25_000})
    assert cost.read_us == (20.0, 20.0, 40.0)


def test_a_disk_whose_bytes_are_all_that_counts_bridges_nothing() -> None:
    cost = CostModel.linear(0, 1)
    assert cost.bridge_bytes(4096) == 0
    assert cost.merge_bytes(4096) == 4096


def test_a_disk_whose_reads_are_all_that_counts_reads_long() -> None:
    assert CostModel.linear(1000, 0.001).merge_bytes(4096) == MAX_MERGE_BYTES


@pytest.mark.parametrize(("lengths", "costs"), [((), ()), ((2, 1), (1.0, 1.0)), ((1, 2), (1.0,))])
def test_models_that_cannot_be(lengths: tuple[int, ...], costs: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError):
        CostModel(lengths, costs)
