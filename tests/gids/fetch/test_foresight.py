"""Foresight: what is known how early, the settings, and a cache that does with it as with a longer window."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bam
from bam.array.sources import MemorySource
from bam.errors import ConfigError
from bam.native import available
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.foresight import Foreseen, Foresight, ForesightDepth, parse_foresight
from gids.fetch.output_pool import OutputPool
from gids.fetch.table import StoredTable
from gids.fetch.window import once_each


def test_settings() -> None:
    assert parse_foresight(3, 10) == ForesightDepth(3)
    assert parse_foresight("auto", 10) == ForesightDepth(64, 40)
    for wrong in (-1, 65, True, "8", 1.5):
        with pytest.raises(ConfigError, match="foresight"):
            parse_foresight(wrong, 10)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.integers(0, 5),
    st.none() | st.integers(0, 30),
    st.integers(1, 9),
)
def test_each_mini_batch_is_known_once_in_order_and_in_time(
    sizes: list[int], deepest: int, max_pages: int | None, pace: int
) -> None:
    def locate(batch: Any) -> Foreseen:
        return Foreseen({}, {"a": np.arange(batch)})

    depth = ForesightDepth(deepest, max_pages)
    foresight = Foresight(iter(sizes), depth, pace)  # type: ignore[arg-type]
    known: list[int] = []
    for number in range(len(sizes)):
        found = foresight.next(locate)
        assert len(found) <= pace
        known += [each.n_pages for each in found]
        assert known == sizes[: len(known)]
        ahead = sizes[number + 1 : len(known)]
        assert len(known) > number
        assert len(ahead) <= deepest
        if len(known) < len(sizes) and len(ahead) < deepest and len(found) < pace:
            assert max_pages is not None
            assert sum(ahead) >= max_pages
    assert foresight.next(locate) == []


@given(st.lists(st.integers(0, 5)))
def test_once_each(pages: list[int]) -> None:
    ascending = np.sort(np.array(pages, np.int64))
    assert once_each(ascending).tolist() == sorted(set(pages))


@pytest.mark.skipif(not available(), reason="the native library was not built")
@pytest.mark.parametrize("row_bytes", [512, 700])
def test_the_cache_does_as_with_a_longer_window(row_bytes: int) -> None:
    """Window 1 with a foresight of 5 reads what window 6 does, and less than window 1."""
    random = np.random.default_rng(row_bytes)
    batches: list[Any] = [
        SimpleNamespace(nodes={"a": np.unique(random.integers(0, 300, 60))}) for _ in range(40)
    ]
    counts = [_pages_read(batches, row_bytes, *each) for each in ((1, 5), (6, 0), (1, 0))]
    assert counts[0] == counts[1] < counts[2]


def _pages_read(batches: list[Any], row_bytes: int, window: int, foresight: int) -> int:
    cache = bam.SharedCache("100 lines", page_bytes=512, policy="look_ahead_global")
    array = bam.open_array(MemorySource(np.zeros((300, row_bytes), np.int8)), cache=cache, page_bytes=512)
    store = FeatureStore({"a": StoredTable("a", array)})
    fetcher = Fetcher(store, OutputPool())
    if foresight:
        fetcher.look_beyond(Foresight(iter(batches), ForesightDepth(foresight), 64))
    waiting = list(batches)
    while waiting or len(fetcher):
        while waiting and fetcher.wants_more(window):
            fetcher.announce(fetcher.plan(waiting.pop(0)))
        fetcher.fetch()
    pages = store.tables["a"].counts().pages_read
    fetcher.close()
    store.close()
    cache.close()
    return pages
