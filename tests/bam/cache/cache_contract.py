"""What every page cache must do, whatever it is made of. Subclass and say how to make one."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from cache_support import PAGE_BYTES, POLICIES, policy_name, set_pins, whole_state

from bam.cache.geometry import MAX_PAGE_ID, MAX_PINS, MAX_WAYS, geometry, geometry_with_frames, set_of
from bam.cache.host import HostCache
from bam.cache.page_cache import NEVER, LineState, Outcome, PolicyKind
from bam.cache.reference import ReferenceCache
from bam.errors import ClosedError, ConfigError

Cache = HostCache | ReferenceCache


def claim(cache: Cache, page_id: int, next_use: int = 0) -> int:
    """Line claimed for a page that is not there."""
    acquired = cache.acquire(page_id, next_use)
    assert acquired.outcome is Outcome.CLAIMED
    assert acquired.line_id is not None
    return acquired.line_id


def insert(cache: Cache, page_id: int, next_use: int = 0) -> int:
    """Line that now holds the page, unpinned."""
    line_id = claim(cache, page_id, next_use)
    cache.publish(line_id)
    cache.unpin(line_id)
    return line_id


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
class CacheContract:
    def make(self, n_lines: int, policy: PolicyKind, seed: int = 0) -> Cache:
        raise AssertionError("subclasses say which cache")

    def test_a_miss_is_claimed_then_hit(self, policy: PolicyKind) -> None:
        cache = self.make(8, policy)
        line_id = claim(cache, 5)
        assert (cache.state(line_id), cache.pins(line_id)) == (LineState.READING, 1)
        cache.line(line_id)[:] = 7
        cache.publish(line_id)
        assert cache.state(line_id) is LineState.VALID
        cache.unpin(line_id)
        again = cache.acquire(5)
        assert (again.outcome, again.line_id) == (Outcome.HIT, line_id)
        assert cache.pins(line_id) == 1
        np.testing.assert_array_equal(cache.line(line_id), np.full(PAGE_BYTES, 7, np.uint8))

    def test_a_page_being_read_is_joined(self, policy: PolicyKind) -> None:
        cache = self.make(8, policy)
        line_id = claim(cache, 5)
        joined = cache.acquire(5)
        assert (joined.outcome, joined.line_id) == (Outcome.JOINED, line_id)
        assert cache.pins(line_id) == 2
        cache.unpin(line_id)
        cache.publish(line_id)
        assert (cache.state(line_id), cache.pins(line_id)) == (LineState.VALID, 1)

    def test_a_failed_read_reaches_those_who_joined_and_nobody_later(self, policy: PolicyKind) -> None:
        cache = self.make(1, policy)
        line_id = claim(cache, 5)
        cache.acquire(5)
        cache.fail(line_id, errno.EIO)
        cache.unpin(line_id)
        assert cache.state(line_id) is LineState.FAILED
        assert cache.failure(line_id) == errno.EIO
        assert cache.acquire(5).outcome is Outcome.BYPASS  # who joined still holds the only line
        cache.unpin(line_id)
        assert claim(cache, 5) == line_id
        cache.publish(line_id)
        assert cache.state(line_id) is LineState.VALID

    def test_a_line_that_failed_is_used_first(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        lines = [claim(cache, page_id) for page_id in range(4)]
        for line_id in lines:
            if line_id == lines[2]:
                cache.fail(line_id, errno.EIO)
            else:
                cache.publish(line_id)
            cache.unpin(line_id)
        assert claim(cache, 9, NEVER) == lines[2]

    def test_pinned_lines_are_never_taken(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        lines = [claim(cache, page_id) for page_id in range(4)]
        for line_id in lines:
            cache.publish(line_id)
        before = whole_state(cache).words
        assert cache.acquire(9).outcome is Outcome.BYPASS
        assert cache.acquire(9).line_id is None
        assert whole_state(cache).words == before
        cache.unpin(lines[1])
        assert claim(cache, 9) == lines[1]

    def test_lines_being_read_are_never_taken(self, policy: PolicyKind) -> None:
        cache = self.make(2, policy)
        reading, valid = claim(cache, 0), claim(cache, 1)
        cache.publish(valid)
        cache.unpin(valid)
        assert claim(cache, 2) == valid
        assert cache.acquire(3).outcome is Outcome.BYPASS
        assert cache.acquire(0).line_id == reading

    def test_one_line(self, policy: PolicyKind) -> None:
        cache = self.make(1, policy)
        assert (cache.n_sets, cache.ways, cache.n_lines) == (1, 1, 1)
        for page_id in (0, 1, 0, MAX_PAGE_ID):
            assert insert(cache, page_id) == 0
            assert cache.acquire(page_id).outcome is Outcome.HIT
            cache.unpin(0)

    def test_page_ids_of_42_bits(self, policy: PolicyKind) -> None:
        cache = self.make(64, policy)
        pages = [0, 1, 2**21, 2**32 - 1, 2**32, 2**41, MAX_PAGE_ID - 1, MAX_PAGE_ID]
        lines = {page_id: insert(cache, page_id) for page_id in pages}
        assert len(set(lines.values())) == len(pages)
        for page_id, line_id in lines.items():
            acquired = cache.acquire(page_id)
            assert (acquired.outcome, acquired.line_id) == (Outcome.HIT, line_id)

    def test_a_page_stays_in_its_set(self, policy: PolicyKind) -> None:
        cache = self.make(101, policy)
        frames = policy is PolicyKind.LOOK_AHEAD_GLOBAL
        assert (cache.n_sets, cache.ways, cache.n_pages) == ((5, 32, 101) if frames else (4, 25, 100))
        for page_id in range(300):
            assert insert(cache, page_id) // cache.ways == set_of(page_id, cache.n_sets)

    def test_numpy_integers_are_numbers(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        acquired = cache.acquire(np.int64(3), np.uint64(9))
        assert cache.acquire(3).line_id == acquired.line_id

    @pytest.mark.parametrize("page_id", [-1, MAX_PAGE_ID + 1])
    def test_no_such_page(self, policy: PolicyKind, page_id: int) -> None:
        with pytest.raises(ConfigError, match="page_id"):
            self.make(4, policy).acquire(page_id)
        with pytest.raises(ConfigError, match="page_id"):
            self.make(4, policy).note_use(page_id, 0)

    @pytest.mark.parametrize("next_use", [-1, 2**64])
    def test_no_such_use(self, policy: PolicyKind, next_use: int) -> None:
        with pytest.raises(ConfigError, match="next_use"):
            self.make(4, policy).acquire(0, next_use)
        with pytest.raises(ConfigError, match="next_use"):
            self.make(4, policy).note_use(0, next_use)
        with pytest.raises(ConfigError, match="horizon"):
            self.make(4, policy).forget_uses(next_use, 0)
        with pytest.raises(ConfigError, match="instead"):
            self.make(4, policy).forget_uses(0, next_use)

    @pytest.mark.parametrize("line_id", [-1, 4, 2**40])
    def test_no_such_line(self, policy: PolicyKind, line_id: int) -> None:
        cache = self.make(4, policy)
        for call in (cache.publish, cache.unpin, cache.state, cache.pins, cache.line, cache.failure):
            with pytest.raises(ConfigError, match="line_id"):
                call(line_id)
        with pytest.raises(ConfigError, match="line_id"):
            cache.fail(line_id, errno.EIO)

    def test_calls_the_caller_is_not_entitled_to(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        line_id = insert(cache, 3)
        before = whole_state(cache)
        with pytest.raises(ConfigError, match="being read"):
            cache.publish(line_id)
        with pytest.raises(ConfigError, match="being read"):
            cache.fail(line_id, errno.EIO)
        with pytest.raises(ConfigError, match="pin is held"):
            cache.unpin(line_id)
        with pytest.raises(ConfigError, match="read failed"):
            cache.failure(line_id)
        with pytest.raises(ConfigError, match="errno"):
            cache.fail(claim(self.make(1, policy), 0), 0)
        assert whole_state(cache) == before

    def test_a_full_pin_counter_does_not_overflow(self, policy: PolicyKind) -> None:
        cache = self.make(2, policy)
        line_id = insert(cache, MAX_PAGE_ID)
        set_pins(cache, line_id, MAX_PINS - 1)
        assert cache.acquire(MAX_PAGE_ID).outcome is Outcome.HIT
        assert cache.pins(line_id) == MAX_PINS == 1_048_575
        before = whole_state(cache)
        assert cache.acquire(MAX_PAGE_ID).outcome is Outcome.BYPASS
        assert whole_state(cache) == before
        cache.unpin(line_id)
        assert cache.acquire(MAX_PAGE_ID).outcome is Outcome.HIT
        assert cache.acquire(MAX_PAGE_ID - 1).outcome is Outcome.CLAIMED

    def test_a_page_being_read_with_a_full_pin_counter(self, policy: PolicyKind) -> None:
        cache = self.make(2, policy)
        line_id = claim(cache, 1)
        set_pins(cache, line_id, MAX_PINS)
        assert cache.acquire(1).outcome is Outcome.BYPASS
        cache.publish(line_id)
        assert (cache.state(line_id), cache.pins(line_id)) == (LineState.VALID, MAX_PINS)

    @pytest.mark.parametrize("n_lines", [1, 2, 31, 32, 33, 101, 1000])
    def test_state_is_at_most_24_bytes_a_line(self, policy: PolicyKind, n_lines: int) -> None:
        cache = self.make(n_lines, policy)
        if policy is PolicyKind.LOOK_AHEAD_GLOBAL and n_lines > MAX_WAYS:
            assert cache.n_pages == n_lines
            assert cache.state_bytes == geometry_with_frames(n_lines).state_bytes
            assert n_lines < 1000 or cache.state_bytes <= 28 * n_lines
            return
        assert cache.state_bytes == 16 * cache.n_lines + 8 * cache.n_sets
        assert cache.state_bytes <= 24 * cache.n_lines
        assert cache.n_lines == geometry(n_lines).n_lines

    def test_lines_do_not_overlap_and_start_at_page_boundaries(self, policy: PolicyKind) -> None:
        cache = self.make(101, policy)
        lines = {insert(cache, page_id) for page_id in range(400)}
        assert len(lines) <= cache.n_lines
        lines = {line_id for line_id in lines if cache.state(line_id) is LineState.VALID}
        assert len(lines) == cache.n_pages
        for line_id in lines:
            cache.line(line_id)[:] = line_id
        for line_id in lines:
            line = cache.line(line_id)
            assert line.shape == (PAGE_BYTES,)
            assert line.dtype == np.uint8
            assert line.ctypes.data % PAGE_BYTES == 0
            assert (line == line_id).all()

    def test_uses_noted_and_forgotten(self, policy: PolicyKind) -> None:
        """The look-ahead policy gives up page 1 first and, told that it is needed soon, page 0."""
        cache = self.make(3, policy)
        lines = [insert(cache, page_id, next_use) for page_id, next_use in enumerate((50, 90, 10))]
        before = whole_state(cache)
        cache.note_use(1, 20)
        cache.note_use(1, 60)  # later than what is known
        cache.note_use(77, 0)  # not there
        if not policy.orders_by_use:
            assert whole_state(cache) == before
            return
        assert whole_state(cache).metas == [50, 20, 10]
        cache.forget_uses(horizon=20, instead=NEVER)
        assert whole_state(cache).metas == [50, 20, NEVER]
        assert claim(cache, 5, 0) == lines[2]
        cache.fail(lines[2], errno.EIO)
        cache.forget_uses(horizon=NEVER, instead=1)
        assert whole_state(cache).metas == [1, 1, errno.EIO]
        assert cache.failure(lines[2]) == errno.EIO

    def test_a_page_being_read_has_no_use_to_note(self, policy: PolicyKind) -> None:
        cache = self.make(1, policy)
        claim(cache, 5, 40)
        before = whole_state(cache)
        cache.note_use(5, 30)
        cache.forget_uses(NEVER, 0)
        assert whole_state(cache) == before

    def test_a_closed_cache_says_so(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        line_id = claim(cache, 3)
        view = cache.line(line_id)
        cache.close()
        cache.close()
        of_line = [cache.publish, cache.unpin, cache.state, cache.pins, cache.line, cache.failure]
        for call in [*of_line, cache.acquire]:
            with pytest.raises(ClosedError, match="page cache"):
                call(line_id)
        for call in (cache.fail, cache.note_use, cache.forget_uses):
            with pytest.raises(ClosedError):
                call(line_id, errno.EIO)
        view[:] = 1  # memory goes with the last array over it
        assert view.sum() == PAGE_BYTES

    def test_a_forked_child_finds_the_cache_closed(self, policy: PolicyKind) -> None:
        cache = self.make(4, policy)
        line_id = insert(cache, 3)
        cache.line(line_id)[:] = 9
        child = os.fork()
        if child == 0:
            status = 1
            try:
                cache.acquire(3)
            except ClosedError as error:
                status = 0 if "parent process" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert cache.acquire(3).outcome is Outcome.HIT
        assert (cache.line(line_id) == 9).all()
