"""CSC arrays of one relation from an edge file that need not fit in memory.

1. `indptr`: go through the file and count in-edges, as often as the counters of all nodes need it.
2. Deal the edges to buckets, runs of destination nodes that fit in memory, in one temporary file.
3. Sort each bucket by destination, keeping the order of the file, and write its part of `indices`.

So a node's in-edges stand in the order of the file, its added self loop last: what a stable sort of all edges
in memory would give. Nothing allocated here is larger than a quarter of ``memory_bytes``, or half for the
counters, and all that is held at once stays below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph import csc_kernels as kernels
from gids.graph.chunked import disk_full_named, write_whole
from gids.graph.edge_array import EDGE_BYTES, EdgeArray
from gids.graph.journal import Journal
from gids.graph.npy_text import npy_header
from gids.graph.progress import Progress
from gids.graph.relations import RelationPlan
from gids.graph.schema import EdgeType

INDPTR_FILE, INDICES_FILE = "indptr.npy", "indices.npy"
_INT32_MAX = np.iinfo(np.int32).max


@dataclass(frozen=True)
class CscBuild:
    """Where and within which bound the arrays of one relation are built.

    Attributes
    ----------
    plan : RelationPlan
    n_src, n_dst : int
    folder : Path
        Gets ``indptr.npy`` and ``indices.npy``.
    memory_bytes : int
    """

    plan: RelationPlan
    n_src: int
    n_dst: int
    folder: Path
    memory_bytes: int

    @property
    def index_dtype(self) -> np.dtype[np.generic]:
        """int32 where node ids fit, as in :class:`gids.graph.csc.Csc`."""
        return np.dtype(np.int32 if self.n_src <= _INT32_MAX else np.int64)

    @property
    def pair_dtype(self) -> np.dtype[np.generic]:
        """Of the temporary file."""
        return np.dtype(np.int32 if max(self.n_src, self.n_dst) <= _INT32_MAX else np.int64)

    @property
    def n_read(self) -> int:
        """Edges gone through in one pass."""
        return self.plan.edges.n_edges * len(self.plan.source_columns)

    def output_bytes(self, n_loops: int) -> int:
        """Bytes of both arrays, when the edge file has so many loops."""
        dropped = n_loops * len(self.plan.source_columns) if self.plan.drop_loops else 0
        n_edges = self.n_read - dropped + (self.n_dst if self.plan.add_loops else 0)
        return 256 + 8 * (self.n_dst + 1) + self.index_dtype.itemsize * n_edges

    @property
    def temporary_bytes(self) -> int:
        """Bytes of the temporary file, at most."""
        return 2 * self.pair_dtype.itemsize * self.n_read

    def chunks(self) -> Iterator[tuple[npt.NDArray[np.int64], int]]:
        """Edges in order, a few at a time, with the column of the source ids."""
        for column in self.plan.source_columns:
            for edges in self.plan.edges.chunks(self.memory_bytes):
                yield edges, column


def check_edges(
    journal: Journal,
    stored: EdgeType,
    stored_edges: EdgeArray,
    counts: Mapping[str, int],
    memory_bytes: int,
    progress: Progress,
) -> int:
    """Check every id of an edge file; the number of self loops in it.

    Raises
    ------
    DatasetError
        An id is not a node.
    """
    step = f"{stored}: check"
    known = journal.result(step)
    if known is not None:
        return int(known["n_loops"])
    bar = progress(step, stored_edges.n_edges * EDGE_BYTES, 0)
    n_loops = first = 0
    try:
        for edges in stored_edges.chunks(memory_bytes):
            row, column, loops = kernels.scan_edges(edges, counts[stored.src], counts[stored.dst])
            if row >= 0:
                node_type = (stored.src, stored.dst)[column]
                raise DatasetError(
                    stored_edges.path,
                    f"{node_type} ids from 0 to {counts[node_type] - 1}",
                    f"{edges[row, column]} in column {column} of row {first + row}",
                )
            n_loops, first = n_loops + int(loops), first + len(edges)
            bar.update(edges.nbytes)
    finally:
        bar.close()
    n_loops = n_loops if stored.src == stored.dst else 0
    journal.record(step, {"n_loops": n_loops})
    return n_loops


def build_csc(journal: Journal, build: CscBuild, progress: Progress) -> int:
    """Build both arrays, or what of them an earlier run did not finish; the number of edges."""
    build.folder.mkdir(parents=True, exist_ok=True)
    name, temporary = str(build.plan.edge_type), build.folder / "edges.tmp"
    step = f"{name}: indptr"
    counted = journal.result(step)
    if counted is None:
        counted = journal.record(step, {"n_edges": _write_indptr(build, step, progress)})
    n_edges = int(counted["n_edges"])
    step = f"{name}: indices"
    if journal.result(step) is None:
        starts = _bucket_starts(build)
        if journal.result(f"{name}: deal") is None:
            _deal(build, starts, temporary, f"{name}: deal", progress)
            journal.record(f"{name}: deal", {})
        _write_indices(build, starts, temporary, n_edges, step, progress)
        journal.record(step, {})
    temporary.unlink(missing_ok=True)
    return n_edges


def count_column(
    build: CscBuild, of_sources: bool, first_node: int, counts: npt.NDArray[np.int64], bar: Any
) -> None:
    """Add the in-edges (or with `of_sources` the out-edges) of nodes ``first_node``, … to `counts`.

    Self loops that are added count too.
    """
    for edges, source in build.chunks():
        column = source if of_sources else 1 - source
        kernels.count_ids(edges, column, build.plan.drop_loops, first_node, counts)
        bar.update(edges.nbytes)
    if build.plan.add_loops:
        counts += 1


def _write_indptr(build: CscBuild, step: str, progress: Progress) -> int:
    block_nodes = max(1, build.memory_bytes // 2 // 8)
    blocks = range(0, build.n_dst, block_nodes)
    path = build.folder / INDPTR_FILE
    bar = progress(step, build.n_read * EDGE_BYTES * len(blocks), 0)
    total = 0
    try:
        with disk_full_named(path, 8 * build.n_dst), open(path, "wb") as stream:
            stream.write(npy_header((build.n_dst + 1,), np.dtype(np.int64)))
            stream.write(np.zeros(1, np.int64).data)
            for first in blocks:
                counts = np.zeros(min(block_nodes, build.n_dst - first), np.int64)
                count_column(build, False, first, counts, bar)
                np.cumsum(counts, out=counts)
                counts += total
                total = int(counts[-1])
                stream.write(counts.data)
                del counts
            stream.flush()
            os.fsync(stream.fileno())
    finally:
        bar.close()
    return total


def _indptr_part(build: CscBuild, first: int, count: int) -> npt.NDArray[np.int64]:
    """``indptr[first : first + count]`` from its file."""
    return np.fromfile(build.folder / INDPTR_FILE, np.int64, count, offset=_indptr_begin(build) + 8 * first)


def _indptr_begin(build: CscBuild) -> int:
    return len(npy_header((build.n_dst + 1,), np.dtype(np.int64)))


def _bucket_starts(build: CscBuild) -> npt.NDArray[np.int64]:
    """First node of each bucket."""
    max_edges, max_nodes = build.memory_bytes // 4 // 16, build.memory_bytes // 8 // 16
    starts = [0]
    state = np.zeros(2, np.int64)
    scratch = np.empty(max_nodes, np.int64)
    for first in range(0, build.n_dst, max_nodes):
        count = min(max_nodes, build.n_dst - first)
        part = _indptr_part(build, first, count + 1)
        n_out = kernels.cut_buckets(part, first, max_edges, max_nodes, state, scratch, 0)
        starts.extend(scratch[:n_out].tolist())
    return np.array(starts, np.int64)


def _deal(
    build: CscBuild, starts: npt.NDArray[np.int64], temporary: Path, step: str, progress: Progress
) -> None:
    """Write the (source, destination) pairs of each bucket to its own region of the temporary file."""
    pair_bytes = 2 * build.pair_dtype.itemsize
    heads = [_first_pair(build, int(node)) for node in starts]
    bounds = np.zeros(len(starts) + 1, np.int64)
    bar = progress(step, build.n_read * EDGE_BYTES, 0)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with disk_full_named(temporary, build.temporary_bytes):
            for edges, source in build.chunks():
                buckets = np.empty(len(edges), np.int32)
                pairs = np.empty((len(edges), 2), build.pair_dtype)
                kernels.deal_edges(edges, source, build.plan.drop_loops, starts, buckets, pairs, bounds)
                for bucket in np.flatnonzero(np.diff(bounds)).tolist():
                    piece = pairs[bounds[bucket] : bounds[bucket + 1]]
                    write_whole(descriptor, piece.data, heads[bucket] * pair_bytes)
                    heads[bucket] += len(piece)
                bar.update(edges.nbytes)
            os.fsync(descriptor)
    finally:
        bar.close()
        os.close(descriptor)


def _first_pair(build: CscBuild, node: int) -> int:
    """Number of pairs that go before those into `node` in the temporary file."""
    return int(_indptr_part(build, node, 1)[0]) - (node if build.plan.add_loops else 0)


def _write_indices(
    build: CscBuild,
    starts: npt.NDArray[np.int64],
    temporary: Path,
    n_edges: int,
    step: str,
    progress: Progress,
) -> None:
    path = build.folder / INDICES_FILE
    header = npy_header((n_edges,), build.index_dtype)
    bar = progress(step, n_edges * build.index_dtype.itemsize, 0)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with disk_full_named(path, n_edges * build.index_dtype.itemsize):
            write_whole(descriptor, memoryview(header), 0)
            os.ftruncate(descriptor, len(header) + n_edges * build.index_dtype.itemsize)
            for first, end in zip(starts.tolist(), [*starts[1:].tolist(), build.n_dst], strict=True):
                for position, indices in _bucket_indices(build, temporary, first, end):
                    write_whole(descriptor, indices.data, len(header) + position * indices.itemsize)
                    bar.update(indices.nbytes)
            os.fsync(descriptor)
    finally:
        bar.close()
        os.close(descriptor)


def _bucket_indices(
    build: CscBuild, temporary: Path, first: int, end: int
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """(position in `indices`, sources of the edges) of the nodes ``first``, …, ``end - 1``."""
    indptr = _indptr_part(build, first, end - first + 1)
    position, n_edges = int(indptr[0]), int(indptr[-1] - indptr[0])
    first_pair = _first_pair(build, first)
    n_pairs = n_edges - (end - first if build.plan.add_loops else 0)
    if end - first == 1:
        yield from _one_node(build, temporary, first, first_pair, n_pairs, position)
        return
    pairs = _pairs(build, temporary, first_pair, n_pairs)
    indices = np.empty(n_edges, build.index_dtype)
    indptr -= position
    kernels.place_edges(pairs, first, indptr[:-1], build.plan.add_loops, indices)
    yield position, indices


def _one_node(
    build: CscBuild, temporary: Path, node: int, first_pair: int, n_pairs: int, position: int
) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """A bucket of one node needs no sorting, so it may be larger than memory."""
    step = max(1, build.memory_bytes // 4 // 16)
    for begin in range(0, n_pairs, step):
        pairs = _pairs(build, temporary, first_pair + begin, min(step, n_pairs - begin))
        yield position + begin, pairs[:, 0].astype(build.index_dtype)
    if build.plan.add_loops:
        yield position + n_pairs, np.array([node], build.index_dtype)


def _pairs(build: CscBuild, temporary: Path, first: int, count: int) -> npt.NDArray[Any]:
    pair_bytes = 2 * build.pair_dtype.itemsize
    pairs = np.fromfile(temporary, build.pair_dtype, 2 * count, offset=first * pair_bytes).reshape(-1, 2)
    if len(pairs) != count:
        raise DatasetError(str(temporary), f"{count} edges from number {first} on", f"{len(pairs)}")
    return pairs
