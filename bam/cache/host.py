"""The page cache in C++ (page_cache.h, host_cache.h), over the C ABI of host_cache.cc."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import weakref
from collections.abc import Callable
from ctypes import POINTER, byref, c_int, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.cache import forked
from bam.cache.geometry import MAX_PINS
from bam.cache.page_cache import NEVER, Acquired, ByteArray, LineState, Outcome, PageCache, PolicyKind
from bam.cache.settings import CacheSettings, check_errno, checked_page_id, checked_use
from bam.errors import ClosedError, ConfigError
from bam.native import function

_BYPASS = Acquired(Outcome.BYPASS, None)
_OUTCOMES = tuple(Outcome)
_LINE_STATES = tuple(LineState)
#: `Policy` of policy.h.
_POLICY_NUMBERS = {
    PolicyKind.RANDOM: 0,
    PolicyKind.CLOCK: 1,
    PolicyKind.SIEVE: 2,
    PolicyKind.LOOK_AHEAD: 3,
    PolicyKind.LOOK_AHEAD_GLOBAL: 4,
}


class _CView(ctypes.Structure):
    _fields_ = [
        ("memory", c_void_p),
        ("words", c_void_p),
        ("metas", c_void_p),
        ("sets", c_void_p),
        ("n_sets", c_uint64),
        ("ways", c_uint64),
        ("state_bytes", c_uint64),
        ("frames", c_void_p),
        ("n_pages", c_uint64),
    ]


@dataclass(frozen=True)
class _Native:
    create: Callable[..., int]
    destroy: Callable[..., None]
    view: Callable[..., None]
    acquire: Callable[..., int]
    publish: Callable[..., int]
    fail: Callable[..., int]
    unpin: Callable[..., int]
    note_use: Callable[..., None]
    forget_uses: Callable[..., None]
    word: Callable[..., int]
    failure: Callable[..., int]


@functools.cache
def _native() -> _Native:
    line = [c_void_p, c_uint64]
    return _Native(
        create=function(
            "bam_cache_create", c_int, [c_uint64, c_uint32, c_uint32, c_uint64, POINTER(c_void_p)]
        ),
        destroy=function("bam_cache_destroy", None, [c_void_p]),
        view=function("bam_cache_view", None, [c_void_p, POINTER(_CView)]),
        acquire=function("bam_cache_acquire", c_uint64, [c_void_p, c_uint64, c_uint64]),
        publish=function("bam_cache_publish", c_int, line),
        fail=function("bam_cache_fail", c_int, [*line, c_uint64]),
        unpin=function("bam_cache_unpin", c_int, line),
        note_use=function("bam_cache_note_use", None, [c_void_p, c_uint64, c_uint64]),
        forget_uses=function("bam_cache_forget_uses", None, [c_void_p, c_uint64, c_uint64]),
        word=function("bam_cache_word", c_uint64, line),
        failure=function("bam_cache_failure", c_uint64, line),
    )


@dataclass(frozen=True)
class RawState:
    """The C++ cache's own state, not a copy and not synchronised. For tests.

    Attributes
    ----------
    words : uint64, shape (n_lines,)
        Page, pins and state, as in page_state.h.
    metas : uint64, shape (n_lines,)
        The policy's number of each line.
    hands : uint32, shape (n_sets,)
        The policy's number of each set.
    frames : uint32, shape (n_lines,)
        Frame of each line, plus 1; 0 for a line without. Of a cache without frames empty.
    """

    words: npt.NDArray[np.uint64]
    metas: npt.NDArray[np.uint64]
    hands: npt.NDArray[np.uint32]
    frames: npt.NDArray[np.uint32]


class _Owner:
    """Owns the C++ cache. Arrays over its memory keep this object, and calls under way hold it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.view = _CView()
        _native().view(handle, byref(self.view))
        # At exit the system takes the memory back anyway, and daemon threads may still be using it.
        weakref.finalize(self, _native().destroy, handle).atexit = False

    def array(self, address: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Array over the cache's memory that keeps the cache alive."""
        return np.asarray(_Memory(self, address, shape, np.dtype(dtype).str))


class _Memory:
    def __init__(self, owner: _Owner, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
        }


class HostCache(PageCache):
    """Page cache in host memory. Thread-safe without a lock around it: look-ups that hit take none.

    Parameters
    ----------
    n_lines, page_bytes, policy, seed
        As in :class:`bam.cache.settings.CacheSettings`.

    Attributes
    ----------
    state_bytes : int
        Memory beside the lines.

    Raises
    ------
    ConfigError
        A setting that cannot work, or more memory than can be had.
    NativeLibraryMissing
    """

    def __init__(
        self, n_lines: int, page_bytes: int, policy: PolicyKind = PolicyKind.CLOCK, seed: int = 0
    ) -> None:
        settings = CacheSettings(n_lines, page_bytes, policy, seed)
        self._calls = _native()
        handle = c_void_p()
        number = _POLICY_NUMBERS[settings.policy]
        error = self._calls.create(n_lines, page_bytes, number, seed, byref(handle))
        if error != 0 or handle.value is None:
            size = f"{n_lines} lines of {page_bytes} bytes"
            raise ConfigError("cache", size, f"a size this machine has memory for ({os.strerror(error)})")
        self._name = "page cache"
        self._owner: _Owner | None = _Owner(handle.value)
        view = self._owner.view
        self.n_sets, self.ways, self.state_bytes = view.n_sets, view.ways, view.state_bytes
        self.page_bytes = page_bytes
        self.policy = settings.policy
        self.n_pages = view.n_pages
        self._lines: ByteArray | None = self._owner.array(view.memory, (self.n_pages, page_bytes), np.uint8)
        self._frames: npt.NDArray[np.uint32] | None = None
        if view.frames:
            self._frames = self._owner.array(view.frames, (self.n_lines,), np.uint32)
        forked.close_in_child(self)

    # Each call below keeps the owner in a local variable: another thread may close the cache meanwhile.

    @property
    def handle(self) -> int:
        """Address of the C++ cache's ``std::shared_ptr``, for native code; valid until :meth:`close`."""
        return self._open().handle

    def acquire(self, page_id: int, next_use: int = NEVER) -> Acquired:
        owner = self._open()
        page_id, next_use = checked_page_id(page_id), checked_use("next_use", next_use)
        packed = self._calls.acquire(owner.handle, page_id, next_use)
        outcome = _OUTCOMES[packed & 3]
        return _BYPASS if outcome is Outcome.BYPASS else Acquired(outcome, packed >> 2)

    def publish(self, line_id: int) -> None:
        owner = self._open()
        if self._calls.publish(owner.handle, self._checked(line_id)) != 0:
            raise ConfigError("line_id", line_id, "a line that is being read")

    def fail(self, line_id: int, errno: int) -> None:
        check_errno(errno)
        owner = self._open()
        if self._calls.fail(owner.handle, self._checked(line_id), errno) != 0:
            raise ConfigError("line_id", line_id, "a line that is being read")

    def unpin(self, line_id: int) -> None:
        owner = self._open()
        if self._calls.unpin(owner.handle, self._checked(line_id)) != 0:
            raise ConfigError("line_id", line_id, "a line on which a pin is held")

    def note_use(self, page_id: int, next_use: int) -> None:
        owner = self._open()
        self._calls.note_use(owner.handle, checked_page_id(page_id), checked_use("next_use", next_use))

    def forget_uses(self, horizon: int, instead: int) -> None:
        owner = self._open()
        horizon, instead = checked_use("horizon", horizon), checked_use("instead", instead)
        self._calls.forget_uses(owner.handle, horizon, instead)

    def state(self, line_id: int) -> LineState:
        return _LINE_STATES[self._word(line_id) & 3]

    def failure(self, line_id: int) -> int:
        owner = self._open()
        if self.state(line_id) is not LineState.FAILED:
            raise ConfigError("line_id", line_id, "a line whose read failed")
        return self._calls.failure(owner.handle, line_id)

    def pins(self, line_id: int) -> int:
        return self._word(line_id) >> 2 & MAX_PINS

    def line(self, line_id: int) -> ByteArray:
        lines = self._lines
        if lines is None:
            raise ClosedError(self._name)
        frame = self._checked(line_id)
        if self._frames is not None:
            frame = int(self._frames[frame]) - 1
            if frame < 0:
                raise ConfigError("line_id", line_id, "a line that holds a page")
        line: ByteArray = lines[frame]
        return line

    def raw_state(self) -> RawState:
        """The state words themselves."""
        owner = self._open()
        view = owner.view
        sets = owner.array(view.sets, (self.n_sets, 2), np.uint32)
        return RawState(
            owner.array(view.words, (self.n_lines,), np.uint64),
            owner.array(view.metas, (self.n_lines,), np.uint64),
            sets[:, 1],
            np.empty(0, np.uint32) if self._frames is None else self._frames,
        )

    def close(self) -> None:
        """Forget the cache. Its memory goes with the last array over a line of it."""
        self._owner = self._lines = self._frames = None

    def close_in_child(self) -> None:
        """Called in a forked child, where no thread can finish what it was doing here."""
        self._name = "page cache of the parent process"
        self.close()

    def _open(self) -> _Owner:
        owner = self._owner
        if owner is None:
            raise ClosedError(self._name)
        return owner

    def _checked(self, line_id: int) -> int:
        line_id = operator.index(line_id)
        if not 0 <= line_id < self.n_lines:
            raise ConfigError("line_id", line_id, f"a line from 0 to {self.n_lines - 1}")
        return line_id

    def _word(self, line_id: int) -> int:
        owner = self._open()
        return self._calls.word(owner.handle, self._checked(line_id))
