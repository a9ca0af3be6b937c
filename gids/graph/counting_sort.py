"""The counting sort behind `Csc.from_coo`, compiled by numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from gids.graph.csc import IndexArray, Int64Array


def group_by_destination(
    src: IndexArray, dst: IndexArray, num_dst: int, index_dtype: type[np.int32] | type[np.int64]
) -> tuple[Int64Array, IndexArray, Int64Array | None]:
    """`indptr`, sources grouped by destination, and the position each edge had (None when none moved).

    Ids must have been checked against the node counts.
    """
    indptr = np.zeros(num_dst + 1, np.int64)
    indices = np.empty(len(src), index_dtype)
    if _count(dst, indptr):
        indices[:] = src
        return indptr, indices, None
    positions = np.empty(len(src), np.int64)
    _place(src, dst, indptr[:-1].copy(), indices, positions)
    return indptr, indices, positions


@njit(cache=True, nogil=True)
def _count(dst: Any, indptr: Any) -> Any:
    """Fill `indptr`; True when the edges stand in order already."""
    is_sorted = True
    for edge in range(len(dst)):
        indptr[dst[edge] + 1] += 1
        if edge > 0 and dst[edge] < dst[edge - 1]:
            is_sorted = False
    for node in range(1, len(indptr)):
        indptr[node] += indptr[node - 1]
    return is_sorted


@njit(cache=True, nogil=True)
def _place(src: Any, dst: Any, heads: Any, indices: Any, positions: Any) -> None:
    for edge in range(len(dst)):
        head = heads[dst[edge]]
        heads[dst[edge]] = head + 1
        indices[head] = src[edge]
        positions[head] = edge
