"""Columns that lie side by side, such as those of a wide Arrow table, as feature rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import bam
from bam.errors import ConfigError
from gids.fetch.counts import FetchCounts
from gids.fetch.table import Bytes, FeatureTable
from gids.fetch.window import HORIZON, UNKNOWN_USE, RowIds, RowPages, Uses


class ColumnTable(FeatureTable):
    """Row v is the v-th value of each column, in the columns' order. Only these columns are read.

    Parameters
    ----------
    name : str
        The node type.
    columns : mapping of str to VirtualArray
        Shape (rows,), all of one dtype; owned by this object. One cache may serve them all
        (:class:`bam.SharedCache`).

    Raises
    ------
    ConfigError
        There is no column, or they differ in length or dtype.
    """

    in_memory = False

    def __init__(self, name: str, columns: Mapping[str, bam.VirtualArray]) -> None:
        if not columns:
            raise ConfigError("columns", [], "at least one")
        first = next(iter(columns.values()))
        for column, array in columns.items():
            if array.shape != (len(first),) or array.dtype != first.dtype:
                expected = f"{first.dtype} of shape ({len(first)},), as the first column"
                raise ConfigError(f"columns[{column!r}]", f"{array.dtype} of shape {array.shape}", expected)
        self._columns = dict(columns)
        self.name, self.n_rows, self.row_shape = name, len(first), (len(columns),)
        self.dtype = torch.from_numpy(np.empty(0, first.dtype)).dtype
        self._numpy_dtype = first.dtype
        self._values_per_page = max(1, first.info().page_bytes // first.dtype.itemsize)

    def pages_of(self, rows: RowIds) -> RowPages:
        """Of the first column: values of one row lie at the same place in every column."""
        page = rows // self._values_per_page
        return RowPages.of(page, page)

    def read(self, rows: RowIds, out: Bytes, out_rows: RowIds | None, next_use: Uses | None) -> None:
        places = slice(0, len(rows)) if out_rows is None else out_rows
        table = out.view(self._numpy_dtype)
        values = np.empty((len(rows), 1), self._numpy_dtype)
        for position, array in enumerate(self._columns.values()):
            array.gather_rows(rows, values.view(np.uint8), next_use=next_use)
            table[places, position] = values[:, 0]

    def foresee(self, rows: RowIds, number: int) -> None:
        uses = np.full(len(rows), number, np.uint64)
        for array in self._columns.values():
            array.note_next_use(rows, uses)

    def forget(self) -> None:
        for array in self._columns.values():
            array.forget_next_uses(HORIZON, UNKNOWN_USE)

    def counts(self) -> FetchCounts:
        return sum((FetchCounts.of(0, array.stats()) for array in self._columns.values()), FetchCounts())

    def describe(self) -> dict[str, Any]:
        info = next(iter(self._columns.values())).info()
        return {
            "table": f"{len(self._columns)} columns",
            "reader": info.reader,
            "engine": info.engine.engine,
            "direct": info.engine.direct,
            "page_bytes": info.page_bytes,
            "notes": [*info.notes, *info.engine.notes],
        }

    def close(self) -> None:
        for array in self._columns.values():
            array.close()
