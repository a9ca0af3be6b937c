"""Feature tables: the rows of one node type, in memory or in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bam
from bam.array.copy_rows import copy_rows
from bam.errors import ConfigError
from gids.fetch.counts import FetchCounts
from gids.fetch.window import HORIZON, UNKNOWN_USE, Pages, RowIds, RowPages, Uses, once_each
from gids.graph.dataset import Features
from gids.graph.feature_types import FeatureDtype

Bytes = npt.NDArray[np.uint8]

#: What rows of each kind are in torch.
TORCH_DTYPES = {
    FeatureDtype.FLOAT32: torch.float32,
    FeatureDtype.FLOAT16: torch.float16,
    FeatureDtype.BFLOAT16: torch.bfloat16,
    FeatureDtype.INT8: torch.int8,
    FeatureDtype.FLOAT64: torch.float64,
}

#: Estimated next uses lie in [HORIZON, 2 * HORIZON): the colder the row, the later.
_COLDEST = HORIZON - 1


class FeatureTable(ABC):
    """Rows of one node type. Row numbers are those of :meth:`rows_of`, not node ids.

    Attributes
    ----------
    name : str
        The node type.
    n_rows, row_bytes : int
    row_shape : tuple of int
    dtype : torch.dtype
    scale : float32 tensor, optional
        Of int8 rows, one number a column.
    in_memory : bool
        Whether rows are there without reading.
    page_bytes : int
        What is read and cached at a time.
    cache_bytes : int
        Of the cache it is read through, which it may share.
    """

    name: str
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    scale: torch.Tensor | None = None
    in_memory: bool = True
    page_bytes: int = 4096
    cache_bytes: int = 0

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize

    def rows_of(self, nodes: npt.NDArray[np.int64]) -> RowIds:
        """Row numbers of nodes."""
        return nodes

    def pages_of(self, rows: RowIds) -> RowPages:
        """Pages the rows lie in; for a table in memory each row counts as one."""
        return RowPages.of(rows, rows)

    def distinct_pages(self, rows: RowIds) -> Pages:
        """Those pages, each once, ascending."""
        pages = self.pages_of(rows)
        return once_each(pages.distinct)

    def estimates(self, rows: RowIds) -> Uses:
        """When pages outside the window are needed again: at least HORIZON, the hotter the sooner.

        All rows that begin in one page get the same estimate.
        """
        return np.full(len(rows), UNKNOWN_USE, np.uint64)

    @abstractmethod
    def read(self, rows: RowIds, out: Bytes, out_rows: RowIds | None, next_use: Uses | None) -> None:
        """Copy row ``rows[i]`` to ``out[out_rows[i]]``, or to ``out[i]``; `out` has `row_bytes` columns."""

    @abstractmethod
    def foresee(self, rows: RowIds, number: int) -> None:
        """Mini-batch `number`, which is read later, needs these rows."""

    @abstractmethod
    def forget(self) -> None:
        """What was foreseen will not come."""

    @abstractmethod
    def counts(self) -> FetchCounts:
        """What was counted since the table was opened."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Which path really runs."""

    @abstractmethod
    def close(self) -> None:
        """Release files; calling it again does nothing."""


class MemoryTable(FeatureTable):
    """Rows of a tensor or array in memory, which the caller keeps unchanged; nothing is copied.

    Attributes
    ----------
    bytes : uint8 array, shape (rows, row_bytes)

    Raises
    ------
    ConfigError
        It is not a CPU array with rows.
    """

    def __init__(self, name: str, rows: torch.Tensor | npt.NDArray[Any]) -> None:
        tensor = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        if not isinstance(tensor, torch.Tensor) or tensor.ndim < 1 or tensor.device.type != "cpu":
            raise ConfigError(
                f"features[{name!r}]", type(rows).__name__, "an array or a CPU tensor with rows"
            )
        self._tensor = tensor.detach().contiguous()
        self.name, self.n_rows = name, len(tensor)
        self.row_shape, self.dtype = tuple(tensor.shape[1:]), tensor.dtype
        self._counts = FetchCounts()
        flat = self._tensor.reshape(-1).view(torch.uint8).numpy()
        self.bytes: Bytes = flat.reshape(self.n_rows, self.row_bytes)

    def read(self, rows: RowIds, out: Bytes, out_rows: RowIds | None, next_use: Uses | None) -> None:
        copy_rows(self.bytes, rows, out, out_rows)
        self._counts += FetchCounts.of(len(rows))

    def foresee(self, rows: RowIds, number: int) -> None:
        """Rows in memory need no foresight."""

    def forget(self) -> None:
        """There is nothing to forget."""

    def counts(self) -> FetchCounts:
        return self._counts

    def describe(self) -> dict[str, Any]:
        return {"table": "memory"}

    def close(self) -> None:
        """The rows are the caller's."""


