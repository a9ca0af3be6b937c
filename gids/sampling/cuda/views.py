"""Where the parts of a mini-batch lie in its few arrays, and the blocks as views of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from gids.graph.csc import Int64Array
from gids.graph.schema import Schema
from gids.sampling.tensor_batch import TensorBlock, TensorEdges, split

Int64Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True)
class Places:
    """Where the column pointers and edges of each hop and relation go.

    With `resample` hops stand behind one another, and in each the relations. Without, relations do, and in
    each the hops: then a relation's arrays up to some hop are the arrays of that hop's block, because a node
    keeps the edges it has.

    Attributes
    ----------
    items, edges : int64 array, shape (hops, edge types)
        How many each has.
    table : int64 array
        `gids::Output`: item_places, edge_addends, edge_places.
    num_pointers, num_edges : int
        Entries of the arrays.
    resample : bool
    """

    items: Int64Matrix
    edges: Int64Matrix
    table: Int64Array
    num_pointers: int
    num_edges: int
    resample: bool

    @classmethod
    def of(cls, item_firsts: Int64Array, edge_firsts: Int64Array, relations: int, resample: bool) -> Places:
        """From the flat tables of a report."""
        items = (np.diff(item_firsts) - 1).reshape(-1, relations)
        edges = np.diff(edge_firsts).reshape(-1, relations)
        if resample:
            table = np.concatenate((item_firsts[:-1], np.zeros(items.size, np.int64), edge_firsts[:-1]))
            num_pointers = int(item_firsts[-1])
        else:
            items_before, edges_before = np.cumsum(items, axis=0) - items, np.cumsum(edges, axis=0) - edges
            table = np.concatenate(
                (
                    (items_before + _starts(items.sum(axis=0) + 1)).ravel(),
                    edges_before.ravel(),
                    (edges_before + _starts(edges.sum(axis=0))).ravel(),
                )
            )
            num_pointers = int(items.sum()) + relations
        return cls(items, edges, table, num_pointers, int(edge_firsts[-1]), resample)


def _starts(counts: Int64Array) -> Int64Array:
    return np.cumsum(counts) - counts


def blocks_of(
    schema: Schema,
    node_counts: Sequence[Mapping[str, int]],
    places: Places,
    indptr: torch.Tensor,
    sources: torch.Tensor,
    edge_ids: torch.Tensor | None,
) -> tuple[TensorBlock, ...]:
    """Blocks in DGL's order, as views of the arrays."""
    hops = _resampled_hops if places.resample else _extended_hops
    blocks = [
        TensorBlock(after, before, MappingProxyType(dict(zip(schema.edge_types, edges, strict=True))))
        for before, after, edges in zip(
            node_counts[:-1], node_counts[1:], hops(places, indptr, sources, edge_ids), strict=True
        )
    ]
    return tuple(reversed(blocks))


def _resampled_hops(
    places: Places, indptr: torch.Tensor, sources: torch.Tensor, edge_ids: torch.Tensor | None
) -> list[list[TensorEdges]]:
    edges = _split(indptr, sources, edge_ids, (places.items + 1).ravel(), places.edges.ravel())
    relations = places.edges.shape[1]
    return [edges[first : first + relations] for first in range(0, len(edges), relations)]


def _extended_hops(
    places: Places, indptr: torch.Tensor, sources: torch.Tensor, edge_ids: torch.Tensor | None
) -> list[list[TensorEdges]]:
    """The last hop has the whole of each relation, those before it the beginnings.

    Views are made by one call for all relations: threads share Python's lock, and each call gives it away.
    """
    items, counts = np.cumsum(places.items, axis=0), np.cumsum(places.edges, axis=0)
    hops = []
    for hop in range(len(items) - 1):
        pointers = _and_rest(items[hop] + 1, items[-1] + 1)
        hops.append(_split(indptr, sources, edge_ids, pointers, _and_rest(counts[hop], counts[-1]))[::2])
    return [*hops, _split(indptr, sources, edge_ids, items[-1] + 1, counts[-1])]


def _and_rest(first: Int64Array, whole: Int64Array) -> Int64Array:
    """Sizes of the first part and of the rest of each, in turns."""
    return np.stack((first, whole - first), axis=1).ravel()


def _split(
    indptr: torch.Tensor,
    sources: torch.Tensor,
    edge_ids: torch.Tensor | None,
    pointers: Int64Array,
    counts: Int64Array,
) -> list[TensorEdges]:
    sizes = counts.tolist()
    ids = [None] * len(sizes) if edge_ids is None else split(edge_ids, sizes)
    return [
        TensorEdges(*each)
        for each in zip(split(indptr, pointers.tolist()), split(sources, sizes), ids, strict=True)
    ]
