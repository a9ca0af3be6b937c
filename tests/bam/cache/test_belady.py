"""Belady's optimum against trying everything."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest
from cache_support import POLICIES, host_cache, policy_name, reference_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.cache.belady import belady, belady_sets
from bam.cache.geometry import Geometry, geometry, set_of
from bam.cache.page_cache import NEVER, PolicyKind
from bam.cache.simulate import TraceCounts, next_uses, simulate


def as_trace(pages: list[int]) -> npt.NDArray[np.int64]:
    return np.array(pages, dtype=np.int64)


def fewest_misses(pages: list[int], n_lines: int) -> int:
    """Every choice of what to keep is tried."""

    @functools.cache
    def rest(position: int, cached: frozenset[int]) -> int:
        if position == len(pages):
            return 0
        page = pages[position]
        if page in cached:
            return rest(position + 1, cached)
        choices = [cached]
        if len(cached) < n_lines:
            choices.append(cached | {page})
        choices += [cached - {victim} | {page} for victim in cached]
        return 1 + min(rest(position + 1, choice) for choice in choices)

    return rest(0, frozenset())


@settings(max_examples=150, deadline=None, derandomize=True)
@given(pages=st.lists(st.integers(0, 6), max_size=18), n_lines=st.integers(1, 4))
def test_belady_is_the_optimum(pages: list[int], n_lines: int) -> None:
    counts = belady(as_trace(pages), n_lines)
    assert counts.misses == fewest_misses(pages, n_lines)
    assert counts.hits + counts.misses == len(pages)
    assert counts.bypasses <= counts.misses


@settings(max_examples=50, deadline=None, derandomize=True)
@given(pages=st.lists(st.integers(0, 12), max_size=24), ways=st.integers(1, 2))
def test_belady_of_sets_is_the_optimum_of_each(pages: list[int], ways: int) -> None:
    by_set = [[page for page in pages if set_of(page, 3) == set_id] for set_id in range(3)]
    counts = belady_sets(as_trace(pages), Geometry(3, ways))
    assert counts.misses == sum(fewest_misses(members, ways) for members in by_set)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(pages=st.lists(st.integers(0, 200), max_size=400), n_lines=st.sampled_from([1, 3, 32, 40, 101]))
def test_look_ahead_with_exact_next_uses_is_belady_of_sets(pages: list[int], n_lines: int) -> None:
    trace = as_trace(pages)
    cache = reference_cache(n_lines, PolicyKind.LOOK_AHEAD)
    assert simulate(cache, trace, next_uses(trace)) == belady_sets(trace, geometry(n_lines))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(pages=st.lists(st.integers(0, 60), max_size=400), n_lines=st.sampled_from([1, 3, 32, 40, 90]))
def test_with_frames_it_is_belady_of_the_whole_cache(pages: list[int], n_lines: int) -> None:
    """Where a miss looks at all sets, and no set is full."""
    trace = as_trace(pages)
    cache = reference_cache(n_lines, PolicyKind.LOOK_AHEAD_GLOBAL)
    assert simulate(cache, trace, next_uses(trace)) == belady(trace, n_lines)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(pages=st.lists(st.integers(0, 10), max_size=60))
def test_next_uses(pages: list[int]) -> None:
    expected = [
        next((later for later in range(at + 1, len(pages)) if pages[later] == page), NEVER)
        for at, page in enumerate(pages)
    ]
    uses = next_uses(as_trace(pages))
    assert uses.dtype == np.uint64
    assert uses.tolist() == expected


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
def test_no_policy_beats_belady_and_both_caches_count_alike(policy: PolicyKind) -> None:
    trace = np.random.default_rng(5).zipf(1.3, 4000) % 300
    optimum = belady(trace, 101).misses
    counts = simulate(host_cache(101, policy), trace, next_uses(trace))
    assert counts == simulate(reference_cache(101, policy), trace, next_uses(trace))
    assert counts.misses >= optimum


def test_counts_of_a_trace_done_by_hand() -> None:
    trace = as_trace([1, 2, 1, 3, 2, 1])
    # line: 1 is kept; 2 and 3 pass by
    assert belady(trace, 1) == TraceCounts(hits=2, misses=4, bypasses=3)
    assert belady(trace, 3) == TraceCounts(hits=3, misses=3, bypasses=0)
    assert belady(trace, 3).miss_rate == 0.5
    assert belady(as_trace([]), 3) == TraceCounts(0, 0, 0)
    assert TraceCounts(0, 0, 0).miss_rate == 0


def test_fewer_uses_than_accesses_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        simulate(reference_cache(4, PolicyKind.LOOK_AHEAD), as_trace([1, 2]), next_uses(as_trace([1])))
