"""One relation's edges, grouped by destination node (compressed sparse columns)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import GraphError, NodeOutOfRange

IndexArray = np.ndarray[tuple[int], np.dtype[np.int32 | np.int64]]
Int64Array = np.ndarray[tuple[int], np.dtype[np.int64]]

MAX_DEGREE = 2**32 - 1
"""Neighbours are chosen with 32-bit random words (`gids.sampling.random`)."""

# Entries checked in one step, so that a memory-mapped relation is checked in bounded memory.
_CHECK_ENTRIES = 1 << 24


@dataclass(frozen=True, eq=False)
class Csc:
    """In-edges of every destination node of one relation.

    The sources of the edges into node `v` are `indices[indptr[v]:indptr[v + 1]]`; parallel edges and self
    loops are edges like any other. Arrays may be memory maps; they are held, not copied, and never written.

    Parameters
    ----------
    indptr : int64 array, shape (num_dst + 1,)
        Starts with 0, ends with the number of edges, never falls.
    indices : int32 or int64 array, shape (num_edges,)
        Source node ids.
    num_src : int
        Number of source nodes; every index is below it.
    edge_ids : int64 array, shape (num_edges,), optional
        Ids the user knows the edges by. Without it an edge's id is its position in `indices`.
    name : str
        What messages call it.

    Raises
    ------
    GraphError
        Shapes, dtypes or the ends of `indptr` do not fit. The contents are checked by `verify`, and the
        sampler checks what it touches, so that opening a graph of 4 billion edges costs no read.
    """

    indptr: Int64Array
    indices: IndexArray
    num_src: int
    edge_ids: Int64Array | None = None
    name: str = "csc"

    def __post_init__(self) -> None:
        _require_vector(f"{self.name}: indptr", self.indptr, (np.int64,))
        _require_vector(f"{self.name}: indices", self.indices, (np.int32, np.int64))
        if len(self.indptr) == 0:
            raise GraphError(f"{self.name}: indptr", "num_dst + 1 entries", "an empty array")
        ends = int(self.indptr[0]), int(self.indptr[-1])
        if ends != (0, len(self.indices)):
            raise GraphError(
                f"{self.name}: indptr",
                f"to start with 0 and end with {len(self.indices)} edges",
                f"{ends[0]} and {ends[1]}",
            )
        if self.edge_ids is not None:
            _require_vector(f"{self.name}: edge_ids", self.edge_ids, (np.int64,))
            if len(self.edge_ids) != len(self.indices):
                raise GraphError(
                    f"{self.name}: edge_ids", f"{len(self.indices)} entries", f"{len(self.edge_ids)}"
                )

    @property
    def num_dst(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def degrees(self) -> Int64Array:
        """In-degree of every destination node, int64 of shape (num_dst,)."""
        return np.diff(self.indptr)

    def in_edges(self, node_id: int) -> IndexArray:
        """Sources of the edges into one node, in stored order (a view)."""
        if not 0 <= node_id < self.num_dst:
            raise NodeOutOfRange(self.name, node_id, self.num_dst, 0)
        return self.indices[self.indptr[node_id] : self.indptr[node_id + 1]]

    def verify(self) -> None:
        """Read everything once and check it, in bounded memory.

        Raises
        ------
        GraphError
            `indptr` falls somewhere, a node has more than 2^32 - 1 in-edges, or an index is out of range.
        """
        for first in range(0, self.num_dst, _CHECK_ENTRIES):
            degrees = np.diff(self.indptr[first : first + _CHECK_ENTRIES + 1])
            for wrong, expected in (
                (degrees < 0, "never to fall"),
                (degrees > MAX_DEGREE, "degrees below 2^32"),
            ):
                if wrong.any():
                    at = int(np.argmax(wrong))
                    raise GraphError(
                        f"{self.name}: indptr", expected, f"a step of {degrees[at]} at node {first + at}"
                    )
        for first in range(0, self.num_edges, _CHECK_ENTRIES):
            part = self.indices[first : first + _CHECK_ENTRIES]
            wrong = (part < 0) | (part >= self.num_src)
            if wrong.any():
                at = int(np.argmax(wrong))
                raise GraphError(
                    f"{self.name}: indices",
                    f"ids from 0 to {self.num_src - 1}",
                    f"{part[at]} at position {first + at}",
                )

    @classmethod
    def from_coo(
        cls,
        src: npt.ArrayLike,
        dst: npt.ArrayLike,
        num_src: int,
        num_dst: int,
        name: str = "csc",
    ) -> Csc:
        """Group edges by destination with a stable counting sort: O(edges + nodes), in memory.

        Edges into one node keep their order, nothing is dropped; ids are int32 where they fit. `edge_ids`
        holds the position each edge had, and is left out when that is the position it has now.

        Parameters
        ----------
        src, dst : integers, shape (num_edges,)
            Edge `i` goes from `src[i]` to `dst[i]`.
        num_src, num_dst : int

        Raises
        ------
        GraphError
            The lists differ in length or are no integers.
        NodeOutOfRange
            An id is not a node.
        """
        from gids.graph.counting_sort import group_by_destination

        source, destination = (_ids(f"{name}: {side}", ids) for side, ids in (("src", src), ("dst", dst)))
        if len(source) != len(destination):
            raise GraphError(f"{name}: dst", f"{len(source)} entries as in src", f"{len(destination)}")
        _require_range(f"{name}: src", source, num_src)
        _require_range(f"{name}: dst", destination, num_dst)
        index_dtype = np.int32 if num_src <= np.iinfo(np.int32).max else np.int64
        indptr, indices, edge_ids = group_by_destination(source, destination, num_dst, index_dtype)
        return cls(indptr, indices, num_src, edge_ids, name)


def _ids(where: str, ids: npt.ArrayLike) -> IndexArray:
    array = np.require(ids, requirements=["C_CONTIGUOUS", "ALIGNED"])
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype not in (np.int32, np.int64):
        if not np.issubdtype(array.dtype, np.integer):
            raise GraphError(where, "integers", str(array.dtype))
        array = array.astype(np.int64)
    _require_vector(where, array, (np.int32, np.int64))
    return array


def _require_vector(where: str, array: np.ndarray[Any, Any], dtypes: tuple[type, ...]) -> None:
    if array.ndim != 1 or array.dtype not in dtypes:
        wanted = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise GraphError(where, f"one dimension of {wanted}", f"{array.dtype} of shape {array.shape}")
    if not array.flags.c_contiguous or not array.flags.aligned:
        raise GraphError(where, "contiguous, aligned entries", "a strided or unaligned view; copy it first")


def _require_range(where: str, ids: IndexArray, num_nodes: int) -> None:
    if len(ids) and (ids.min() < 0 or ids.max() >= num_nodes):
        position = int(np.argmax((ids < 0) | (ids >= num_nodes)))
        raise NodeOutOfRange(where, int(ids[position]), num_nodes, position)