class StoredTable(FeatureTable):
    """Rows that stay in files, read through a virtual array.

    Parameters
    ----------
    name : str
    array : bam.VirtualArray
        Owned by this object.
    features : Features, optional
        Of a data set: element type, scale, the row of each node, how hot rows are.
    """

    in_memory = False

    def __init__(self, name: str, array: bam.VirtualArray, features: Features | None = None) -> None:
        self._array, self._features = array, features
        self.name, self.n_rows, self.row_shape = name, len(array), array.shape[1:]
        kind = features.dtype if features is not None else FeatureDtype(array.dtype.name)
        self.dtype = TORCH_DTYPES[kind]
        if features is not None and features.scale is not None:
            self.scale = torch.from_numpy(features.scale)
        info = array.info()
        self.page_bytes, self.cache_bytes = info.page_bytes, info.cache_lines * info.page_bytes
        self._ends = np.empty(0, np.int64)
        self._later = np.empty(0, np.uint64)
        if features is not None and features.levels is not None:
            self._ends = np.cumsum(features.levels[:, 1], dtype=np.int64)
            self._later = estimates_of(features.levels[:, 0])

    def rows_of(self, nodes: npt.NDArray[np.int64]) -> RowIds:
        return nodes if self._features is None else self._features.rows_of(nodes)

    def pages_of(self, rows: RowIds) -> RowPages:
        first = self._first_pages(rows)
        if self.page_bytes % max(1, self.row_bytes) == 0:
            return RowPages.of(first, first)
        return RowPages.of(first, self._last_pages(rows))

    def distinct_pages(self, rows: RowIds) -> Pages:
        pages = self._first_pages(rows)
        if self.page_bytes % max(1, self.row_bytes):
            pages = np.concatenate([pages, self._last_pages(rows)])
        pages.sort()
        return once_each(pages)

    def _first_pages(self, rows: RowIds) -> Pages:
        pages: Pages = rows * self.row_bytes // self.page_bytes
        return pages

    def _last_pages(self, rows: RowIds) -> Pages:
        pages: Pages = (rows * self.row_bytes + max(0, self.row_bytes - 1)) // self.page_bytes
        return pages

    def estimates(self, rows: RowIds) -> Uses:
        if len(self._ends) == 0:
            return super().estimates(rows)
        # Of the page's first row: colder rows in it do not make it colder.
        hottest = rows * self.row_bytes // self.page_bytes * self.page_bytes // max(1, self.row_bytes)
        estimated: Uses = self._later[np.searchsorted(self._ends, hottest, side="right")]
        return estimated

    def read(self, rows: RowIds, out: Bytes, out_rows: RowIds | None, next_use: Uses | None) -> None:
        self._array.gather_rows(rows, out, out_rows=out_rows, next_use=next_use)

    def foresee(self, rows: RowIds, number: int) -> None:
        self._array.note_next_use(rows, np.full(len(rows), number, np.uint64))

    def forget(self) -> None:
        self._array.forget_next_uses(HORIZON, UNKNOWN_USE)

    def counts(self) -> FetchCounts:
        return FetchCounts.of(0, self._array.stats())

    def describe(self) -> dict[str, Any]:
        info = self._array.info()
        return {
            "table": "stored",
            "reader": info.reader,
            "engine": info.engine.engine,
            "direct": info.engine.direct,
            "page_bytes": info.page_bytes,
            "cache_lines": info.cache_lines,
            "notes": [*info.notes, *info.engine.notes],
        }

    def close(self) -> None:
        self._array.close()


def estimates_of(degrees: npt.NDArray[np.int64]) -> Uses:
    """When rows of these degrees are needed: the later the smaller.

    A row is asked for in proportion to its degree (see gids.graph.hotness).
    """
    gap = np.minimum(_COLDEST / (1.0 + degrees.astype(np.float64)), _COLDEST)
    estimated: Uses = np.uint64(HORIZON) + gap.astype(np.uint64)
    return estimated


def as_table(
    name: str, rows: FeatureTable | bam.VirtualArray | torch.Tensor | npt.NDArray[Any]
) -> FeatureTable:
    """The table that a user's value stands for."""
    if isinstance(rows, FeatureTable):
        return rows
    if isinstance(rows, bam.VirtualArray):
        return StoredTable(name, rows)
    return MemoryTable(name, rows)


def open_tables(
    features: Mapping[str, Features], cache: bam.SharedCache, **settings: Any
) -> dict[str, FeatureTable]:
    """Open a data set's features, all through one cache; `settings` go to :func:`bam.open_array`."""
    tables: dict[str, FeatureTable] = {}
    try:
        for name, each in features.items():
            array = bam.open_array(each.source, cache=cache, page_bytes=cache.page_bytes, **settings)
            tables[name] = StoredTable(name, array, each)
    except BaseException:
        for table in tables.values():
            table.close()
        raise
    return tables
