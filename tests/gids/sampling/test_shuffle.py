"""Shuffling: compiled and plain agree, and every place is taken once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gids.sampling.reference import shuffled_place
from gids.sampling.shuffle_kernel import shuffled_places


@given(
    st.integers(1, 300) | st.sampled_from([4, 5, 16, 17, 64, 65, 2**33]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.data(),
)
def test_same_places_as_the_reference(n: int, seed: int, epoch: int, data: st.DataObject) -> None:
    first, step = data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, 5))
    count = min(20, (n - 1 - first) // step + 1)
    found = shuffled_places(first, step, count, n, np.uint64(seed), np.uint64(epoch))
    assert found.tolist() == [shuffled_place(first + i * step, n, seed, epoch) for i in range(count)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 255, 256, 257, 100_000])
def test_every_place_is_taken_once(n: int) -> None:
    assert sorted(shuffled_places(0, 1, n, n, np.uint64(3), np.uint64(9))) == list(range(n))
