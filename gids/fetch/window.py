"""The window: what the next W mini-batches will read, and so when each page is needed next.

Source: the window buffering of GIDS (Park et al., VLDB 2024, section 3.3), with exact next uses in place of a
counter of remaining uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

RowIds = npt.NDArray[np.int64]
Pages = npt.NDArray[np.int64]
Uses = npt.NDArray[np.uint64]

#: Next uses from here on are estimates: a batch number is always below.
HORIZON = 2**40

#: Estimate of pages of which nothing is known: in the middle of the estimates.
UNKNOWN_USE = HORIZON + (HORIZON - 1) // 2


@njit(cache=True, nogil=True)
def _meet(pages: Any, rows: Any, count: Any, later: Any, when: Any, next_use: Any) -> Any:
    """Lower `next_use` to `when` for rows whose page is in `later`, too; returns how many are left.

    The first `count` of `pages` rise, and so does `later`; of `rows`, each is the one of its page. Those
    without a match move to the front: batches come in order, so the others have their nearest use.
    """
    j = left = 0
    for k in range(count):
        page, row = pages[k], rows[k]
        while j < len(later) and later[j] < page:
            j += 1
        if j < len(later) and later[j] == page:
            next_use[row] = min(next_use[row], when)
        else:
            pages[left], rows[left] = page, row
            left += 1
    return left


def once_each(ascending: Pages) -> Pages:
    """The same pages without repetitions: of what is sorted, quicker than `np.unique`."""
    new = np.empty(len(ascending), np.bool_)
    new[:1] = True
    np.not_equal(ascending[1:], ascending[:-1], out=new[1:])
    return ascending[new]


def united(first: Pages, second: Pages) -> Pages:
    """Pages of either list, both ascending: this sort merges them, where `np.union1d` hashes every page."""
    both = np.concatenate([first, second])
    both.sort(kind="stable")
    return once_each(both)


@dataclass(frozen=True)
class RowPages:
    """Pages of the rows that a mini-batch reads from one table.

    Attributes
    ----------
    first, last : int64 array, shape (rows,)
        First and last page of each row.
    by_first, by_last : int64 array, shape (rows,)
        Sort them.
    distinct : int64 array
        All pages from a row's first and last, ascending.
    """

    first: Pages
    last: Pages
    by_first: npt.NDArray[np.int64]
    by_last: npt.NDArray[np.int64]
    distinct: Pages

    @classmethod
    def of(cls, first: Pages, last: Pages) -> RowPages:
        by_first = np.argsort(first, kind="stable")
        if first is last:
            return cls(first, first, by_first, by_first, first[by_first])
        by_last = np.argsort(last, kind="stable")
        return cls(first, last, by_first, by_last, united(first[by_first], last[by_last]))


@dataclass(frozen=True)
class WindowEntry:
    """What one mini-batch will read.

    Attributes
    ----------
    number : int
        Place of the mini-batch in the order of reading, counted over everything read through one cache.
    rows : mapping of str to int64 array
        Distinct feature rows of each node type, in the order they will be read.
    pages : mapping of str to RowPages
        Where they lie.
    """

    number: int
    rows: Mapping[str, RowIds]
    pages: Mapping[str, RowPages] = field(repr=False)


@dataclass(frozen=True)
class FutureBatch:
    """What the window knows of a mini-batch that is read later.

    Attributes
    ----------
    number : int
        As :attr:`WindowEntry.number`.
    pages : mapping of str to int64 array
        Distinct pages by node type, ascending.
    """

    number: int
    pages: Mapping[str, Pages] = field(repr=False)


class Window:
    """Mini-batches whose pages are known and that are not read yet, in the order of reading.

    Used by one thread. A row's next use is the number of the nearest later mini-batch in the window that
    reads one of its pages; beyond the window it is what `beyond` estimates, at least :data:`HORIZON`.
    """

    def __init__(self) -> None:
        self._entries: deque[FutureBatch] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, batch: FutureBatch) -> None:
        """Append the mini-batch that is read after all others."""
        if self._entries and batch.number <= self._entries[-1].number:
            raise ValueError(f"mini-batch {batch.number} does not follow {self._entries[-1].number}")
        self._entries.append(batch)

    def __getitem__(self, place: int) -> FutureBatch:
        """The mini-batch that is read after `place` others."""
        return self._entries[place]

    def pop(self) -> FutureBatch:
        """Remove and return the mini-batch that is read next."""
        return self._entries.popleft()

    def next_uses(self, entry: WindowEntry, beyond: Mapping[str, Uses]) -> dict[str, Uses]:
        """When each row of `entry` (no longer in the window) is read again.

        Parameters
        ----------
        entry : WindowEntry
        beyond : mapping of str to uint64 array
            Estimate for each of its rows, for those that the window does not reach; not changed.

        Returns
        -------
        dict of str to uint64 array
            In the order of ``entry.rows``.
        """
        uses = {name: beyond[name].copy() for name in entry.rows}
        for name, mine in entry.pages.items():
            self._lower(name, mine.first, mine.by_first, uses[name])
            if mine.last is not mine.first:
                self._lower(name, mine.last, mine.by_last, uses[name])
        return uses

    def _lower(self, name: str, pages: Pages, order: RowIds, uses: Uses) -> None:
        """To the number of the nearest mini-batch that reads a row's page of `pages`, which `order` sorts."""
        rising, rows, left = pages[order], order.copy(), len(pages)
        for later in self._entries:
            left = _meet(rising, rows, left, later.pages[name], np.uint64(later.number), uses)
