"""A fixed set of row numbers that says where each member stands: a bitmap with ranks, 1.125 bits a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

_WORDS_PER_RANK = 8  # one uint64 of rank for 512 bits


@njit(cache=True, nogil=True)
def _popcount(word: Any) -> Any:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (word * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit(cache=True, nogil=True)
def _set_bits(rows: Any, words: Any, ranks: Any) -> Any:
    for row in rows:
        words[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    members = np.uint64(0)
    for at in range(len(words)):
        if at % _WORDS_PER_RANK == 0:
            ranks[at // _WORDS_PER_RANK] = members
        members += _popcount(words[at])
    return members


@njit(cache=True, nogil=True)
def _places(rows: Any, words: Any, ranks: Any, places: Any) -> None:
    for i in range(len(rows)):
        at, bit = rows[i] >> 6, np.uint64(1) << np.uint64(rows[i] & 63)
        if not words[at] & bit:
            places[i] = -1
            continue
        place = ranks[at // _WORDS_PER_RANK]
        for before in range(at - at % _WORDS_PER_RANK, at):
            place += _popcount(words[before])
        places[i] = place + _popcount(words[at] & (bit - np.uint64(1)))


class RowSet:
    """Members of ``range(n_rows)``; member number `k` in ascending order stands at place `k`.

    Parameters
    ----------
    rows : int64 array
        Members, each in ``[0, n_rows)``; duplicates count once.
    n_rows : int

    Attributes
    ----------
    words, ranks : uint64 array
        The bitmap, and members before each 512 bits of it.
    """

    def __init__(self, rows: npt.NDArray[np.int64], n_rows: int) -> None:
        self.words = np.zeros(-(-n_rows // 64), np.uint64)
        self.ranks = np.zeros(-(-len(self.words) // _WORDS_PER_RANK), np.uint64)
        self.n_members = int(_set_bits(rows, self.words, self.ranks))

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.words.nbytes + self.ranks.nbytes

    def places(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Place of each row, -1 for rows that are not members; int64, shape (n,)."""
        found = np.empty(len(rows), np.int64)
        _places(rows, self.words, self.ranks, found)
        return found

    def members(self) -> npt.NDArray[np.int64]:
        """All members in ascending order."""
        return np.flatnonzero(np.unpackbits(self.words.view(np.uint8), bitorder="little")).astype(np.int64)
