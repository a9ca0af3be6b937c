"""The bitmap with ranks against a sorted list."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gids.fetch.row_set import RowSet


@given(st.sets(st.integers(0, 2999), max_size=300), st.integers(3000, 3100))
def test_places_are_ranks(members: set[int], n_rows: int) -> None:
    ascending = np.array(sorted(members), np.int64)
    found = RowSet(np.random.default_rng(0).permutation(ascending), n_rows)
    rows = np.arange(n_rows, dtype=np.int64)
    expected = np.full(n_rows, -1)
    expected[ascending] = np.arange(len(ascending))
    np.testing.assert_array_equal(found.places(rows), expected)
    np.testing.assert_array_equal(found.members(), ascending)
    assert found.n_members == len(members)


def test_it_takes_little_more_than_a_bit_a_row() -> None:
    assert RowSet(np.arange(0, 10**6, 7), 10**6).nbytes * 8 < 1.13 * 10**6
