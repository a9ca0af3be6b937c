"""The row reader: what turns row ids into bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from bam.stats import ReaderStats
from bam.storage.engine import EngineInfo


class RowReader(ABC):
    """Reads rows of equal size from one layout through a page cache. Safe to use from several threads.

    A reader uses an engine and a cache that somebody else owns and closes after it.
    """

    @abstractmethod
    def gather(
        self,
        ids: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        next_use: npt.NDArray[np.uint64] | None = None,
        out_rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Copy row ``ids[i]`` to ``out[out_rows[i]]``, or to ``out[i]`` without `out_rows`.

        Parameters
        ----------
        ids : int64, shape (n,)
            C-contiguous; every id in ``[0, n_rows)``.
        out : uint8, shape (n, row_bytes); with `out_rows` of any number of rows
            C-contiguous and writable. After an error its contents are undefined.
        next_use : uint64, shape (n,), optional
            When each row is needed again, in any unit of the caller; what the look-ahead policy orders by.
        out_rows : int64, shape (n,), optional
            Distinct rows of `out`.

        Raises
        ------
        RowOutOfRange
            Nothing has been read.
        StorageError
            Of the first row in `ids` whose bytes could not be read, with `page_id`.
        WaitTimeout
        ClosedError
        """

    @abstractmethod
    def note_next_use(
        self, ids: npt.NDArray[np.int64], row_bytes: int, next_use: npt.NDArray[np.uint64]
    ) -> None:
        """Tell the look-ahead policy when cached rows are needed again; a sooner use it knows of stays.

        Parameters
        ----------
        ids : int64, shape (n,)
            C-contiguous; every id in ``[0, n_rows)``.
        row_bytes : int
        next_use : uint64, shape (n,)
        """

    @abstractmethod
    def forget_next_uses(self, horizon: int, instead: int) -> None:
        """In the whole cache, uses foreseen before `horizon` become `instead`: the look-ahead has ended."""

    @abstractmethod
    def stats(self) -> ReaderStats:
        """Counters since the reader was opened."""

    @abstractmethod
    def info(self) -> EngineInfo:
        """Which engine really runs."""

    def notes(self) -> tuple[str, ...]:
        """Why something asked for is not what runs."""
        return ()

    @abstractmethod
    def close(self) -> None:
        """Release the reader's own memory; calling it again does nothing. No call may be under way."""
