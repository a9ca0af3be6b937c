"""What a sampler returns: the nodes of a mini-batch and one block per layer, as plain arrays.

The arrays are numpy's here; `gids.sampling.tensor_batch` has the same with tensors, of a GPU too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from gids.graph.csc import Int64Array
from gids.graph.schema import EdgeType, Schema

if TYPE_CHECKING:
    import torch

Ids = TypeVar("Ids", Int64Array, "torch.Tensor")


@dataclass(frozen=True, eq=False)
class EdgesOf(Generic[Ids]):
    """Edges of one type in a block, grouped by destination node.

    Attributes
    ----------
    indptr : int64 array, shape (num_dst + 1,)
        Edges into destination node `i` stand from `indptr[i]` to `indptr[i + 1]`.
    indices : int64 array, shape (num_edges,)
        Local ids of their source nodes.
    edge_ids : int64 array, shape (num_edges,), or None
        Ids of the edges in the graph, when the sampler was asked for them.
    """

    indptr: Ids
    indices: Ids
    edge_ids: Ids | None = None

    @property
    def num_edges(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, eq=False)
class BlockOf(Generic[Ids]):
    """Messages of one layer, from source to destination nodes of every type (DGL's message flow graph).

    Destination nodes come first among the source nodes of their type: local id `i < num_dst[t]` is the same
    node on both sides.

    Attributes
    ----------
    num_src, num_dst : mapping of str to int
        For every node type of the schema.
    edges : mapping of EdgeType to EdgesOf
        For every edge type of the schema, in its order; those without edges too.
    """

    num_src: Mapping[str, int]
    num_dst: Mapping[str, int]
    edges: Mapping[EdgeType, EdgesOf[Ids]]

    @property
    def num_edges(self) -> int:
        return sum(edges.num_edges for edges in self.edges.values())


@dataclass(frozen=True, eq=False)
class BatchOf(Generic[Ids]):
    """A mini-batch before its features: distinct nodes of each type and one block per layer.

    The nodes of each type are listed once: first the seeds in their order, then what the hop at the seeds
    reached, then what the next hop reached ... So the nodes of any side of any block are the first few of
    this list.

    Attributes
    ----------
    schema : Schema
    nodes : mapping of str to int64 array
        Node ids of every type, possibly none.
    node_counts : tuple of mapping of str to int
        Nodes of each type that are seeds, that are reached within one hop, within two ...: `len(blocks) + 1`
        entries.
    blocks : tuple of BlockOf
        In the order of computation, as in DGL: the first makes use of all nodes, the last ends at the seeds.
    epoch, batch : int
        What the random choice was keyed with.
    resampled : bool
        Whether a node drew new neighbours at every hop (`NeighborSampler`'s `resample`).
    """

    schema: Schema
    nodes: Mapping[str, Ids]
    node_counts: tuple[Mapping[str, int], ...]
    blocks: tuple[BlockOf[Ids], ...]
    epoch: int
    batch: int
    resampled: bool

    @property
    def input_nodes(self) -> Mapping[str, Ids]:
        """Nodes whose features the first layer reads: all."""
        return self.nodes

    @property
    def output_nodes(self) -> Mapping[str, Ids]:
        """The seeds."""
        return {name: self.nodes[name][:count] for name, count in self.node_counts[0].items()}

    @property
    def num_edges(self) -> int:
        """Edges of all blocks together."""
        return sum(block.num_edges for block in self.blocks)

    def src_nodes(self, layer: int) -> Mapping[str, Ids]:
        """Node ids of the source nodes of `blocks[layer]`."""
        return {name: self.nodes[name][:count] for name, count in self.blocks[layer].num_src.items()}

    def dst_nodes(self, layer: int) -> Mapping[str, Ids]:
        """Node ids of the destination nodes of `blocks[layer]`."""
        return {name: self.nodes[name][:count] for name, count in self.blocks[layer].num_dst.items()}


class BlockEdges(EdgesOf[Int64Array]):
    """`EdgesOf` numpy arrays."""

    def destinations(self) -> Int64Array:
        """Local id of each edge's destination node, int64 of shape (num_edges,)."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


class Block(BlockOf[Int64Array]):
    """`BlockOf` numpy arrays."""

    edges: Mapping[EdgeType, BlockEdges]


class SampledBatch(BatchOf[Int64Array]):
    """`BatchOf` numpy arrays."""

    blocks: tuple[Block, ...]
