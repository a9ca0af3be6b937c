"""From the kernel's flat arrays to a `SampledBatch`: views, nearly no copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gids.graph.csc import Int64Array
from gids.graph.schema import EdgeType, Schema
from gids.sampling.block import Block, BlockEdges, SampledBatch

Int64Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class FlatBatch:
    """A mini-batch as `gids.sampling.batch_kernel.sample_batch` returns it; shapes and meaning stand
    there."""

    nodes: Int64Array
    bases: Int64Array
    node_counts: Int64Matrix
    indptr: Int64Array
    offsets: Int64Matrix
    sources: Int64Array
    edge_ids: Int64Array | None

    def edges(self, hop: int, relation: int, first_indptr: int, length: int) -> BlockEdges:
        first, stop = self.offsets[hop, relation], self.offsets[hop, relation + 1]
        ids = None if self.edge_ids is None else self.edge_ids[first:stop]
        return BlockEdges(
            self.indptr[first_indptr : first_indptr + length + 1], self.sources[first:stop], ids
        )


def assemble(schema: Schema, flat: FlatBatch, epoch: int, batch: int, resampled: bool) -> SampledBatch:
    """Name the parts of a mini-batch; `blocks` in DGL's order.

    The node lists are copied, so that the larger arrays they are part of can be freed; the others are views.
    """
    names = schema.node_types
    counts = [dict(zip(names, row, strict=True)) for row in flat.node_counts.tolist()]
    final = flat.node_counts[-1]
    nodes = {
        name: flat.nodes[base : base + count].copy()
        for name, base, count in zip(names, flat.bases, final, strict=True)
    }
    blocks: list[Block] = []
    expanded = dict.fromkeys(names, 0)
    first_indptr = 0
    for hop in range(len(counts) - 1):
        edges = {}
        for relation, edge_type in enumerate(schema.edge_types):
            length = counts[hop][edge_type.dst] - expanded[edge_type.dst]
            edges[edge_type] = flat.edges(hop, relation, first_indptr, length)
            first_indptr += length + 1
        if not resampled:
            expanded = counts[hop]
            edges = _extended(blocks[0].edges, edges) if blocks else edges
        blocks.insert(0, Block(counts[hop + 1], counts[hop], MappingProxyType(edges)))
    if not resampled:
        blocks = [_shared(block, blocks[0]) for block in blocks]
    return SampledBatch(
        schema, MappingProxyType(nodes), tuple(counts), tuple(blocks), epoch, batch, resampled
    )


def _extended(
    before: Mapping[EdgeType, BlockEdges], added: Mapping[EdgeType, BlockEdges]
) -> dict[EdgeType, BlockEdges]:
    """The edges of earlier hops, and after them those of the nodes expanded now."""
    extended = {}
    for edge_type, new in added.items():
        old = before[edge_type]
        ids = None
        if old.edge_ids is not None and new.edge_ids is not None:
            ids = np.concatenate((old.edge_ids, new.edge_ids))
        indptr = np.concatenate((old.indptr, new.indptr[1:] + old.num_edges))
        extended[edge_type] = BlockEdges(indptr, np.concatenate((old.indices, new.indices)), ids)
    return extended


def _shared(block: Block, largest: Block) -> Block:
    """The same block as views of the first block's arrays, which start with its edges."""
    edges = {}
    for edge_type, own in block.edges.items():
        all_edges, count = largest.edges[edge_type], own.num_edges
        ids = None if all_edges.edge_ids is None else all_edges.edge_ids[:count]
        edges[edge_type] = BlockEdges(all_edges.indptr[: len(own.indptr)], all_edges.indices[:count], ids)
    return Block(block.num_src, block.num_dst, MappingProxyType(edges))
