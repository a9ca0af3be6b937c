"""Knows which pages mini-batches beyond the window will need, by sampling them a first time in advance.

The window holds whole mini-batches, so its depth costs their memory. What the cache wants to know of later
ones is only which pages they need. A mini-batch follows from its name (seed, epoch, number), so it can be
sampled once for its pages, forgotten, and sampled again when the window reaches it: twice the sampling, which
takes a few hundredths of the time that reading takes, and 8 bytes for each of its pages.

How far that is worth going follows from the cache: Belady's optimum keeps no page for longer than it takes
until as many requests have come as fill the cache a few times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bam.errors import ConfigError
from gids.fetch.window import Pages, RowIds
from gids.sampling.block import SampledBatch

#: ``"auto"``: until the mini-batches that are known ask for so many times the pages that the cache holds. On
#: IGBH-small's graph 3 give the optimum's misses within 5 %, and 4 come nearer.
AUTO_CACHES = 4
#: And no farther: that many mini-batches' pages are compared with those of each that is read.
MAX_BATCHES = 64
#: Mini-batches that are sampled for their pages before each that is sampled to be read, so that neither the
#: first one nor a stop waits for many.
PACE = 2


@dataclass(frozen=True)
class ForesightDepth:
    """How far to look beyond the mini-batch that is sampled: both limits hold.

    Attributes
    ----------
    max_batches : int
        0: not at all.
    max_pages : int, optional
        Of which a page counts once a mini-batch.
    """

    max_batches: int
    max_pages: int | None = None

    def wants_more(self, n_batches: int, n_pages: int) -> bool:
        """Whether to look farther than `n_batches`, which ask for `n_pages`."""
        return n_batches < self.max_batches and (self.max_pages is None or n_pages < self.max_pages)


def parse_foresight(value: int | str, cache_lines: int) -> ForesightDepth:
    """The depth that a setting stands for: mini-batches, or ``"auto"``.

    Raises
    ------
    ConfigError
    """
    if value == "auto":
        return ForesightDepth(MAX_BATCHES, AUTO_CACHES * cache_lines)
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value <= MAX_BATCHES:
        raise ConfigError("foresight", value, f"a number of mini-batches from 0 to {MAX_BATCHES}, or 'auto'")
    return ForesightDepth(int(value))


@dataclass(frozen=True, eq=False)
class Foreseen:
    """What a mini-batch will read.

    Attributes
    ----------
    rows : mapping of str to int64 array
        That are not constant.
    pages : mapping of str to int64 array
        Distinct, ascending.
    """

    rows: Mapping[str, RowIds]
    pages: Mapping[str, Pages]

    @property
    def n_pages(self) -> int:
        """Of all tables."""
        return sum(len(each) for each in self.pages.values())


class Foresight:
    """Samples the mini-batches of an iteration ahead of it. Used by the thread that samples.

    Parameters
    ----------
    batches : iterator of SampledBatch
        The very mini-batches that will be read, from the first on; may be endless.
    depth : ForesightDepth
    pace : int
        Mini-batches to sample at a time, at most; at least 1.
    """

    def __init__(self, batches: Iterator[SampledBatch], depth: ForesightDepth, pace: int = PACE) -> None:
        self._batches, self._depth, self._pace = batches, depth, pace
        self._pages_ahead: deque[int] = deque()
        self._ended = False

    def next(self, locate: Callable[[SampledBatch], Foreseen]) -> list[Foreseen]:
        """What is known now and was not before, in order, when the iteration goes on by one mini-batch.

        The first call knows the first mini-batch too.

        Parameters
        ----------
        locate : callable
            Finds out what a mini-batch will read.
        """
        found: list[Foreseen] = []
        if not self._pages_ahead:
            self._look(locate, found)
        if self._pages_ahead:
            self._pages_ahead.popleft()
        while len(found) < self._pace and not self._ended and self._wants_more():
            self._look(locate, found)
        return found

    def _wants_more(self) -> bool:
        return self._depth.wants_more(len(self._pages_ahead), sum(self._pages_ahead))

    def _look(self, locate: Callable[[SampledBatch], Foreseen], found: list[Foreseen]) -> None:
        batch: Any = None if self._ended else next(self._batches, None)
        if batch is None:
            self._ended = True
            return
        found.append(locate(batch))
        self._pages_ahead.append(found[-1].n_pages)
