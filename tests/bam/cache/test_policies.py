"""The plain policies against descriptions that share no code with them."""

from __future__ import annotations

import numpy as np
import pytest
from cache_support import PAGE_BYTES
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.cache.page_cache import NEVER, LineState, Outcome, PolicyKind
from bam.cache.policies import CacheSet, Line, RandomPolicy, make_policy
from bam.cache.reference import ReferenceCache
from bam.cache.simulate import next_uses

traces = st.lists(st.integers(0, 15), max_size=120)


def hits_of(policy: PolicyKind, pages: list[int], n_lines: int) -> list[bool]:
    """Which accesses hit in a cache of one set."""
    cache = ReferenceCache(n_lines, PAGE_BYTES, policy)
    assert cache.n_sets == 1
    uses = next_uses(np.array(pages, dtype=np.int64)).tolist()
    hits = []
    for page_id, use in zip(pages, uses, strict=True):
        acquired = cache.acquire(page_id, use)
        hits.append(acquired.outcome is Outcome.HIT)
        if acquired.line_id is not None:
            if acquired.outcome is Outcome.CLAIMED:
                cache.publish(acquired.line_id)
            cache.unpin(acquired.line_id)
    return hits


def sieve_from_the_paper(pages: list[int], n_lines: int) -> list[bool]:
    """SIEVE as a queue, oldest first; the hand is a page of it, or None for the oldest."""
    queue: list[int] = []
    visited: dict[int, bool] = {}
    hand: int | None = None
    hits = []
    for page in pages:
        hits.append(page in visited)
        if page in visited:
            visited[page] = True
            continue
        if len(queue) == n_lines:
            at = 0 if hand is None else queue.index(hand)
            while visited[queue[at]]:
                visited[queue[at]] = False
                at = (at + 1) % n_lines
            hand = queue[at + 1] if at + 1 < n_lines else None
            del visited[queue.pop(at)]
        queue.append(page)
        visited[page] = False
    return hits


def second_chance_queue(pages: list[int], n_lines: int) -> list[bool]:
    """CLOCK as a queue: the oldest goes, or loses its mark and moves to the end."""
    queue: list[int] = []
    marked: set[int] = set()
    hits = []
    for page in pages:
        hits.append(page in queue)
        if page in queue:
            marked.add(page)
            continue
        if len(queue) == n_lines:
            while queue[0] in marked:
                marked.remove(queue[0])
                queue.append(queue.pop(0))
            queue.pop(0)
        queue.append(page)
    return hits


@settings(max_examples=150, deadline=None, derandomize=True)
@given(pages=traces, n_lines=st.integers(1, 8))
def test_sieve_is_the_papers(pages: list[int], n_lines: int) -> None:
    assert hits_of(PolicyKind.SIEVE, pages, n_lines) == sieve_from_the_paper(pages, n_lines)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(pages=traces, n_lines=st.integers(1, 8))
def test_clock_is_a_second_chance_queue(pages: list[int], n_lines: int) -> None:
    assert hits_of(PolicyKind.CLOCK, pages, n_lines) == second_chance_queue(pages, n_lines)


def valid_set(n_lines: int, set_id: int = 0) -> CacheSet:
    return CacheSet(set_id, [Line(page_id=way, state=LineState.VALID) for way in range(n_lines)])


def test_random_takes_every_way_about_equally_often() -> None:
    policy, cache_set = RandomPolicy(seed=3), valid_set(8)
    taken = [policy.victim(cache_set, 0) for _ in range(8000)]
    counts = np.bincount(np.array(taken, dtype=np.int64), minlength=8)
    # 1000 each; standard deviation 30
    assert counts.min() > 850
    assert counts.max() < 1150


def test_random_differs_between_sets_and_seeds_and_repeats_with_neither() -> None:
    def sequence(seed: int, set_id: int) -> list[int | None]:
        policy, cache_set = RandomPolicy(seed), valid_set(16, set_id)
        return [policy.victim(cache_set, 0) for _ in range(50)]

    assert sequence(1, 1) == sequence(1, 1)
    assert len({tuple(sequence(seed, set_id)) for seed in range(3) for set_id in range(3)}) == 9


def test_look_ahead_keeps_what_is_used_soonest() -> None:
    policy, cache_set = make_policy(PolicyKind.LOOK_AHEAD), valid_set(4)
    for line, use in zip(cache_set.lines, (5, 90, 20, 90), strict=True):
        line.meta = use
    assert policy.victim(cache_set, 30) == 1  # of equals the first
    assert policy.victim(cache_set, 90) == 1  # no worse than the worst: cached
    assert policy.victim(cache_set, 91) is None  # worse than all: not cached
    cache_set.lines[1].pins = cache_set.lines[3].pins = 1
    assert policy.victim(cache_set, 19) == 2
    assert policy.victim(cache_set, 21) is None
    policy.on_hit(cache_set.lines[2], 3)
    assert policy.victim(cache_set, 4) == 0
    assert policy.claimed_meta(cache_set, NEVER) == NEVER


@pytest.mark.parametrize("kind", list(PolicyKind))
def test_nothing_to_give_up(kind: PolicyKind) -> None:
    cache_set = valid_set(4)
    for line in cache_set.lines:
        line.pins = 1
    assert make_policy(kind).victim(cache_set, 0) is None
    assert make_policy(kind).kind is kind
