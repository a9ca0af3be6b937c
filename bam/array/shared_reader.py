"""One reader for all threads of a process, opened anew in a forked child, closed when nobody uses it."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bam.array.reader import RowReader
from bam.cache.page_cache import PageCache
from bam.errors import ClosedError, WaitTimeout
from bam.stats import ArrayInfo
from bam.storage.engine import Engine


@dataclass(frozen=True)
class OpenReader:
    """A reader and what it reads through, opened together and closed together.

    Attributes
    ----------
    reader : RowReader
    cache : PageCache
    engine : Engine
        Which `reader` uses.
    files_engine : Engine
        The same, or what it wraps: wrappers do not close what they wrap.
    info : ArrayInfo
    owns_cache : bool
        Whether no other array reads through the cache.
    """

    reader: RowReader
    cache: PageCache
    engine: Engine
    files_engine: Engine
    info: ArrayInfo
    owns_cache: bool = True

    def close(self) -> None:
        """Close all of them, users before what they use."""
        with ExitStack() as closing:
            closing.callback(self.files_engine.close)
            closing.callback(self.engine.close)
            if self.owns_cache:
                closing.callback(self.cache.close)
            closing.callback(self.reader.close)


class SharedReader:
    """Hands out one :class:`OpenReader`. Safe to use from several threads.

    Parameters
    ----------
    open_reader : callable
        Opens it; called at the first use, and in a forked child at the first use there.
    close_timeout_s : float
        Longest time :meth:`close` waits for calls under way.
    """

    def __init__(self, open_reader: Callable[[], OpenReader], close_timeout_s: float) -> None:
        self._open_reader = open_reader
        self._close_timeout_s = close_timeout_s
        self._closed = False
        self._start_anew()
        _living.add(self)

    def _start_anew(self) -> None:
        self._opened: OpenReader | None = None
        self._users = 0
        self._changed = threading.Condition()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    @contextmanager
    def use(self) -> Iterator[OpenReader]:
        """The reader; it is not closed before the `with` block ends.

        Raises
        ------
        ClosedError
        """
        changed = self._changed
        with changed:
            if self._closed:
                raise ClosedError("array")
            if self._opened is None:
                self._opened = self._open_reader()
            opened = self._opened
            self._users += 1
        try:
            yield opened
        finally:
            with changed:
                self._users -= 1
                changed.notify_all()

    def close(self) -> None:
        """Let calls under way finish, then close; calling it again does nothing.

        Raises
        ------
        WaitTimeout
            They do not finish. The reader stays open for them, and no new call can start.
        """
        deadline = time.monotonic() + self._close_timeout_s
        with self._changed:
            self._closed = True
            while self._users:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise WaitTimeout("calls under way", self._close_timeout_s, "Close the array again later")
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def leave_parent(self) -> None:
        """In a forked child: forget what was opened without touching it; a thread may have been in it."""
        if self._opened is not None:
            _of_parents.append(self._opened)
        self._start_anew()


_living: weakref.WeakSet[SharedReader] = weakref.WeakSet()
# What a parent process opened is never closed here, so it must not be collected either.
_of_parents: list[OpenReader] = []


def _leave_parent() -> None:
    for shared in list(_living):
        shared.leave_parent()


os.register_at_fork(after_in_child=_leave_parent)
