"""Eviction policies in plain Python, one class each. C++ twin: policy.h, held to these access by access.

Each policy keeps one number a line (`meta`) and one a set (`hand`), as the C++ ones do. A policy decides only
among lines that hold pages: unused lines are taken before it is asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from bam.cache.geometry import mix64
from bam.cache.page_cache import LineState, PolicyKind

#: SIEVE's largest insertion number (`kLastInsertion`): the hand, 32 bits, can still point behind it.
LAST_INSERTION = 2**32 - 2

_GOLDEN_RATIO = 0x9E3779B97F4A7C15
_MASK32 = 2**32 - 1
_MASK64 = 2**64 - 1


@dataclass
class Line:
    """One line. `meta` belongs to the policy; in a FAILED line it is the errno.

    `frame` says which memory the page is in; None: the line has none and holds no page.
    """

    page_id: int = 0
    pins: int = 0
    state: LineState = LineState.EMPTY
    meta: int = 0
    frame: int | None = None

    @property
    def in_use(self) -> bool:
        """Whether the line holds a page, or is about to."""
        return self.state in (LineState.READING, LineState.VALID)

    @property
    def evictable(self) -> bool:
        """Whether the line may be given to another page."""
        return self.pins == 0 and self.state is not LineState.READING


@dataclass
class CacheSet:
    """One set: what a policy sees."""

    set_id: int
    lines: list[Line]
    hand: int = 0


class EvictionPolicy(ABC):
    """Which line of a set to give up."""

    kind: ClassVar[PolicyKind]

    @abstractmethod
    def on_hit(self, line: Line, next_use: int) -> None:
        """A look-up found the page in `line`."""

    @abstractmethod
    def victim(self, cache_set: CacheSet, next_use: int) -> int | None:
        """Way to give up for a page that is used next at `next_use`; None: do not cache that page."""

    @abstractmethod
    def claimed_meta(self, cache_set: CacheSet, next_use: int) -> int:
        """`meta` of the line the page gets. Called before the line changes hands."""


class RandomPolicy(EvictionPolicy):
    """The first evictable line from a way drawn by (seed, set, number of evictions so far in the set)."""

    kind = PolicyKind.RANDOM

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def on_hit(self, line: Line, next_use: int) -> None:
        """Hits do not matter."""

    def victim(self, cache_set: CacheSet, next_use: int) -> int | None:
        set_key = mix64(self._seed ^ cache_set.set_id * _GOLDEN_RATIO & _MASK64)
        ways = len(cache_set.lines)
        start = mix64(set_key + cache_set.hand & _MASK64) % ways
        for step in range(ways):
            way = (start + step) % ways
            if cache_set.lines[way].evictable:
                cache_set.hand = cache_set.hand + 1 & _MASK32
                return way
        return None

    def claimed_meta(self, cache_set: CacheSet, next_use: int) -> int:
        return 0


class ClockPolicy(EvictionPolicy):
    """`meta` is a referenced bit. The hand walks the ways, clears bits, and takes the first clear line."""

    kind = PolicyKind.CLOCK

    def on_hit(self, line: Line, next_use: int) -> None:
        line.meta = 1

    def victim(self, cache_set: CacheSet, next_use: int) -> int | None:
        ways = len(cache_set.lines)
        for _ in range(2 * ways):  # two turns: the first may only clear bits
            way = cache_set.hand
            cache_set.hand = (way + 1) % ways
            line = cache_set.lines[way]
            if not line.evictable:
                continue
            if line.meta == 0:
                return way
            line.meta = 0
        return None

    def claimed_meta(self, cache_set: CacheSet, next_use: int) -> int:
        return 0


class SievePolicy(EvictionPolicy):
    """SIEVE (Zhang et al., NSDI 2024). `meta` is ``insertion number * 2 + visited``.

    The hand walks from the oldest to the newest insertion, clears visited bits, takes the first clear line
    and stays behind it; past the newest it starts at the oldest again. `hand` is the smallest number it has
    not passed.
    """

    kind = PolicyKind.SIEVE

    def on_hit(self, line: Line, next_use: int) -> None:
        line.meta |= 1

    def victim(self, cache_set: CacheSet, next_use: int) -> int | None:
        queue = self._by_insertion(cache_set)
        lines = cache_set.lines
        ahead = [way for way in queue if lines[way].meta >> 1 >= cache_set.hand]
        # From the hand to the newest, then twice round: the first turn may only clear bits.
        for way in ahead + queue + queue:
            line = lines[way]
            if not line.evictable:
                continue
            if line.meta & 1 == 0:
                # The page that replaces the newest must not be the next victim: it has only just come.
                cache_set.hand = 0 if way == queue[-1] else (line.meta >> 1) + 1
                return way
            line.meta -= 1
        return None

    def claimed_meta(self, cache_set: CacheSet, next_use: int) -> int:
        newest = max((line.meta >> 1 for line in cache_set.lines if line.in_use), default=0)
        if newest >= LAST_INSERTION:
            newest = self._renumber(cache_set)
        return newest + 1 << 1

    @staticmethod
    def _by_insertion(cache_set: CacheSet) -> list[int]:
        in_use = [way for way, line in enumerate(cache_set.lines) if line.in_use]
        return sorted(in_use, key=lambda way: cache_set.lines[way].meta >> 1)

    def _renumber(self, cache_set: CacheSet) -> int:
        """Numbers the lines 1, 2, ... in the order they have, moves the hand along, returns how many."""
        old_hand, cache_set.hand = cache_set.hand, 0
        queue = self._by_insertion(cache_set)
        for rank, way in enumerate(queue, start=1):
            line = cache_set.lines[way]
            if line.meta >> 1 < old_hand:
                cache_set.hand = rank + 1
            line.meta = rank << 1 | line.meta & 1
        return len(queue)


class LookAheadPolicy(EvictionPolicy):
    """`meta` is the page's next use. The farthest goes; a page used later than all of them is not cached."""

    kind = PolicyKind.LOOK_AHEAD

    def on_hit(self, line: Line, next_use: int) -> None:
        line.meta = next_use

    def victim(self, cache_set: CacheSet, next_use: int) -> int | None:
        evictable = [way for way, line in enumerate(cache_set.lines) if line.evictable]
        if not evictable:
            return None
        farthest = max(evictable, key=lambda way: cache_set.lines[way].meta)  # of equals the first
        return None if next_use > cache_set.lines[farthest].meta else farthest

    def claimed_meta(self, cache_set: CacheSet, next_use: int) -> int:
        return next_use


class GlobalLookAheadPolicy(LookAheadPolicy):
    """The same, and :mod:`bam.cache.frames` extends the choice to other sets where there are any."""

    kind = PolicyKind.LOOK_AHEAD_GLOBAL


def make_policy(kind: PolicyKind, seed: int = 0) -> EvictionPolicy:
    """The policy of that kind."""
    if kind is PolicyKind.RANDOM:
        return RandomPolicy(seed)
    plain: dict[PolicyKind, type[EvictionPolicy]] = {
        policy.kind: policy for policy in (ClockPolicy, SievePolicy, LookAheadPolicy, GlobalLookAheadPolicy)
    }
    return plain[kind]()
