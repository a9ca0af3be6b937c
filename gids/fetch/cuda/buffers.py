"""Constant rows where a GPU reads them: in pinned host memory, in place, or in its own memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bam.cache.device.gpu import DeviceMemory, Gpu, PinnedMemory
from bam.cache.device.reads import ConstantRows
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.settings import Destination
from gids.fetch.buffer_load import FilledBuffer
from gids.fetch.constant_buffer import ConstantBuffer, RowShape
from gids.fetch.row_set import RowSet
from gids.fetch.table import Bytes
from gids.fetch.window import RowIds

_LOAD_BYTES = 32 * 2**20


class ResidentBuffer:
    """Rows of one table in the GPU's memory, filled through a pinned part of it.

    Parameters
    ----------
    gpu : Gpu
    table : RowShape
    rows : int64 array
        Rising, distinct.

    Attributes
    ----------
    n_rows, row_bytes : int
    n_loaded : int
        Rows that are there; those before this place.
    row_set : RowSet, optional
        Which rows it holds; None: the first `n_rows`.
    memory : DeviceMemory
    first_row : int or None
        The table's row it begins with; None: its rows do not follow each other.
    destination : Destination
        A GPU's memory.
    """

    destination = Destination.CUDA

    def __init__(self, gpu: Gpu, table: RowShape, rows: RowIds) -> None:
        self.n_rows, self.row_bytes, self.n_loaded = len(rows), table.row_bytes, 0
        prefix = len(rows) == 0 or int(rows[-1]) == len(rows) - 1
        self.row_set = None if prefix else RowSet(rows, table.n_rows)
        follow = len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1
        self.first_row = int(rows[0]) if follow else None
        self._gpu, self._rows = gpu, rows
        self.memory: DeviceMemory = gpu.memory(self.n_rows * self.row_bytes)

    @property
    def nbytes(self) -> int:
        """Memory it takes on the GPU, index included."""
        return self.memory.n_bytes + (0 if self.row_set is None else self.row_set.nbytes)

    def bulk_memory(self) -> BulkMemory:
        """Its memory, for bulk reads."""
        return self._gpu.bulk_memory(self.memory)

    def fill(self, read: Callable[[RowIds, Bytes], None]) -> Iterator[int]:
        """As :meth:`gids.fetch.constant_buffer.ConstantBuffer.fill`."""
        step = max(1, _LOAD_BYTES // self.row_bytes)
        part = np.empty((min(step, self.n_rows), self.row_bytes), np.uint8)
        for first in range(0, self.n_rows, step):
            wanted = self._rows[first : first + step]
            read(wanted, part[: len(wanted)])
            self._gpu.write(self.memory.address + first * self.row_bytes, part[: len(wanted)])
            self.n_loaded = first + len(wanted)  # after the rows, so that nobody is given what is not there
            yield len(wanted)


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """A buffer and where kernels find it.

    Attributes
    ----------
    buffer : ConstantBuffer or ResidentBuffer
    address : int
    words, ranks : DeviceMemory, optional
        Of the set of its rows.
    owner : object
        Keeps the rows alive.
    """

    buffer: ConstantBuffer | ResidentBuffer
    address: int
    words: DeviceMemory | None
    ranks: DeviceMemory | None
    owner: object

    @property
    def filled(self) -> FilledBuffer:
        """What :class:`gids.fetch.buffer_load.BufferLoad` fills."""
        return self.buffer

    def now(self) -> ConstantRows:
        """The rows that are there at this moment."""
        words = 0 if self.words is None else self.words.address
        ranks = 0 if self.ranks is None else self.ranks.address
        return ConstantRows(self.address, self.buffer.n_loaded, 0, words, ranks, self)


def hold_pinned(gpu: Gpu, table: RowShape, rows: RowIds) -> PlacedRows:
    """An empty constant buffer in pinned memory for these rows."""
    memory: PinnedMemory = gpu.pinned(len(rows) * table.row_bytes)
    buffer = ConstantBuffer(table, rows, load=False, memory=memory.array)
    return PlacedRows(buffer, memory.address, *_uploaded(gpu, buffer.row_set), memory)


def hold_resident(gpu: Gpu, table: RowShape, rows: RowIds) -> PlacedRows:
    """An empty constant buffer in the GPU's memory for these rows."""
    buffer = ResidentBuffer(gpu, table, rows)
    return PlacedRows(buffer, buffer.memory.address, *_uploaded(gpu, buffer.row_set), buffer)


def _uploaded(gpu: Gpu, rows: RowSet | None) -> tuple[DeviceMemory | None, DeviceMemory | None]:
    if rows is None:
        return None, None
    return gpu.upload(rows.words.view(np.uint8)), gpu.upload(rows.ranks.view(np.uint8))
