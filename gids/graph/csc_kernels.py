"""Inner loops of the out-of-core CSC build. Edges are rows of an int64 array of shape (n, 2)."""

from __future__ import annotations

from typing import Any

from numba import njit


@njit(cache=True, nogil=True)
def scan_edges(edges: Any, n_first: int, n_second: int) -> Any:
    """(row, column) of the first id that is not a node, or (-1, -1); and the number of self loops."""
    n_loops = 0
    for row in range(len(edges)):
        first, second = edges[row, 0], edges[row, 1]
        if first < 0 or first >= n_first:
            return row, 0, n_loops
        if second < 0 or second >= n_second:
            return row, 1, n_loops
        n_loops += first == second
    return -1, -1, n_loops


@njit(cache=True, nogil=True)
def count_ids(edges: Any, column: int, drop_loops: bool, first_node: int, counts: Any) -> Any:
    """Add how often nodes ``first_node``, … stand in a column to `counts`."""
    for row in range(len(edges)):
        node = edges[row, column] - first_node
        if node >= 0 and node < len(counts) and not (drop_loops and edges[row, 0] == edges[row, 1]):
            counts[node] += 1


@njit(cache=True, nogil=True)
def cut_buckets(
    indptr: Any, first_node: int, max_edges: int, max_nodes: int, start: Any, out: Any, n_out: int
) -> Any:
    """Go on cutting the destination nodes into buckets of at most `max_edges` edges and `max_nodes` nodes.

    `indptr` belongs to the nodes ``first_node``, …; `start` is (first node, its indptr) of the bucket under
    way and is updated. A node with more edges than `max_edges` is a bucket of its own. First nodes of buckets
    are appended to `out` from number `n_out` on; returns the new number.
    """
    for at in range(len(indptr) - 1):
        node = first_node + at
        too_many = indptr[at + 1] - start[1] > max_edges or node - start[0] >= max_nodes
        if node > start[0] and too_many:
            start[0], start[1] = node, indptr[at]
            out[n_out] = node
            n_out += 1
    return n_out


@njit(cache=True, nogil=True)
def _bucket_of(node: int, starts: Any) -> Any:
    """The last bucket that starts at or before a node."""
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= node:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def deal_edges(
    edges: Any, source: int, drop_loops: bool, starts: Any, buckets: Any, out: Any, counts: Any
) -> None:
    """Sort (source id, destination id) of a chunk by bucket, keeping the order within each.

    `source` is the column of source ids; `starts` holds each bucket's first node, ascending; `buckets` is
    scratch of the chunk's length; `counts` (buckets + 1) becomes the first row of each bucket in `out`.
    """
    counts[:] = 0
    for row in range(len(edges)):
        if drop_loops and edges[row, 0] == edges[row, 1]:
            buckets[row] = -1
            continue
        bucket = _bucket_of(edges[row, 1 - source], starts)
        buckets[row] = bucket
        counts[bucket + 1] += 1
    for bucket in range(len(counts) - 1):
        counts[bucket + 1] += counts[bucket]
    for row in range(len(edges)):
        bucket = buckets[row]
        if bucket >= 0:
            out[counts[bucket], 0] = edges[row, source]
            out[counts[bucket], 1] = edges[row, 1 - source]
            counts[bucket] += 1
    for bucket in range(len(counts) - 1, 0, -1):
        counts[bucket] = counts[bucket - 1]
    counts[0] = 0


@njit(cache=True, nogil=True)
def place_edges(pairs: Any, first_node: int, heads: Any, add_loops: bool, indices: Any) -> None:
    """Stable counting sort of one bucket: sources of the edges into each node, then its loop.

    `heads` holds the first position of each node in `indices` and is used up.
    """
    for row in range(len(pairs)):
        node = pairs[row, 1] - first_node
        indices[heads[node]] = pairs[row, 0]
        heads[node] += 1
    if add_loops:
        for node in range(len(heads)):
            indices[heads[node]] = first_node + node
