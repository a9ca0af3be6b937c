"""Page memory that moves between sets, in plain Python. C++ twin: frames.h, which says why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bam.cache.geometry import OTHER_SETS, mix64
from bam.cache.page_cache import NEVER, LineState
from bam.cache.policies import CacheSet, Line


@dataclass(frozen=True)
class _Candidate:
    """A line whose page can be given up."""

    set_id: int
    line: Line
    use: int


class FramePool:
    """Decides which line a page gets, and whose memory.

    Parameters
    ----------
    sets : sequence of CacheSet
        Their lines' frames are changed.
    n_frames : int
    """

    def __init__(self, sets: Sequence[CacheSet], n_frames: int) -> None:
        self._sets, self._n_frames = sets, n_frames
        self._taken = self._draws = 0

    def find_way(self, cache_set: CacheSet, next_use: int) -> int | None:
        """Way of a line of the set that may be claimed and has a frame; None: do not cache the page."""
        way = self._unused_way(cache_set)
        if way is not None:
            if cache_set.lines[way].frame is None:
                cache_set.lines[way].frame = self._unused_frame()
            if cache_set.lines[way].frame is not None:
                return way
        victim = self._candidate(cache_set, other_sets=way is not None)
        if victim is None or next_use > victim.use:
            return None
        if victim.set_id == cache_set.set_id:
            return next(at for at, line in enumerate(cache_set.lines) if line is victim.line)
        assert way is not None
        cache_set.lines[way].frame = victim.line.frame
        victim.line.page_id, victim.line.state, victim.line.frame = 0, LineState.EMPTY, None
        return way

    def _unused_frame(self) -> int | None:
        if self._taken == self._n_frames:
            return None
        self._taken += 1
        return self._taken - 1

    @staticmethod
    def _unused_way(cache_set: CacheSet) -> int | None:
        """Of a line that holds no page, one with a frame if there is such."""
        ways = [way for way, line in enumerate(cache_set.lines) if line.evictable and not line.in_use]
        return next(
            (way for way in ways if cache_set.lines[way].frame is not None), ways[0] if ways else None
        )

    def _candidate(self, own: CacheSet, other_sets: bool) -> _Candidate | None:
        """The line that is needed last, of this set and a few others."""
        looked_at = [own]
        if other_sets:
            n_sets = len(self._sets)
            first = mix64(self._draws) * n_sets >> 64
            self._draws += 1
            others = [(first + step) % n_sets for step in range(min(OTHER_SETS, n_sets))]
            looked_at += [self._sets[other] for other in others if other != own.set_id]
        candidates = [
            _Candidate(each.set_id, line, line.meta if line.state is LineState.VALID else NEVER)
            for each in looked_at
            for line in each.lines
            if line.evictable and line.frame is not None
        ]
        return max(candidates, key=lambda candidate: candidate.use, default=None)  # of equals the first
