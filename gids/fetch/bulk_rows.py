"""Rows that follow each other, read in bulk: how a constant buffer of such rows is filled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from bam.array.description import ArrayDescription
from bam.array.load import RowLoader
from bam.bench.bulk_sweep import why_not
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings, Destination
from bam.storage.engine import Engine

logger = logging.getLogger(__name__)

#: Rows of one call; the buffer counts them as there when all are.
_STEP_BYTES = 256 * 2**20


class BulkBuffer(Protocol):
    """Constant rows of one table, and the memory they are held in."""

    n_rows: int
    row_bytes: int
    n_loaded: int

    @property
    def first_row(self) -> int | None:
        """The table's row it begins with; None: its rows do not follow each other."""

    @property
    def destination(self) -> Destination:
        """What kind of memory it is."""

    def bulk_memory(self) -> BulkMemory:
        """Where its rows are read to, one after the other."""


class BulkRows:
    """Rows of an array from one of them on, without a page cache. The caller closes it.

    Parameters
    ----------
    description : ArrayDescription
        Of numbers in this machine's byte order.
    first_row : int
    settings : BulkSettings
    engine : str
        Which engine of `bam` reads, where one does.
    wrap : callable, optional
        Takes that engine and returns the one to read through.
    to_gpu : bool
        Whether the rows are for a GPU's memory.

    Attributes
    ----------
    path : str
        How rows were read, and which way they came; empty before the first.

    Raises
    ------
    ConfigError, EngineUnavailable, StorageError
    """

    def __init__(
        self,
        description: ArrayDescription,
        first_row: int,
        settings: BulkSettings,
        *,
        engine: str = "auto",
        wrap: Callable[[Engine], Engine] | None = None,
        to_gpu: bool = False,
    ) -> None:
        self._first_row = first_row
        self._loader = RowLoader(description, settings, engine=engine, wrap=wrap, to_gpu=to_gpu)
        self.path = ""

    def fill(self, buffer: BulkBuffer) -> Iterator[int]:
        """Read the buffer's rows, in rising order; as :meth:`ConstantBuffer.fill`.

        Yields
        ------
        int
            Rows that were added.

        Raises
        ------
        StorageError, WaitTimeout
        """
        memory, row_bytes = buffer.bulk_memory(), buffer.row_bytes
        step = max(1, _STEP_BYTES // max(1, row_bytes))
        for first in range(0, buffer.n_rows, step):
            n_rows = min(step, buffer.n_rows - first)
            report = self._loader.read(self._first_row + first, n_rows, memory, first * row_bytes)
            self.path = str(report)
            buffer.n_loaded = first + n_rows  # after the rows, so that nobody is given what is not there
            yield n_rows

    def close(self) -> None:
        """Release the files."""
        self._loader.close()


def usable_settings(
    asked: BulkSettings | str | None, measured: BulkSettings | None, *, wrapped: bool
) -> BulkSettings | None:
    """The settings that a loader's `bulk` stands for.

    Parameters
    ----------
    asked : BulkSettings, str or None
        ``"auto"``: as measured, else the defaults. None: no bulk reads.
    measured : BulkSettings, optional
        What `gids calibrate` found best for the memory that is read to.
    wrapped : bool
        Engines are to be wrapped, which only those of `bam` can be.
    """
    if not isinstance(asked, str):
        return asked
    if measured is None:
        return BulkSettings()
    if measured.kind is BulkEngineKind.KVIKIO:
        reason = "engines are wrapped" if wrapped else why_not(BulkEngineKind.KVIKIO)
        if reason:
            logger.warning("kvikio was measured to be best for bulk reads, but is not used: %s", reason)
            return replace(measured, engine=BulkEngineKind.NATIVE)
    return measured
