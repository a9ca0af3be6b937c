"""Sampled mini-batches as PyG data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gids.graph.schema import EdgeType
from gids.sampling.block import SampledBatch
from gids.sampling.pyg_import import import_pyg


def to_pyg(
    batch: SampledBatch,
    features: Mapping[str, torch.Tensor] | None = None,
    labels: Mapping[str, torch.Tensor] | None = None,
) -> Any:
    """A `HeteroData`, or `Data` where the graph is homogeneous, with what PyG's `NeighborLoader` puts in.

    Per node type: `n_id`, `num_nodes`, `num_sampled_nodes` (seeds, then new ones of each hop), and where
    there are seeds `batch_size` and `input_id`'s counterpart, the first `batch_size` entries of `n_id`. Per
    edge type: `edge_index`, `num_sampled_edges` (of each hop) and, if they were sampled, edge ids `e_id`.

    In PyG a node is expanded once, in the hop after the one that reached it; `trim_to_layer` relies on it. A
    batch sampled with `resample=False` is just that. Of any other the edges kept are those: what a node drew
    anew in later hops is left out, and nodes that only such edges reached stay, without edges.

    Parameters
    ----------
    batch : SampledBatch
    features : mapping of str to tensor, optional
        Rows of `batch.nodes`; they become `x`.
    labels : mapping of str to tensor, optional
        Of the seeds; they become `y`.

    Raises
    ------
    PackageMissing
        PyG is not installed.
    """
    pyg = import_pyg("conversion to PyG data").data
    is_homogeneous = batch.schema.is_homogeneous
    data: Any = pyg.Data() if is_homogeneous else pyg.HeteroData()
    for node_type, ids in batch.nodes.items():
        store = data if is_homogeneous else data[node_type]
        counts = [each[node_type] for each in batch.node_counts]
        store.n_id = torch.from_numpy(ids)
        store.num_nodes = len(ids)
        store.num_sampled_nodes = np.diff(counts, prepend=0).tolist()
        if counts[0]:
            store.batch_size = counts[0]
        if features is not None and node_type in features:
            store.x = features[node_type]
        if labels is not None and node_type in labels:
            store.y = labels[node_type]
    for edge_type in batch.schema.edge_types:
        store = data if is_homogeneous else data[tuple(edge_type)]
        edge_index, edge_ids, counts = edges_by_hop(batch, edge_type)
        store.edge_index = torch.from_numpy(edge_index)
        store.num_sampled_edges = counts
        if edge_ids is not None:
            store.e_id = torch.from_numpy(edge_ids)
    return data


def edges_by_hop(
    batch: SampledBatch, edge_type: EdgeType
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.int64]] | None, list[int]]:
    """Edges of each hop into the nodes the hop before reached: ends (2, edges), ids if there are, edges per
    hop."""
    ends, ids, counts = [], [], []
    first = 0
    for block in reversed(batch.blocks):
        edges = block.edges[edge_type]
        start = edges.indptr[first]
        degrees = np.diff(edges.indptr[first:])
        destinations = np.repeat(np.arange(first, block.num_dst[edge_type.dst]), degrees)
        ends.append(np.stack((edges.indices[start:], destinations)))
        counts.append(len(destinations))
        if edges.edge_ids is not None:
            ids.append(edges.edge_ids[start:])
        first = block.num_dst[edge_type.dst]
    return np.concatenate(ends, axis=1), np.concatenate(ids) if ids else None, counts
