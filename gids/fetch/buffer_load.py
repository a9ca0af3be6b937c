"""Fills constant buffers while training already runs: rows that are not there yet are read as any other."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import bam
from gids.fetch.bulk_rows import BulkBuffer, BulkRows
from gids.fetch.table import Bytes
from gids.fetch.window import RowIds
from gids.graph.progress import Bar, Progress, no_progress

logger = logging.getLogger(__name__)

#: Longest read of a bulk load.
BULK_MERGE_BYTES = 2**20


class FilledBuffer(BulkBuffer, Protocol):
    """Constant rows of one table, as far as they are loaded."""

    def fill(self, read: Callable[[RowIds, Bytes], None]) -> Iterator[int]:
        """As :meth:`gids.fetch.constant_buffer.ConstantBuffer.fill`."""


@dataclass(frozen=True, eq=False)
class BufferSource:
    """A buffer and what it is filled from: opened for this alone, so that nothing else counts its reads.

    Attributes
    ----------
    buffer : ConstantBuffer, or one in a GPU's memory
    array : VirtualArray or BulkRows
        Bulk rows only where the buffer's follow each other.
    """

    buffer: FilledBuffer
    array: bam.VirtualArray | BulkRows


class BufferLoad:
    """One thread that fills one buffer after the other. Closes their arrays when it ends.

    A row that cannot be read ends the load, is logged and stays in :attr:`error`: what is there is served,
    and the other rows are read as any other, which is where an error reaches who needs them.

    Parameters
    ----------
    sources : sequence of BufferSource
    progress : Progress
        Called in that thread.

    Attributes
    ----------
    error : Exception or None
    """

    def __init__(self, sources: Sequence[BufferSource], progress: Progress = no_progress) -> None:
        self._sources, self._progress = sources, progress
        self._stopped = threading.Event()
        self.error: Exception | None = None
        self._paths: dict[int, str] = {}
        self._thread = threading.Thread(target=self._run, name="gids-constant-buffer", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until everything is loaded, or cannot be.

        Raises
        ------
        BamError
            What ended the load.
        """
        self._thread.join()
        if self.error is not None:
            raise self.error

    def path_of(self, buffer: FilledBuffer) -> str:
        """How a buffer's rows were read in bulk; empty: they are not, or none has come yet."""
        return self._paths.get(id(buffer), "")

    def stop(self) -> None:
        """Give up what is not loaded yet; calling it again does nothing."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        total = sum(source.buffer.row_bytes * source.buffer.n_rows for source in self._sources)
        bar: Bar | None = None
        try:
            bar = self._progress("constant buffer", total, 0)
            for source in self._sources:
                self._fill(source, bar)
        except Exception as error:  # whatever it is: this thread has nobody else to tell
            self.error = error
            logger.warning("the constant buffer stays as it is, and its other rows are read: %s", error)
        finally:
            if bar is not None:
                bar.close()
            for source in self._sources:
                source.array.close()

    def _fill(self, source: BufferSource, bar: Bar) -> None:
        array, buffer = source.array, source.buffer
        for n_rows in array.fill(buffer) if isinstance(array, BulkRows) else buffer.fill(array.gather_rows):
            if isinstance(array, BulkRows):
                self._paths[id(buffer)] = array.path
            bar.update(n_rows * buffer.row_bytes)
            if self._stopped.is_set():
                return
