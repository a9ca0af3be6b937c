"""Pins that cannot leak: one page's bytes, kept until the handle is released or dropped."""

from __future__ import annotations

import errno as errno_codes
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from bam.cache.memory import page_aligned_zeros
from bam.cache.page_cache import NEVER, ByteArray, LineState, Outcome, PageCache
from bam.errors import ClosedError, WaitTimeout

DEFAULT_TIMEOUT_S = 60.0
_SHORTEST_NAP_S = 20e-6
_LONGEST_NAP_S = 2e-3


class Pin:
    """One page's bytes. Made by :func:`pin_page`; drop it, release it, or leave its ``with`` block.

    Attributes
    ----------
    page_id : int
    line_id : int or None
        None: the page is not cached, and its bytes are this handle's own.
    outcome : Outcome
        How the page was found.
    """

    def __init__(
        self, cache: PageCache, page_id: int, line_id: int | None, outcome: Outcome, page: ByteArray
    ) -> None:
        self.page_id, self.line_id, self.outcome = page_id, line_id, outcome
        self._bytes: ByteArray | None = page.view()
        self._bytes.flags.writeable = False
        # Runs once, on release, on collection of this object, or never when the program ends first.
        self._unpin = weakref.finalize(self, _unpin, cache, line_id)
        self._unpin.atexit = False

    @property
    def bytes(self) -> ByteArray:
        """The page, read-only: uint8, shape (page_bytes,). Do not use the array after the release.

        Raises
        ------
        ClosedError
            The pin was released.
        """
        page = self._bytes
        if page is None:
            raise ClosedError(f"pin on page {self.page_id}")
        return page

    def release(self) -> None:
        """Give the line back; calling it again does nothing."""
        self._bytes = None
        self._unpin()

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _unpin(cache: PageCache, line_id: int | None) -> None:
    if line_id is None:
        return
    with suppress(ClosedError):  # with the cache went its pins
        cache.unpin(line_id)


def pin_page(
    cache: PageCache,
    page_id: int,
    read: Callable[[ByteArray], None],
    *,
    next_use: int = NEVER,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Pin:
    """Pin a page, reading it if nobody has and waiting for it if somebody is.

    Parameters
    ----------
    cache : PageCache
    page_id : int
    read : callable
        Fills the array it is given (uint8, shape (page_bytes,)) with the page. Called at most once; its
        exception is raised to this caller alone: whoever waited for this read then reads the page itself.
    next_use : int
        What the look-ahead policy orders by.
    timeout_s : float
        Longest wait for reads of other threads.

    Returns
    -------
    Pin
        Of a private copy when the cache has no line to spare.

    Raises
    ------
    WaitTimeout
    ClosedError
    """
    deadline = time.monotonic() + timeout_s
    while True:
        acquired = cache.acquire(page_id, next_use)
        line_id = acquired.line_id
        if line_id is None:
            page = page_aligned_zeros(cache.page_bytes)
            read(page)
            return Pin(cache, page_id, None, acquired.outcome, page)
        if acquired.outcome is Outcome.CLAIMED:
            _fill(cache, line_id, read)
        pin = _pin_line(cache, page_id, line_id, acquired.outcome)
        if acquired.outcome is not Outcome.JOINED or _await_valid(cache, pin, line_id, deadline, timeout_s):
            return pin


def _fill(cache: PageCache, line_id: int, read: Callable[[ByteArray], None]) -> None:
    """Reads into a claimed line and publishes it; or fails and unpins it and raises."""
    try:
        read(cache.line(line_id))
        cache.publish(line_id)
    except BaseException as error:
        code = error.errno if isinstance(error, OSError) else None
        with suppress(ClosedError):
            cache.fail(line_id, code or errno_codes.EIO)
        _unpin(cache, line_id)
        raise


def _pin_line(cache: PageCache, page_id: int, line_id: int, outcome: Outcome) -> Pin:
    """Takes over the pin of acquire()."""
    try:
        return Pin(cache, page_id, line_id, outcome, cache.line(line_id))
    except BaseException:
        _unpin(cache, line_id)
        raise


def _await_valid(cache: PageCache, pin: Pin, line_id: int, deadline: float, timeout_s: float) -> bool:
    """Waits until the page is there; False, and the pin released, when its reader failed."""
    nap_s = _SHORTEST_NAP_S
    try:
        while True:
            state = cache.state(line_id)
            if state is LineState.VALID:
                return True
            if state is LineState.FAILED:
                break
            if time.monotonic() >= deadline:
                raise WaitTimeout(
                    f"another thread's read of page {pin.page_id}",
                    timeout_s,
                    "Look at the disk, or allow more time",
                )
            time.sleep(nap_s)
            nap_s = min(2 * nap_s, _LONGEST_NAP_S)
    except BaseException:
        pin.release()
        raise
    pin.release()
    return False
