"""The constant CPU buffer: hot rows, read once in bulk and kept in memory for the run.

It is filled in rising order, and a row counts as constant from the moment it is there.

Source: the constant CPU buffer of GIDS (Park et al., VLDB 2024, section 3.4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bam.array.copy_rows import copy_rows
from bam.config import parse_bytes
from bam.errors import ConfigError
from bam.storage.bulk.memory import BulkMemory, HostMemory, in_step
from bam.storage.bulk.settings import Destination
from gids.fetch.row_set import RowSet
from gids.fetch.table import Bytes, FeatureTable
from gids.fetch.window import RowIds
from gids.graph.hotness import hot_rows

logger = logging.getLogger(__name__)

_LOAD_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Division:
    """Which of the requested rows are constant.

    Attributes
    ----------
    constant_places, constant_out : int64 arrays
        Place in the buffer and position in the request of each constant row.
    stored_rows, stored_out : int64 arrays
        Row number and position in the request of each other row.
    """

    constant_places: RowIds
    constant_out: RowIds
    stored_rows: RowIds
    stored_out: RowIds


class RowShape(Protocol):
    """As much of a table as its constant rows depend on."""

    @property
    def n_rows(self) -> int: ...

    @property
    def row_bytes(self) -> int: ...


class ConstantBuffer:
    """Rows of one table, held in memory.

    Parameters
    ----------
    table : FeatureTable, or anything with its `n_rows` and `row_bytes` unless `load`
    rows : int64 array
        Row numbers to hold; ``range(n)`` needs no index.
    load : bool
        Read them now, through the table; else :meth:`fill` does.
    memory : uint8 array, optional
        Where to hold them, at least as many bytes; by default memory of its own.

    Attributes
    ----------
    n_rows, row_bytes : int
    n_loaded : int
        Rows that are there; those before this place.
    first_row : int or None
        The table's row it begins with; None: its rows do not follow each other.
    destination : Destination
        The host's memory.
    """

    destination = Destination.HOST

    def __init__(
        self, table: RowShape, rows: RowIds, *, load: bool = True, memory: Bytes | None = None
    ) -> None:
        self.row_bytes = table.row_bytes
        prefix = len(rows) == 0 or (int(rows.min()) == 0 and int(rows.max()) == len(rows) - 1)
        self._set = None if prefix else RowSet(rows, table.n_rows)
        self.n_rows = len(rows) if self._set is None else self._set.n_members
        self.n_loaded = 0
        follow = len(rows) and int(rows.max()) - int(rows.min()) == self.n_rows - 1
        self.first_row = int(rows.min()) if follow else None
        n_bytes = self.n_rows * self.row_bytes
        # In step with pages, so that direct reads can go straight to it where the rows are so too.
        held = in_step(n_bytes, 0) if memory is None else memory[:n_bytes]
        self._bytes: Bytes = held.reshape(self.n_rows, self.row_bytes)
        if load:
            assert isinstance(table, FeatureTable)
            for _ in self.fill(lambda rows, out: table.read(rows, out, None, None)):
                pass

    def fill(self, read: Callable[[RowIds, Bytes], None]) -> Iterator[int]:
        """Fill it with `read(rows, out)`, in rising order. Used by one thread; others may call
        :meth:`divide`.

        Yields
        ------
        int
            Rows that were added.
        """
        ascending = np.arange(self.n_rows, dtype=np.int64) if self._set is None else self._set.members()
        step = max(1, _LOAD_BYTES // max(1, self.row_bytes))
        for first in range(0, self.n_rows, step):
            part = self._bytes[first : first + step]
            read(ascending[first : first + step], part)
            self.n_loaded = first + len(part)  # after the rows, so that nobody is given what is not there
            yield len(part)

    def bulk_memory(self) -> BulkMemory:
        """Its memory, for bulk reads."""
        return HostMemory(self._bytes)

    @property
    def row_set(self) -> RowSet | None:
        """Which rows it holds; None: the first `n_rows`."""
        return self._set

    @property
    def nbytes(self) -> int:
        """Memory it takes, index included."""
        return self._bytes.nbytes + (0 if self._set is None else self._set.nbytes)

    def divide(self, rows: RowIds) -> Division:
        """Tell constant rows, as far as they are loaded, from others."""
        places = rows if self._set is None else self._set.places(rows)
        constant = (places >= 0) & (places < self.n_loaded)
        positions, others = np.flatnonzero(constant), np.flatnonzero(~constant)
        return Division(places[positions], positions, rows[others], others)

    def copy(self, places: RowIds, out: Bytes, out_rows: RowIds) -> None:
        """Copy the row at ``places[i]`` to ``out[out_rows[i]]``."""
        copy_rows(self._bytes, places, out, out_rows)


def parse_share(value: float | int | str, total_bytes: int, setting: str) -> int:
    """Bytes that `value` stands for: a share (a float up to 1, or ``"20%"``), bytes, or a size (``"8GiB"``).

    Raises
    ------
    ConfigError
    """
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            value = float(value.strip()[:-1]) / 100
        except ValueError:
            raise ConfigError(setting, value, "a share such as '20%'") from None
    if isinstance(value, float):
        if not 0 <= value <= 1:
            raise ConfigError(setting, value, "a share from 0.0 to 1.0, or bytes as a whole number or text")
        return int(value * total_bytes)
    return parse_bytes(value, setting)


def choose_hot_rows(
    tables: Mapping[str, RowShape],
    levels: Mapping[str, npt.NDArray[np.int64]],
    degrees: Mapping[str, npt.NDArray[np.int64]],
    budget_bytes: int,
) -> dict[str, RowIds]:
    """Rows to hold: those asked for most often for their bytes, over all stored tables together.

    Parameters
    ----------
    tables : mapping of str to FeatureTable, or to anything with its `row_bytes`
    levels : mapping of str to int64 array, shape (n, 2)
        Of hot-first tables: falling degrees and rows of each; their hot rows are a prefix.
    degrees : mapping of str to int64 array, shape (rows,)
        Of the other tables: degree of each row.
    budget_bytes : int
    """
    counted = dict(levels)
    for name, degree in degrees.items():
        values, rows = np.unique(degree, return_counts=True)
        counted[name] = np.stack([values[::-1], rows[::-1]], axis=1)
    row_bytes = {name: tables[name].row_bytes for name in counted}
    kept = hot_rows(counted, row_bytes, budget_bytes)
    chosen = {name: np.arange(kept[name], dtype=np.int64) for name in levels}
    for name, degree in degrees.items():
        order = np.argsort(-degree, kind="stable")
        chosen[name] = np.sort(order[: kept[name]])
    return chosen
