"""Pins: whatever happens to the handle, the line comes free; and only the reader that failed hears of it."""

from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cache_support import PAGE_BYTES, host_cache, reference_cache

from bam.cache.host import HostCache
from bam.cache.page_cache import ByteArray, LineState, Outcome, PolicyKind
from bam.cache.pin import Pin, pin_page
from bam.cache.reference import ReferenceCache
from bam.errors import ClosedError, ConfigError, WaitTimeout

Cache = HostCache | ReferenceCache
Make = Callable[[int], Cache]


@pytest.fixture(params=["reference", "host"])
def make(request: pytest.FixtureRequest) -> Make:
    made = reference_cache if request.param == "reference" else host_cache
    return lambda n_lines: made(n_lines, PolicyKind.CLOCK)


def page_of(page_id: int) -> Callable[[ByteArray], None]:
    def read(page: ByteArray) -> None:
        page.view(np.int64)[:] = page_id

    return read


def refuse(page: ByteArray) -> None:
    raise AssertionError("the page is there; nobody should read it")


def holds(pin: Pin, page_id: int) -> bool:
    return bool((pin.bytes.view(np.int64) == page_id).all())


def all_pins(cache: Cache) -> int:
    return sum(cache.pins(line_id) for line_id in range(cache.n_lines))


def test_a_miss_reads_and_a_hit_does_not(make: Make) -> None:
    cache = make(4)
    with pin_page(cache, 7, page_of(7)) as pin:
        assert holds(pin, 7)
        assert (pin.page_id, pin.outcome) == (7, Outcome.CLAIMED)
        assert pin.line_id is not None
        assert cache.pins(pin.line_id) == 1
    with pin_page(cache, 7, refuse) as pin:
        assert holds(pin, 7)
        assert pin.outcome is Outcome.HIT
    assert all_pins(cache) == 0


def test_the_bytes_are_read_only_and_gone_after_the_release(make: Make) -> None:
    cache = make(4)
    pin = pin_page(cache, 7, page_of(7))
    assert pin.bytes.shape == (PAGE_BYTES,)
    with pytest.raises(ValueError, match="read-only"):
        pin.bytes[0] = 1
    pin.release()
    with pytest.raises(ClosedError, match="page 7"):
        _ = pin.bytes
    with pin:
        pass
    pin.release()
    assert all_pins(cache) == 0


def test_releasing_twice_does_not_take_the_pin_of_another(make: Make) -> None:
    cache = make(4)
    first, second = pin_page(cache, 7, page_of(7)), pin_page(cache, 7, refuse)
    first.release()
    first.release()
    del first
    gc.collect()
    assert all_pins(cache) == 1
    second.release()
    assert all_pins(cache) == 0


def test_a_dropped_pin_is_released(make: Make) -> None:
    cache = make(4)
    pin = pin_page(cache, 7, page_of(7))
    assert all_pins(cache) == 1
    del pin
    gc.collect()
    assert all_pins(cache) == 0


def test_a_pin_in_a_reference_cycle_is_released(make: Make) -> None:
    cache = make(4)
    cycle: list[object] = [pin_page(cache, 7, page_of(7))]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert all_pins(cache) == 0


def test_a_pin_held_by_a_frame_that_raised_is_released(make: Make) -> None:
    cache = make(4)

    def user() -> None:
        pin = pin_page(cache, 7, page_of(7))
        raise KeyError(pin.page_id)

    with pytest.raises(KeyError):
        user()
    gc.collect()
    assert all_pins(cache) == 0


def test_a_pin_dropped_by_a_thread_that_ends_is_released(make: Make) -> None:
    cache = make(4)
    kept = threading.local()

    def user() -> None:
        kept.pin = pin_page(cache, 7, page_of(7))

    thread = threading.Thread(target=user)
    thread.start()
    thread.join()
    gc.collect()
    assert all_pins(cache) == 0


def test_a_pin_may_outlive_its_cache(make: Make) -> None:
    cache = make(4)
    pin = pin_page(cache, 7, page_of(7))
    cache.close()
    assert holds(pin, 7)
    pin.release()
    with pytest.raises(ClosedError):
        pin_page(cache, 7, refuse)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENODATA, "cut"), errno.ENODATA),
        (OSError("no number"), errno.EIO),
        (RuntimeError("bug"), errno.EIO),
        (KeyboardInterrupt(), errno.EIO),
    ],
)
def test_a_read_that_raises_leaves_the_page_uncached(make: Make, error: BaseException, code: int) -> None:
    cache = make(1)

    def fail(page: ByteArray) -> None:
        # another thread joins this read; it must learn why it failed
        assert cache.acquire(7).outcome is Outcome.JOINED
        raise error

    with pytest.raises(type(error)) as raised:
        pin_page(cache, 7, fail)
    assert raised.value is error
    assert (cache.state(0), cache.failure(0), cache.pins(0)) == (LineState.FAILED, code, 1)
    cache.unpin(0)
    with pin_page(cache, 7, page_of(7)) as pin:
        assert holds(pin, 7)


