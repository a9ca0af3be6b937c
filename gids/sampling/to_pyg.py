"""Sampled mini-batches as PyG data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gids.graph.schema import EdgeType
from gids.sampling.block import SampledBatch
from gids.sampling.pyg_import import import_pyg
from gids.sampling.tensor_batch import TensorBatch


def to_pyg(
    batch: SampledBatch | TensorBatch,
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
    batch : SampledBatch or TensorBatch
        Tensors stay where they are; a mini-batch sampled on a GPU is waited for.
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
    tensors = TensorBatch.of(batch)
    edges = edges_by_hop(tensors)
    is_homogeneous = batch.schema.is_homogeneous
    data: Any = pyg.Data() if is_homogeneous else pyg.HeteroData()
    for node_type, ids in tensors.nodes.items():
        store = data if is_homogeneous else data[node_type]
        counts = [each[node_type] for each in batch.node_counts]
        store.n_id = ids
        store.num_nodes = len(ids)
        store.num_sampled_nodes = [
            after - before for before, after in zip([0, *counts], counts, strict=False)
        ]
        if counts[0]:
            store.batch_size = counts[0]
        if features is not None and node_type in features:
            store.x = features[node_type]
        if labels is not None and node_type in labels:
            store.y = labels[node_type]
    for edge_type, sampled in edges.items():
        store = data if is_homogeneous else data[tuple(edge_type)]
        store.edge_index = sampled.ends
        store.num_sampled_edges = sampled.counts
        if sampled.edge_ids is not None:
            store.e_id = sampled.edge_ids
    return data


@dataclass(frozen=True, eq=False)
class EdgesByHop:
    """Edges of one type, each hop's into the nodes that the hop before reached.

    Attributes
    ----------
    ends : int64 tensor, shape (2, edges)
        Local ids: source, destination.
    edge_ids : int64 tensor, shape (edges,), or None
    counts : list of int
        Edges of each hop.
    """

    ends: torch.Tensor
    edge_ids: torch.Tensor | None
    counts: list[int]


def edges_by_hop(batch: TensorBatch) -> dict[EdgeType, EdgesByHop]:
    """Of every edge type. What a node drew anew in a later hop is left out."""
    expanded = [dict.fromkeys(batch.schema.node_types, 0), *batch.node_counts]
    hops = batch.blocks[::-1]
    # Where each hop's begin. Read all at once, because with tensors of a GPU every read is waited for.
    pointers = [
        block.edges[edge_type].indptr[expanded[hop][edge_type.dst]]
        for edge_type in batch.schema.edge_types
        for hop, block in enumerate(hops)
    ]
    starts = iter(torch.stack(pointers).tolist() if pointers else [])
    found = {}
    for edge_type in batch.schema.edge_types:
        ends, ids, counts = [], [], []
        for hop, block in enumerate(hops):
            edges, start, first = block.edges[edge_type], next(starts), expanded[hop][edge_type.dst]
            nodes = torch.arange(first, block.num_dst[edge_type.dst], device=edges.indptr.device)
            counts.append(edges.num_edges - start)
            degrees = edges.indptr[first:].diff()
            destinations = torch.repeat_interleave(nodes, degrees, output_size=counts[-1])
            ends.append(torch.stack((edges.indices[start:], destinations)))
            ids += [] if edges.edge_ids is None else [edges.edge_ids[start:]]
        found[edge_type] = EdgesByHop(torch.cat(ends, dim=1), torch.cat(ids) if ids else None, counts)
    return found
