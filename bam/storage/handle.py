"""A handle of the native library that several threads use and one of them may close."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from ctypes import c_void_p
from typing import Protocol

from bam.errors import ClosedError, ForkedError, WaitTimeout
from bam.native import function

#: How long closing waits for calls of other threads.
CLOSE_TIMEOUT_S = 60.0


class Handle(Protocol):
    """What a wrapper of a native object uses: its address during calls, and its end."""

    def use(self) -> AbstractContextManager[int]: ...
    def close(self) -> None: ...


class NativeHandle:
    """Address of a native object; it is destroyed once, after the calls that use it have returned.

    Threads do not survive a fork, and locks may be held in it: a forked child can neither use nor destroy the
    object.

    Parameters
    ----------
    address : int
    destroy : str
        The C function that destroys it.
    what : str
        Its name in errors.
    """

    def __init__(self, address: int, destroy: str, what: str) -> None:
        self._address: int | None = address
        self._destroy, self._what = destroy, what
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._calls = 0

    @contextmanager
    def use(self) -> Iterator[int]:
        """The address, valid inside the block.

        Raises
        ------
        ClosedError, ForkedError
        """
        if os.getpid() != self._pid:
            raise ForkedError(self._what)
        with self._changed:
            if self._address is None:
                raise ClosedError(self._what)
            address = self._address
            self._calls += 1
        try:
            yield address
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Refuse new calls, wait for those under way, destroy the object. Calling it again does nothing.

        Raises
        ------
        WaitTimeout
            They do not return. The object stays for them.
        """
        if os.getpid() != self._pid:
            return
        with self._changed:
            address, self._address = self._address, None
            if not self._changed.wait_for(lambda: self._calls == 0, CLOSE_TIMEOUT_S):
                remedy = "Its memory stays in use. Check the disk"
                raise WaitTimeout(f"{self._calls} calls of {self._what}", CLOSE_TIMEOUT_S, remedy)
        if address is not None:
            function(self._destroy, None, [c_void_p])(address)
