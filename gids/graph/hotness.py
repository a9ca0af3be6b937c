"""How hot nodes are, by degree: the hot-first order of feature rows, within a memory bound.

A node's features are asked for when it is drawn as somebody's neighbour. In a graph whose relations have
their reverses that happens the more often, the more edges go out of it; so the degree counted here is the
number of edges of the whole graph that a node is the source of. Rows are ordered by falling degree, nodes of
equal degree by id.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gids.graph.chunked import disk_full_named
from gids.graph.csc_build import CscBuild, count_column
from gids.graph.graph import Graph
from gids.graph.npy_text import npy_header
from gids.graph.progress import Progress

#: Degrees from here on count as equal, which bounds the histogram.
MAX_DEGREE = 2**17


@dataclass(frozen=True)
class HotOrder:
    """Where the order of one node type is written.

    Attributes
    ----------
    rank : Path
        npy file: the row of each node's features, int32 or int64.
    levels : Path
        npy file, int64, shape (n, 2): falling degrees and how many rows have each, so a row's degree follows
        from its number.
    order : Path
        Temporary file of int64: the node of each row.
    """

    rank: Path
    levels: Path
    order: Path


def rank_dtype(n_nodes: int) -> np.dtype[Any]:
    """int32 where row numbers fit."""
    return np.dtype(np.int32 if n_nodes <= np.iinfo(np.int32).max else np.int64)


def graph_degrees(graph: Graph, node_type: str) -> npt.NDArray[np.int64]:
    """Edges of the whole graph that each node is the source of, in memory; int64, shape (nodes,)."""
    degrees = np.zeros(graph.schema.num_nodes[node_type], np.int64)
    for edge_type, csc in graph.relations.items():
        if edge_type.src == node_type:
            degrees += np.bincount(csc.indices, minlength=len(degrees))
    return degrees


def rank_by_degree(degrees: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row of each node: falling degree, equal degrees by id."""
    rank = np.empty(len(degrees), np.int64)
    rank[np.argsort(-np.minimum(degrees, MAX_DEGREE), kind="stable")] = np.arange(len(degrees))
    return rank


def hot_rows(
    levels: Mapping[str, npt.NDArray[np.int64]], row_bytes: Mapping[str, int], budget_bytes: int
) -> dict[str, int]:
    """How many of each type's first rows to keep, so that the kept rows are asked for most often per byte.

    Parameters
    ----------
    levels : mapping of str to int64 array, shape (n, 2)
        By node type, as :class:`HotOrder` describes.
    row_bytes : mapping of str to int
    budget_bytes : int
        Of all kept rows together.
    """
    ends = {name: np.cumsum(table[:, 1]) for name, table in levels.items()}
    steps = sorted(
        (-int(degree) / row_bytes[name], name, at)
        for name, table in levels.items()
        for at, degree in enumerate(table[:, 0])
        if degree > 0
    )
    kept = dict.fromkeys(levels, 0)
    for _, name, at in steps:
        wanted = int(ends[name][at]) - kept[name]
        fitting = min(wanted, budget_bytes // row_bytes[name])
        kept[name] += fitting
        budget_bytes -= fitting * row_bytes[name]
        if fitting < wanted:
            break
    return kept


def write_hot_order(
    node_type: str,
    n_nodes: int,
    builds: Sequence[CscBuild],
    files: HotOrder,
    memory_bytes: int,
    progress: Progress,
) -> None:
    """Write the order of a type's nodes; `builds` are the relations that start from it."""
    files.rank.parent.mkdir(parents=True, exist_ok=True)
    degrees = files.order.with_name(files.order.name + ".degrees")
    with disk_full_named(files.rank, n_nodes * (rank_dtype(n_nodes).itemsize + 16)):
        histogram = _write_degrees(node_type, n_nodes, builds, degrees, memory_bytes, progress)
        present = np.flatnonzero(histogram)[::-1]
        _write(files.levels, np.stack([present, histogram[present]], axis=1))
        _write_rank(degrees, histogram, n_nodes, files.rank, memory_bytes)
        _write_order(files, n_nodes, memory_bytes)
    degrees.unlink()


def _write_degrees(
    node_type: str,
    n_nodes: int,
    builds: Sequence[CscBuild],
    path: Path,
    memory_bytes: int,
    progress: Progress,
) -> npt.NDArray[np.int64]:
    """Write each node's degree; how many nodes have each degree."""
    block = max(1, memory_bytes // 4 // 8)
    blocks = range(0, n_nodes, block)
    histogram = np.zeros(MAX_DEGREE + 1, np.int64)
    bar = progress(
        f"{node_type}: degrees",
        16 * sum(build.n_read for build in builds) * len(blocks),
        0,
    )
    try:
        with open(path, "wb") as stream:
            for first in blocks:
                degrees = np.zeros(min(block, n_nodes - first), np.int64)
                for build in builds:
                    count_column(build, True, first, degrees, bar)
                np.minimum(degrees, MAX_DEGREE, out=degrees)
                histogram += np.bincount(degrees, minlength=MAX_DEGREE + 1)
                stream.write(degrees.data)
    finally:
        bar.close()
    return histogram


def _write_rank(
    degrees: Path, histogram: npt.NDArray[np.int64], n_nodes: int, path: Path, memory_bytes: int
) -> None:
    # The first row of each degree: all rows of higher degrees go before it.
    heads = histogram[::-1].cumsum()[::-1] - histogram
    block, dtype = max(1, memory_bytes // 8 // 8), rank_dtype(n_nodes)
    with open(path, "wb") as stream:
        stream.write(npy_header((n_nodes,), dtype))
        for first in range(0, n_nodes, block):
            part = np.fromfile(degrees, np.int64, block, offset=8 * first)
            rank = np.empty(len(part), dtype)
            _take_ranks(part, heads, rank)
            stream.write(rank.data)
        stream.flush()
        os.fsync(stream.fileno())


def _write_order(files: HotOrder, n_nodes: int, memory_bytes: int) -> None:
    """Invert the rank: once through it for each part of the order that fits in memory."""
    dtype = rank_dtype(n_nodes)
    begin, block = len(npy_header((n_nodes,), dtype)), max(1, memory_bytes // 4 // 8)
    with open(files.order, "wb") as stream:
        for low in range(0, n_nodes, block):
            order = np.empty(min(block, n_nodes - low), np.int64)
            for first in range(0, n_nodes, block):
                part = np.fromfile(files.rank, dtype, block, offset=begin + dtype.itemsize * first)
                _invert(part, first, low, order)
            stream.write(order.data)
        stream.flush()
        os.fsync(stream.fileno())


def _write(path: Path, array: npt.NDArray[np.int64]) -> None:
    with open(path, "wb") as stream:
        np.save(stream, array)
        stream.flush()
        os.fsync(stream.fileno())


@njit(cache=True, nogil=True)
def _take_ranks(degrees: Any, heads: Any, rank: Any) -> None:
    for node in range(len(degrees)):
        rank[node] = heads[degrees[node]]
        heads[degrees[node]] += 1


@njit(cache=True, nogil=True)
def _invert(rank: Any, first_node: int, low: int, order: Any) -> None:
    for node in range(len(rank)):
        place = rank[node] - low
        if place >= 0 and place < len(order):
            order[place] = first_node + node