def test_without_a_line_the_page_is_the_pins_own(make: Make) -> None:
    cache = make(2)
    held = [pin_page(cache, page_id, page_of(page_id)) for page_id in range(2)]
    with pin_page(cache, 9, page_of(9)) as pin:
        assert (pin.line_id, pin.outcome) == (None, Outcome.BYPASS)
        assert holds(pin, 9)
        assert pin.bytes.ctypes.data % 4096 == 0
    assert all(holds(pin, pin.page_id) for pin in held)
    with pytest.raises(ZeroDivisionError):
        pin_page(cache, 9, lambda page: page.fill(1 // 0))
    assert all_pins(cache) == 2


def test_who_joins_gets_the_bytes_when_they_are_there(make: Make) -> None:
    cache = make(2)
    started, go_on = threading.Event(), threading.Event()

    def slow(page: ByteArray) -> None:
        started.set()
        assert go_on.wait(30)
        page_of(7)(page)

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(pin_page, cache, 7, slow)
        assert started.wait(30)
        joiner = pool.submit(pin_page, cache, 7, refuse)
        go_on.set()
        first, second = reader.result(30), joiner.result(30)
    assert holds(first, 7)
    assert holds(second, 7)
    assert second.line_id == first.line_id
    assert all_pins(cache) == 2


def test_who_joined_a_read_that_failed_reads_itself(make: Make) -> None:
    cache = make(2)
    started = threading.Event()

    def slow_failure(page: ByteArray) -> None:
        started.set()
        for _ in range(30_000):
            if cache.pins(line_id) == 2:  # somebody has joined
                break
            threading.Event().wait(0.001)
        raise OSError(errno.EIO, "broken")

    acquired = cache.acquire(7)
    assert acquired.line_id is not None
    line_id = acquired.line_id
    cache.fail(line_id, errno.EIO)
    cache.unpin(line_id)
    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(pin_page, cache, 7, slow_failure)
        assert started.wait(30)
        joiner = pool.submit(pin_page, cache, 7, page_of(7))
        with pytest.raises(OSError, match="broken"):
            reader.result(30)
        assert holds(joiner.result(30), 7)


def test_waiting_for_a_read_that_never_ends(make: Make) -> None:
    cache = make(2)
    claimed = cache.acquire(7)
    with pytest.raises(WaitTimeout, match="page 7") as raised:
        pin_page(cache, 7, refuse, timeout_s=0.05)
    assert raised.value.timeout_s == 0.05
    assert claimed.line_id is not None
    assert cache.pins(claimed.line_id) == 1  # the one who waited has let go
    cache.publish(claimed.line_id)
    assert pin_page(cache, 7, refuse).outcome is Outcome.HIT


def test_a_page_id_that_cannot_be(make: Make) -> None:
    with pytest.raises(ConfigError):
        pin_page(make(2), -1, refuse)


def test_closing_in_the_middle_of_a_read(make: Make) -> None:
    cache = make(2)

    def close(page: ByteArray) -> None:
        cache.close()
        page[:] = 1

    with pytest.raises(ClosedError):
        pin_page(cache, 7, close)


def test_many_threads_of_careless_users_leak_nothing(make: Make) -> None:
    """They drop, release, raise and fail in every order, in a cache much smaller than what they need."""
    cache = make(6)

    def user(seed: int) -> int:
        rng = np.random.default_rng(seed)
        kept: list[Pin] = []
        refused = 0
        for _ in range(150):
            page_id, what = int(rng.integers(0, 20)), rng.random()
            read = _broken if what < 0.1 else page_of(page_id)
            try:
                pin = pin_page(cache, page_id, read, timeout_s=60)
            except OSError:
                refused += 1
                continue
            assert holds(pin, page_id)
            if what < 0.5:
                kept.append(pin)
            elif what < 0.8:
                pin.release()
            if len(kept) > 3:
                del kept[int(rng.integers(0, 4))]
        assert all(holds(pin, pin.page_id) for pin in kept)
        return refused

    with ThreadPoolExecutor(8) as pool:
        refused = sum(pool.map(user, range(8)))
    gc.collect()
    assert refused > 0
    assert all_pins(cache) == 0
    assert all(cache.state(line_id) is not LineState.READING for line_id in range(cache.n_lines))


def _broken(page: ByteArray) -> None:
    raise OSError(errno.EIO, "broken")
