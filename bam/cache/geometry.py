"""Sets and ways of a page cache, and the set a page belongs to. C++ twins: host_cache.h and policy.h."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError

#: Most lines in a set (`kMaxWays`): one warp looks at a whole set at once.
MAX_WAYS = 32
#: Page ids have 42 bits (`kMaxPageId`).
MAX_PAGE_ID = 2**42 - 1
#: Holders of one line, at most (`kMaxPins`).
MAX_PINS = 2**20 - 1
#: Lines whose ids the 64-bit words of the C interface can carry, with a wide margin.
MAX_LINES = 2**42

#: Frames are numbered with 32 bits (`kMaxFrames`).
MAX_FRAMES = 2**32 - 1
#: Sets looked at for a victim besides the page's own (`kOtherSets`).
OTHER_SETS = 4

STATE_BYTES_PER_LINE = 16
STATE_BYTES_PER_SET = 8
FRAME_BYTES_PER_LINE = 4
#: State of a cache for each of its pages, at most: a third more lines than frames, and what sets take.
MOST_STATE_BYTES = 32
FRAME_COUNTER_BYTES = 16
_PAGES_PER_SET = 24

_GOLDEN_RATIO = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Geometry:
    """Shape of a cache.

    Attributes
    ----------
    n_sets, ways : int
        Line ``set_id * ways + way`` is way number `way` of the set.
    n_frames : int, optional
        Memory for so many pages, given to lines as they need it (frames.h); None: each line has its own.
    """

    n_sets: int
    ways: int
    n_frames: int | None = None

    @property
    def n_lines(self) -> int:
        """Lines that can be used."""
        return self.n_sets * self.ways

    @property
    def n_pages(self) -> int:
        """Pages that fit in memory."""
        return self.n_lines if self.n_frames is None else self.n_frames

    @property
    def state_bytes(self) -> int:
        """Memory beside the pages themselves: 16 bytes a line and 8 a set; with frames 20 a line."""
        state_bytes = self.n_lines * STATE_BYTES_PER_LINE + self.n_sets * STATE_BYTES_PER_SET
        if self.n_frames is None:
            return state_bytes
        return state_bytes + self.n_lines * FRAME_BYTES_PER_LINE + FRAME_COUNTER_BYTES


def geometry(n_lines: int) -> Geometry:
    """Shape of a cache of at most `n_lines` lines: as few sets as :data:`MAX_WAYS` allows, all of one size.

    Raises
    ------
    ConfigError
        Less than one line, or more than :data:`MAX_LINES`.
    """
    if not 1 <= n_lines <= MAX_LINES:
        raise ConfigError("n_lines", n_lines, f"a number of lines from 1 to {MAX_LINES}")
    n_sets = -(-n_lines // MAX_WAYS)
    return Geometry(n_sets, n_lines // n_sets)


def geometry_with_frames(n_pages: int) -> Geometry:
    """Shape of a cache of `n_pages` frames: a third more lines, as sets are not equally full; one set: none.

    Raises
    ------
    ConfigError
        Less than one page, or more than :data:`MAX_FRAMES`.
    """
    if not 1 <= n_pages <= MAX_FRAMES:
        raise ConfigError("n_lines", n_pages, f"a number of lines from 1 to {MAX_FRAMES}")
    if n_pages <= MAX_WAYS:
        return geometry(n_pages)
    return Geometry(-(-n_pages // _PAGES_PER_SET), MAX_WAYS, n_pages)


def mix64(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014) of a 64-bit number."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def set_of(page_id: int, n_sets: int) -> int:
    """The only set the page can be in."""
    return mix64(page_id + _GOLDEN_RATIO & _MASK) * n_sets >> 64


def sets_of(page_ids: npt.NDArray[np.integer], n_sets: int) -> npt.NDArray[np.int64]:
    """:func:`set_of` for many pages.

    Parameters
    ----------
    page_ids : integer array, shape (n,)
    n_sets : int

    Returns
    -------
    int64 array, shape (n,)
    """
    value = page_ids.astype(np.uint64) + np.uint64(_GOLDEN_RATIO)  # wraps, as it must
    value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    # the product has 128 bits, which NumPy does not have
    return np.fromiter((hash_ * n_sets >> 64 for hash_ in value.tolist()), np.int64, len(value))
