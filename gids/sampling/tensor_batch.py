"""Mini-batches as torch tensors, of a GPU or of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from gids.graph.schema import EdgeType
from gids.sampling.block import BatchOf, Block, BlockEdges, BlockOf, EdgesOf, SampledBatch


class TensorEdges(EdgesOf[torch.Tensor]):
    """`EdgesOf` tensors."""

    @property
    def num_edges(self) -> int:
        return self.indices.numel()  # len() of a tensor is a function in Python


class TensorBlock(BlockOf[torch.Tensor]):
    """`BlockOf` tensors."""

    edges: Mapping[EdgeType, TensorEdges]


class LoadedBlock(TensorBlock):
    """Of a mini-batch whose tensors are there: no stream has to wait for another before it uses them."""


AnyBlock = Block | TensorBlock


class TensorBatch(BatchOf[torch.Tensor]):
    """`BatchOf` int64 tensors, all of one device.

    Tensors are views of a few larger ones and were made on the stream that was current then; whoever uses
    them on another stream calls `record_stream` (see `torch.Tensor.record_stream`).
    """

    blocks: tuple[TensorBlock, ...]

    @classmethod
    def of(cls, batch: SampledBatch | TensorBatch) -> TensorBatch:
        """The same mini-batch; its tensors share memory with the arrays given."""
        if isinstance(batch, TensorBatch):
            return batch
        nodes = {name: torch.from_numpy(ids) for name, ids in batch.nodes.items()}
        blocks = []
        for block in batch.blocks:
            edges = {
                edge_type: TensorEdges(
                    torch.from_numpy(own.indptr),
                    torch.from_numpy(own.indices),
                    None if own.edge_ids is None else torch.from_numpy(own.edge_ids),
                )
                for edge_type, own in block.edges.items()
            }
            blocks.append(TensorBlock(block.num_src, block.num_dst, MappingProxyType(edges)))
        return cls(
            batch.schema,
            MappingProxyType(nodes),
            batch.node_counts,
            tuple(blocks),
            batch.epoch,
            batch.batch,
            batch.resampled,
        )

    def to(self, device: torch.device | str) -> TensorBatch:
        """The same mini-batch on a device: one copy for all tensors, or itself where it is there."""
        target, tensors = torch.device(device), self._tensors()
        if all(each.device == target for each in tensors):
            return self
        moved = iter(split(torch.cat(tensors).to(target), [len(each) for each in tensors]))
        nodes = {name: next(moved) for name in self.nodes}
        blocks = []
        for block in self.blocks:
            edges = {}
            for edge_type, own in block.edges.items():
                indptr, indices = next(moved), next(moved)
                edges[edge_type] = TensorEdges(indptr, indices, None if own.edge_ids is None else next(moved))
            blocks.append(TensorBlock(block.num_src, block.num_dst, MappingProxyType(edges)))
        return TensorBatch(
            self.schema,
            MappingProxyType(nodes),
            self.node_counts,
            tuple(blocks),
            self.epoch,
            self.batch,
            self.resampled,
        )

    def as_loaded(self) -> TensorBatch:
        """The same, of whose tensors the caller knows that they are there."""
        blocks = tuple(LoadedBlock(each.num_src, each.num_dst, each.edges) for each in self.blocks)
        return TensorBatch(
            self.schema, self.nodes, self.node_counts, blocks, self.epoch, self.batch, self.resampled
        )

    def to_host(self) -> SampledBatch:
        """The same mini-batch as numpy arrays; waits for tensors of a GPU."""
        blocks = []
        for block in self.blocks:
            edges = {
                edge_type: BlockEdges(
                    own.indptr.cpu().numpy(),
                    own.indices.cpu().numpy(),
                    None if own.edge_ids is None else own.edge_ids.cpu().numpy(),
                )
                for edge_type, own in block.edges.items()
            }
            blocks.append(Block(block.num_src, block.num_dst, MappingProxyType(edges)))
        nodes = {name: ids.cpu().numpy() for name, ids in self.nodes.items()}
        return SampledBatch(
            self.schema,
            MappingProxyType(nodes),
            self.node_counts,
            tuple(blocks),
            self.epoch,
            self.batch,
            self.resampled,
        )

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Keep the memory of all tensors until what is queued on `stream` now has run."""
        known = set()
        for tensor in self._tensors():
            whole = tensor if tensor._base is None else tensor._base
            if id(whole) not in known:
                known.add(id(whole))
                if whole.is_cuda:
                    whole.record_stream(stream)

    def _tensors(self) -> list[torch.Tensor]:
        tensors = list(self.nodes.values())
        for block in self.blocks:
            for edges in block.edges.values():
                tensors += [edges.indptr, edges.indices]
                tensors += [] if edges.edge_ids is None else [edges.edge_ids]
        return tensors


def split(tensor: torch.Tensor, sizes: list[int]) -> tuple[torch.Tensor, ...]:
    """Views of parts that stand behind one another."""
    untyped: Any = tensor
    views: tuple[torch.Tensor, ...] = untyped.split(sizes)
    return views
