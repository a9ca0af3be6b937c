"""Reads the features of sampled mini-batches in order, looking ahead over those that follow."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.errors import UnknownNodeType
from gids.fetch.constant_buffer import ConstantBuffer, Division
from gids.fetch.counts import FetchCounts
from gids.fetch.output_pool import OutputPool
from gids.fetch.table import Bytes, FeatureTable
from gids.fetch.window import RowIds, Uses, Window, WindowEntry
from gids.sampling.block import SampledBatch


@dataclass(frozen=True, eq=False)
class Fetched:
    """Features of one mini-batch.

    Attributes
    ----------
    tensors : mapping of str to tensor
        For every node type that has features: shape (input nodes, *row_shape), on the CPU.
    counts : mapping of str to FetchCounts
        What this mini-batch cost, by node type.
    """

    tensors: Mapping[str, torch.Tensor]
    counts: Mapping[str, FetchCounts]


class FeatureStore:
    """Feature tables of all node types with their constant buffers, shared by any number of loaders.

    Parameters
    ----------
    tables : mapping of str to FeatureTable
        Owned by this object.
    buffers : mapping of str to ConstantBuffer
    """

    def __init__(
        self, tables: Mapping[str, FeatureTable], buffers: Mapping[str, ConstantBuffer] | None = None
    ) -> None:
        self.tables = dict(tables)
        self.buffers = dict(buffers or {})
        self._lock = threading.Lock()
        self._clock = 0

    def table(self, name: str) -> FeatureTable:
        """Features of a node type.

        Raises
        ------
        UnknownNodeType
        """
        if name not in self.tables:
            raise UnknownNodeType(name, self.tables)
        return self.tables[name]

    def next_number(self) -> int:
        """A number for the next mini-batch that is read through this store: higher than all before."""
        with self._lock:
            self._clock += 1
            return self._clock

    def counts(self) -> dict[str, FetchCounts]:
        """What was counted since the store was opened, by node type; constant rows are not in it."""
        return {name: table.counts() for name, table in self.tables.items()}

    def describe(self) -> dict[str, Any]:
        """Which path really runs, by node type."""
        described = {name: table.describe() for name, table in self.tables.items()}
        for name, buffer in self.buffers.items():
            described[name] |= {"constant_rows": buffer.n_rows, "constant_bytes": buffer.nbytes}
        return described

    def close(self) -> None:
        """Close all tables; calling it again does nothing."""
        for table in self.tables.values():
            table.close()


@dataclass(frozen=True, eq=False)
class _Announced:
    """A mini-batch that waits for its features: all rows of each type, and which of them are constant."""

    batch: SampledBatch
    rows: Mapping[str, RowIds]
    divisions: Mapping[str, Division]


class Fetcher:
    """Reads mini-batches in the order they were announced. Used by one thread; one for each iteration.

    Parameters
    ----------
    store : FeatureStore
    pool : OutputPool
        Memory for the tensors.
    """

    def __init__(self, store: FeatureStore, pool: OutputPool) -> None:
        self._store, self._pool = store, pool
        self._window = Window()
        self._announced: dict[int, _Announced] = {}

    def __len__(self) -> int:
        """Mini-batches announced and not yet read."""
        return len(self._window)

    def announce(self, batch: SampledBatch) -> None:
        """The mini-batch will be read after all that were announced before it."""
        number, tables = self._store.next_number(), self._store.tables
        rows = {name: table.rows_of(batch.nodes[name]) for name, table in tables.items()}
        divisions = {name: buffer.divide(rows[name]) for name, buffer in self._store.buffers.items()}
        # Constant rows are not in the window: no page is kept or read for them.
        stored = {**rows, **{name: division.stored_rows for name, division in divisions.items()}}
        pages = {name: tables[name].pages_of(ids) for name, ids in stored.items()}
        self._window.push(WindowEntry(number, stored, pages))
        self._announced[number] = _Announced(batch, rows, divisions)
        for name, ids in stored.items():
            tables[name].foresee(ids, number)

    def fetch(self) -> tuple[SampledBatch, Fetched]:
        """Read the mini-batch that was announced first."""
        entry = self._window.pop()
        announced = self._announced.pop(entry.number)
        tables = self._store.tables
        beyond = {name: tables[name].estimates(rows) for name, rows in entry.rows.items()}
        uses = self._window.next_uses(entry, beyond)
        tensors, counts = {}, {}
        for name, stored in entry.rows.items():
            table = tables[name]
            tensors[name] = self._pool.empty(len(announced.rows[name]), table.row_shape, table.dtype)
            out = _as_bytes(tensors[name], table.row_bytes)
            counts[name] = self._read(name, stored, out, uses[name], announced.divisions.get(name))
        return announced.batch, Fetched(tensors, counts)

    def _read(
        self, name: str, stored: RowIds, out: Bytes, uses: Uses, division: Division | None
    ) -> FetchCounts:
        table = self._store.tables[name]
        before = table.counts()
        if division is None:
            table.read(stored, out, None, uses)
            return _difference(table.counts(), before)
        self._store.buffers[name].copy(division.constant_places, out, division.constant_out)
        if len(stored):
            table.read(stored, out, division.stored_out, uses)
        return FetchCounts.of(len(division.constant_out)) + _difference(table.counts(), before)

    def close(self) -> None:
        """Forget what was announced and not read."""
        self._announced.clear()
        if len(self._window):
            self._window = Window()
        for table in self._store.tables.values():
            table.forget()


def _as_bytes(tensor: torch.Tensor, row_bytes: int) -> Bytes:
    flat: npt.NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return flat.reshape(len(tensor), row_bytes)


def _difference(now: FetchCounts, before: FetchCounts) -> FetchCounts:
    return FetchCounts(*(getattr(now, each) - getattr(before, each) for each in FetchCounts.__annotations__))
