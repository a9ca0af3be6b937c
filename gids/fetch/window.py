"""The window: what the next W mini-batches will read, and so when each row is needed next.

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
Uses = npt.NDArray[np.uint64]

#: Next uses from here on are estimates: a batch number is always below.
HORIZON = 2**40


@njit(cache=True, nogil=True)
def _meet(rows: Any, order: Any, later: Any, when: Any, next_use: Any) -> None:
    """`next_use` of every row that is also in `later` becomes `when`; both are walked in ascending order."""
    j = 0
    for k in range(len(order)):
        row = rows[order[k]]
        while j < len(later) and later[j] < row:
            j += 1
        if j == len(later):
            return
        if later[j] == row:
            next_use[order[k]] = when


@dataclass(frozen=True)
class WindowEntry:
    """Rows one mini-batch will read.

    Attributes
    ----------
    number : int
        Place of the mini-batch in the order of reading, counted over everything read through one cache.
    rows : mapping of str to int64 array
        Distinct feature rows of each node type, in the order they will be read.
    order : mapping of str to int64 array
        Sorts `rows`.
    ascending : mapping of str to int64 array
        `rows` sorted.
    """

    number: int
    rows: Mapping[str, RowIds]
    order: Mapping[str, npt.NDArray[np.int64]] = field(repr=False)
    ascending: Mapping[str, RowIds] = field(repr=False)

    @classmethod
    def of(cls, number: int, rows: Mapping[str, RowIds]) -> WindowEntry:
        order = {name: np.argsort(ids, kind="stable") for name, ids in rows.items()}
        return cls(number, rows, order, {name: ids[order[name]] for name, ids in rows.items()})


class Window:
    """Mini-batches that are sampled but not yet read, in the order of reading. Used by one thread.

    A row's next use is the number of the nearest later mini-batch in the window that reads it; beyond the
    window it is what `beyond` estimates, at least :data:`HORIZON`.
    """

    def __init__(self) -> None:
        self._entries: deque[WindowEntry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: WindowEntry) -> None:
        """Append the mini-batch that is read after all others."""
        if self._entries and entry.number <= self._entries[-1].number:
            raise ValueError(f"mini-batch {entry.number} does not follow {self._entries[-1].number}")
        self._entries.append(entry)

    def pop(self) -> WindowEntry:
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
        for later in reversed(self._entries):  # nearer ones overwrite farther ones
            for name, rows in entry.rows.items():
                _meet(rows, entry.order[name], later.ascending[name], np.uint64(later.number), uses[name])
        return uses
