"""The page cache in plain Python: slow, complete, and the oracle the C++ one is held to, access by access."""

from __future__ import annotations

import operator
import threading

from bam.cache import forked
from bam.cache.frames import FramePool
from bam.cache.geometry import MAX_PINS, set_of
from bam.cache.memory import page_aligned_zeros
from bam.cache.page_cache import (
    NEVER,
    Acquired,
    ByteArray,
    LineState,
    Outcome,
    PageCache,
    PolicyKind,
)
from bam.cache.policies import CacheSet, Line, make_policy
from bam.cache.settings import CacheSettings, check_errno, checked_page_id, checked_use
from bam.errors import ClosedError, ConfigError

_BYPASS = Acquired(Outcome.BYPASS, None)


class ReferenceCache(PageCache):
    """Page cache of :mod:`bam.cache.policies`; one lock, so safe and slow with several threads.

    Parameters
    ----------
    n_lines, page_bytes, policy, seed
        As in :class:`bam.cache.settings.CacheSettings`.

    Attributes
    ----------
    sets : list of CacheSet
        The whole state. For tests and for reading along; not synchronised.

    Raises
    ------
    ConfigError
    """

    def __init__(
        self, n_lines: int, page_bytes: int, policy: PolicyKind = PolicyKind.CLOCK, seed: int = 0
    ) -> None:
        settings = CacheSettings(n_lines, page_bytes, policy, seed)
        shape = settings.geometry
        self.n_sets, self.ways = shape.n_sets, shape.ways
        self.page_bytes = page_bytes
        self.policy = settings.policy
        self.state_bytes = shape.state_bytes
        self.n_pages = shape.n_pages
        self.sets = [CacheSet(set_id, [Line() for _ in range(self.ways)]) for set_id in range(self.n_sets)]
        self._frames = None if shape.n_frames is None else FramePool(self.sets, shape.n_frames)
        if self._frames is None:
            for frame, line in enumerate(line for cache_set in self.sets for line in cache_set.lines):
                line.frame = frame
        self._policy = make_policy(settings.policy, seed)
        # Re-entrant: garbage collection in the middle of a call may drop a Pin, which then unpins from here.
        self._lock = threading.RLock()
        self._name = "page cache"
        self._memory: ByteArray | None = page_aligned_zeros(shape.n_pages * page_bytes)
        forked.close_in_child(self)

    def acquire(self, page_id: int, next_use: int = NEVER) -> Acquired:
        self._check_open()
        page_id, next_use = checked_page_id(page_id), checked_use("next_use", next_use)
        cache_set = self.sets[set_of(page_id, self.n_sets)]
        with self._lock:
            for way, line in enumerate(cache_set.lines):
                if line.in_use and line.page_id == page_id:
                    return self._pin(cache_set, way, next_use)
            return self._claim(cache_set, page_id, next_use)

    def publish(self, line_id: int) -> None:
        with self._lock:
            self._reading_line(line_id).state = LineState.VALID

    def fail(self, line_id: int, errno: int) -> None:
        check_errno(errno)
        with self._lock:
            line = self._reading_line(line_id)
            line.state, line.meta = LineState.FAILED, errno

    def unpin(self, line_id: int) -> None:
        with self._lock:
            line = self._line(line_id)
            if line.pins == 0:
                raise ConfigError("line_id", line_id, "a line on which a pin is held")
            line.pins -= 1

    def touch(self, set_id: int, way: int, next_use: int) -> None:
        """A further request for the page of a line the caller has pinned, as the native gather makes them."""
        with self._lock:
            self._policy.on_hit(self.sets[set_id].lines[way], next_use)

    def note_use(self, page_id: int, next_use: int) -> None:
        self._check_open()
        page_id, next_use = checked_page_id(page_id), checked_use("next_use", next_use)
        if not self.policy.orders_by_use:
            return
        with self._lock:
            for line in self.sets[set_of(page_id, self.n_sets)].lines:
                if line.state is LineState.VALID and line.page_id == page_id:
                    line.meta = min(line.meta, next_use)

    def forget_uses(self, horizon: int, instead: int) -> None:
        self._check_open()
        horizon, instead = checked_use("horizon", horizon), checked_use("instead", instead)
        if not self.policy.orders_by_use:
            return
        with self._lock:
            for line in (line for cache_set in self.sets for line in cache_set.lines):
                if line.state is LineState.VALID and line.meta < horizon:
                    line.meta = instead

    def state(self, line_id: int) -> LineState:
        return self._line(line_id).state

    def failure(self, line_id: int) -> int:
        with self._lock:
            line = self._line(line_id)
            if line.state is not LineState.FAILED:
                raise ConfigError("line_id", line_id, "a line whose read failed")
            return line.meta

    def pins(self, line_id: int) -> int:
        return self._line(line_id).pins

    def line(self, line_id: int) -> ByteArray:
        frame = self._line(line_id).frame
        memory = self._check_open()
        if frame is None:
            raise ConfigError("line_id", line_id, "a line that holds a page")
        return memory[frame * self.page_bytes :][: self.page_bytes]

    def close(self) -> None:
        self._memory = None

    def close_in_child(self) -> None:
        """Called in a forked child, where the lock may be held by a thread that is not there."""
        self._name = "page cache of the parent process"
        self.close()

    def _pin(self, cache_set: CacheSet, way: int, next_use: int) -> Acquired:
        line = cache_set.lines[way]
        if line.pins == MAX_PINS:
            return _BYPASS
        line.pins += 1
        line_id = cache_set.set_id * self.ways + way
        if line.state is LineState.READING:
            return Acquired(Outcome.JOINED, line_id)
        self._policy.on_hit(line, next_use)
        return Acquired(Outcome.HIT, line_id)

    def _claim(self, cache_set: CacheSet, page_id: int, next_use: int) -> Acquired:
        way = self._find_way(cache_set, next_use)
        if way is None:
            return _BYPASS
        meta = self._policy.claimed_meta(cache_set, next_use)
        cache_set.lines[way] = Line(page_id, 1, LineState.READING, meta, cache_set.lines[way].frame)
        return Acquired(Outcome.CLAIMED, cache_set.set_id * self.ways + way)

    def _find_way(self, cache_set: CacheSet, next_use: int) -> int | None:
        if self._frames is not None:
            return self._frames.find_way(cache_set, next_use)
        unused = (way for way, line in enumerate(cache_set.lines) if line.evictable and not line.in_use)
        way = next(unused, None)
        return self._policy.victim(cache_set, next_use) if way is None else way

    def _check_open(self) -> ByteArray:
        memory = self._memory
        if memory is None:
            raise ClosedError(self._name)
        return memory

    def _line(self, line_id: int) -> Line:
        self._check_open()
        line_id = operator.index(line_id)
        if not 0 <= line_id < self.n_lines:
            raise ConfigError("line_id", line_id, f"a line from 0 to {self.n_lines - 1}")
        set_id, way = divmod(line_id, self.ways)
        return self.sets[set_id].lines[way]

    def _reading_line(self, line_id: int) -> Line:
        line = self._line(line_id)
        if line.state is not LineState.READING:
            raise ConfigError("line_id", line_id, "a line that is being read")
        return line
