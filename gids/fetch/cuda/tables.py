"""What a GPU has of each feature table beside its rows: their order, how hot they are, their scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.fetch.expected_requests import ExpectedRequests
from gids.fetch.table import TORCH_DTYPES, MemoryTable, estimates_of
from gids.fetch.window import HORIZON
from gids.graph.dataset import Features

#: Nodes of a type, up to which their row numbers take 8 bytes each on the GPU.
MOST_WIDE_RANKS = 2**24


@dataclass(frozen=True, eq=False)
class GpuTable:
    """Rows of one node type, as a loader on a GPU sees them. Tensors are on the GPU.

    Attributes
    ----------
    name : str
        The node type.
    n_rows : int
    row_shape : tuple of int
    dtype : torch.dtype
        Of the rows as they are stored.
    first_byte : int
        Of the table, in the store's address space.
    in_memory : bool
        Its rows are in the host's memory, where the GPU reads them; they have no pages.
    rank : int32 or int64 tensor, shape (nodes,), optional
        Row of each node; None: node v's row is v.
    scale : float32 tensor, optional
        Of int8 rows.
    levels : uint8 tensor, shape (rows,), optional
        Expected requests (:mod:`gids.fetch.expected_requests`).
    run_ends : int64 tensor, run_uses : uint64 tensor as int64, optional
        Of a hot-first store: when rows of equal degree are needed, by position.
    """

    name: str
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    first_byte: int
    in_memory: bool
    rank: torch.Tensor | None = None
    scale: torch.Tensor | None = None
    levels: torch.Tensor | None = None
    run_ends: torch.Tensor | None = None
    run_uses: torch.Tensor | None = None

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row_shape) * self.dtype.itemsize

    @property
    def device_bytes(self) -> int:
        """Memory of the GPU that it takes."""
        return sum(each.nbytes for each in self._tensors())

    def rows_of(self, nodes: torch.Tensor) -> torch.Tensor:
        """Row numbers of nodes, int64."""
        if self.rank is None:
            return nodes
        rows = self.rank[nodes]
        return rows if rows.dtype == torch.int64 else rows.long()

    def pages_of(self, rows: torch.Tensor, page_bytes: int) -> list[torch.Tensor]:
        """First pages of rows in the store, and last ones where rows can straddle pages."""
        begin = rows * self.row_bytes + self.first_byte
        shift = page_bytes.bit_length() - 1
        if page_bytes % self.row_bytes == 0:
            return [begin >> shift]
        return [begin >> shift, (begin + (self.row_bytes - 1)) >> shift]

    def _tensors(self) -> list[torch.Tensor]:
        found = (self.rank, self.scale, self.levels, self.run_ends, self.run_uses)
        return [each for each in found if each is not None]


@dataclass(frozen=True, eq=False)
class RowSource:
    """Rows of one node type in the host's memory or in files, and what is known of them.

    Attributes
    ----------
    name : str
    n_rows : int
    row_shape : tuple of int
    dtype : torch.dtype
    rows : array, optional
        They are in memory; whoever owns them keeps them unchanged.
    features : Features, optional
        Of a data set.
    """

    name: str
    n_rows: int
    row_shape: tuple[int, ...]
    dtype: torch.dtype
    rows: npt.NDArray[Any] | None = None
    features: Features | None = None

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row_shape) * self.dtype.itemsize

    @classmethod
    def of_features(cls, features: Features) -> RowSource:
        """Of a data set."""
        rows, dtype = None, features.dtype
        if features.description.memory:
            rows = features.description.memory[0].view(dtype.stored).reshape(features.description.shape)
        shape = features.description.shape
        return cls(features.node_type, shape[0], shape[1:], TORCH_DTYPES[dtype], rows, features)

    @classmethod
    def of_rows(cls, name: str, rows: torch.Tensor | npt.NDArray[Any]) -> RowSource:
        """Of a user's array or CPU tensor.

        Raises
        ------
        ConfigError
        """
        table = MemoryTable(name, rows)
        return cls(name, table.n_rows, table.row_shape, table.dtype, table.bytes)

    def device_bytes(self, requests: ExpectedRequests | None) -> int:
        """Memory of the GPU that :meth:`to_gpu` will take, but for what is small."""
        rank = _as_fast_rank(self.features)
        found = 0 if rank is None else rank.nbytes
        if requests is not None and self.name in requests.levels and self.rows is None:
            found += 2 * self.n_rows  # expected requests, and those that an iteration has seen
        return found

    def to_gpu(self, first_byte: int, requests: ExpectedRequests | None, device: torch.device) -> GpuTable:
        """Copy what the GPU needs beside the rows."""
        features, levels, ends, uses = self.features, None, None, None
        if requests is not None and self.rows is None:
            levels = requests.levels.get(self.name)
        if features is not None and features.levels is not None and levels is None and self.rows is None:
            ends = np.cumsum(features.levels[:, 1], dtype=np.int64)
            # One use more than ends: of rows beyond the last, which do not exist.
            uses = np.append(estimates_of(features.levels[:, 0]), np.uint64(2 * HORIZON - 1)).view(np.int64)
        return GpuTable(
            self.name,
            self.n_rows,
            self.row_shape,
            self.dtype,
            first_byte,
            self.rows is not None,
            _copied(_as_fast_rank(features), device),
            _copied(None if features is None else features.scale, device),
            _copied(levels, device),
            _copied(ends, device),
            _copied(uses, device),
        )


def in_request_order(tables: Sequence[GpuTable]) -> list[GpuTable]:
    """Stored ones first; those whose rows have one size stand together, so that a gather copies no ids."""
    return sorted(tables, key=lambda table: (table.in_memory, table.row_bytes, table.name))


def _as_fast_rank(features: Features | None) -> npt.NDArray[Any] | None:
    """Of 8 bytes a node as long as that is little: then row numbers need no conversion."""
    if features is None or features.rank is None:
        return None
    return features.rank.astype(np.int64) if len(features.rank) < MOST_WIDE_RANKS else features.rank


def _copied(array: npt.NDArray[Any] | None, device: torch.device) -> torch.Tensor | None:
    return None if array is None else torch.from_numpy(np.array(array)).to(device)
