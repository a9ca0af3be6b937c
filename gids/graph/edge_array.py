"""Edges as files hold them: pairs, or all sources and then all destinations; read a few at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.graph.igbh import read_into

EDGE_BYTES = 16


@dataclass(frozen=True)
class EdgeArray:
    """Source and destination ids of the edges of one relation.

    Attributes
    ----------
    stored : ArrayDescription
        Whole numbers in one piece of one file: shape (edges, 2), or with `two_rows` (2, edges).
    two_rows : bool
    """

    stored: ArrayDescription
    two_rows: bool = False

    def __post_init__(self) -> None:
        shape, ends = self.stored.shape, 0 if self.two_rows else 1
        if len(shape) != 2 or shape[ends] != 2 or self.stored.stored_dtype.kind not in "iu":
            wanted = "(2, edges)" if self.two_rows else "(edges, 2)"
            found = f"{self.stored.stored_dtype} of shape {shape}"
            raise DatasetError(self.path, f"whole numbers of shape {wanted}: sources and destinations", found)

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.stored.files[0].path

    @property
    def n_edges(self) -> int:
        return self.stored.shape[1 if self.two_rows else 0]

    def read(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Edges ``first``, …: int64, shape (count, 2).

        Raises
        ------
        DatasetError
            The file has become shorter.
        """
        if not self.two_rows:
            return self._items(2 * first, 2 * count).reshape(count, 2).astype(np.int64, copy=False)
        edges = np.empty((count, 2), np.int64)
        for column in (0, 1):
            edges[:, column] = self._items(column * self.n_edges + first, count)
        return edges

    def chunks(self, memory_bytes: int) -> Iterator[npt.NDArray[np.int64]]:
        """All edges in order, an eighth of `memory_bytes` at a time."""
        step = max(1, memory_bytes // 8 // EDGE_BYTES)
        for first in range(0, self.n_edges, step):
            yield self.read(first, min(step, self.n_edges - first))

    def _items(self, first: int, count: int) -> npt.NDArray[Any]:
        found = np.empty(count, self.stored.stored_dtype)
        if count:
            offset = self.stored.layout.extents[0].file_offset + first * found.itemsize
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                read_into(descriptor, self.path, offset, found.view(np.uint8))
            finally:
                os.close(descriptor)
        return found
