"""The page-cache interface: lines that hold pages, pins that keep them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from bam.config import PolicyKind as PolicyKind

ByteArray = npt.NDArray[np.uint8]

#: A next use that never comes (`kNever` in policy.h).
NEVER = 2**64 - 1


class Outcome(Enum):
    """What :meth:`PageCache.acquire` found; values as in page_cache.h."""

    HIT = 0
    JOINED = 1
    CLAIMED = 2
    BYPASS = 3


class LineState(Enum):
    """State of a line; values as in page_state.h."""

    EMPTY = 0
    READING = 1
    VALID = 2
    FAILED = 3


@dataclass(frozen=True)
class Acquired:
    """Outcome of one look-up; `line_id` is None exactly for BYPASS. Otherwise the caller holds one pin."""

    outcome: Outcome
    line_id: int | None


class PageCache(ABC):
    """Set-associative cache of pages. A pinned line is never evicted; a page is in at most one line.

    The caller of :meth:`acquire` owes one :meth:`unpin` for every outcome but BYPASS, and for CLAIMED, before
    that, one :meth:`publish` or :meth:`fail`. :func:`bam.cache.pin.pin_page` keeps that promise by itself.
    """

    n_sets: int
    ways: int
    page_bytes: int
    policy: PolicyKind
    #: Pages that fit in memory: `n_lines`, or with frames fewer.
    n_pages: int
    #: Memory beside the pages; at most 24 bytes a page, with frames 28 (of more than a few sets).
    state_bytes: int

    @property
    def n_lines(self) -> int:
        """Lines that can be used: ``n_sets * ways``."""
        return self.n_sets * self.ways

    @abstractmethod
    def acquire(self, page_id: int, next_use: int = NEVER) -> Acquired:
        """Find the page or take a line for it. `next_use` is what the look-ahead policy orders by."""

    @abstractmethod
    def publish(self, line_id: int) -> None:
        """The claimer has filled the line."""

    @abstractmethod
    def fail(self, line_id: int, errno: int) -> None:
        """The claimer could not fill the line; those who joined find `errno` in :meth:`failure`."""

    @abstractmethod
    def unpin(self, line_id: int) -> None:
        """Drop one pin."""

    @abstractmethod
    def note_use(self, page_id: int, next_use: int) -> None:
        """Tell the look-ahead policy when a cached page is needed again; a sooner use it knows of stays."""

    @abstractmethod
    def forget_uses(self, horizon: int, instead: int) -> None:
        """End a look-ahead: uses foreseen before `horizon` become `instead`."""

    @abstractmethod
    def state(self, line_id: int) -> LineState:
        """State of a line; with a pin held it moves only from READING to VALID or FAILED."""

    @abstractmethod
    def failure(self, line_id: int) -> int:
        """errno of a FAILED line on which a pin is held."""

    @abstractmethod
    def pins(self, line_id: int) -> int:
        """Pins on a line now."""

    @abstractmethod
    def line(self, line_id: int) -> ByteArray:
        """The line's `page_bytes` bytes, a writable view valid until the cache closes.

        With frames only of a line that holds a page, and only while it does.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the memory; calling it again does nothing."""
