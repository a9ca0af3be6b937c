"""Where a page may live; the same in Python and C++."""

from __future__ import annotations

import numpy as np
import pytest
from cache_support import host_cache
from hypothesis import given
from hypothesis import strategies as st

from bam.cache.geometry import MAX_LINES, MAX_PAGE_ID, MAX_WAYS, Geometry, geometry, mix64, set_of, sets_of
from bam.cache.page_cache import PolicyKind
from bam.errors import ConfigError


@pytest.mark.parametrize(
    ("n_lines", "expected"),
    [
        (1, Geometry(1, 1)),
        (32, Geometry(1, 32)),
        (33, Geometry(2, 16)),
        (64, Geometry(2, 32)),
        (101, Geometry(4, 25)),
        (2**20, Geometry(2**15, 32)),
    ],
)
def test_sets_and_ways(n_lines: int, expected: Geometry) -> None:
    assert geometry(n_lines) == expected


@given(st.integers(1, MAX_LINES))
def test_few_lines_are_lost_and_sets_are_not_too_large(n_lines: int) -> None:
    shape = geometry(n_lines)
    assert 1 <= shape.ways <= MAX_WAYS
    assert 0 <= n_lines - shape.n_lines < shape.n_sets
    assert shape.state_bytes <= 24 * shape.n_lines


def test_the_host_cache_has_the_same_shape() -> None:
    for n_lines in [*range(1, 200), 1000, 4097]:
        cache = host_cache(n_lines, PolicyKind.CLOCK)
        assert Geometry(cache.n_sets, cache.ways) == geometry(n_lines)
        assert cache.state_bytes == geometry(n_lines).state_bytes
        cache.close()


@pytest.mark.parametrize("n_lines", [0, -1, MAX_LINES + 1])
def test_no_such_number_of_lines(n_lines: int) -> None:
    with pytest.raises(ConfigError, match="n_lines"):
        geometry(n_lines)


def test_mix64_is_splitmix64() -> None:
    """First three numbers of that generator from seed 0, in the authors' program."""
    step = 0x9E3779B97F4A7C15
    drawn = [mix64(step * count % 2**64) for count in (1, 2, 3)]
    assert drawn == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.lists(st.integers(0, MAX_PAGE_ID), max_size=20), st.integers(1, 10**6))
def test_sets_of_many_pages(pages: list[int], n_sets: int) -> None:
    of_many = sets_of(np.array(pages, dtype=np.int64), n_sets)
    assert of_many.dtype == np.int64
    assert of_many.tolist() == [set_of(page_id, n_sets) for page_id in pages]


def test_neighbouring_pages_spread_over_the_sets() -> None:
    counts = np.bincount(sets_of(np.arange(64_000), 1000), minlength=1000)
    # 64 each; standard deviation 8
    assert counts.min() > 64 - 5 * 8
    assert counts.max() < 64 + 5 * 8
