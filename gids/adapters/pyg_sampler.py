"""Our neighbour sampler as one of PyG's, for any of PyG's node loaders."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput, SamplerOutput

from bam.errors import ConfigError
from gids.adapters.rows import worker_epoch
from gids.graph.graph import Graph
from gids.graph.schema import EdgeTypeLike
from gids.sampling.block import SampledBatch
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch
from gids.sampling.to_pyg import edges_by_hop

NumNeighbors = Sequence[int] | Mapping[EdgeTypeLike, Sequence[int]]


class Sampler(BaseSampler):  # type: ignore[misc]  # PyG has no types
    """Neighbour sampling for `torch_geometric.loader.NodeLoader`, without pyg-lib or torch-sparse.

    Parameters
    ----------
    graph : Graph
    num_neighbors : list of int, or dict of edge type to list of int
        Neighbours per hop as PyG has them, the hop at the seeds first; -1 takes all.
    replace : bool
    seed : int, optional
        Default: PyTorch's (`torch.manual_seed`).
    """

    def __init__(
        self, graph: Graph, num_neighbors: NumNeighbors, *, replace: bool = False, seed: int | None = None
    ) -> None:
        self.graph = graph
        self._sampler = NeighborSampler(
            _layers(num_neighbors),
            replace=replace,
            resample=False,
            return_edge_ids=True,
            seed=torch.initial_seed() % 2**64 if seed is None else seed,
        )
        self._numbers = itertools.count()

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Sample one mini-batch; the next call draws other neighbours."""
        return self.sample(inputs, worker_epoch(), next(self._numbers) % 2**32)

    def sample_from_edges(self, *_: Any, **__: Any) -> Any:
        """Seeds are nodes.

        Raises
        ------
        ConfigError
        """
        raise ConfigError("seeds", "edges", "nodes; for edges pass the nodes at their ends")

    def sample(
        self, inputs: NodeSamplerInput, epoch: int, number: int
    ) -> SamplerOutput | HeteroSamplerOutput:
        """The mini-batch of these seeds, keyed with its epoch and number."""
        name = inputs.input_type or self.graph.schema.node_types[0]
        batch = self._sampler.sample(self.graph, {name: inputs.node.numpy()}, epoch=epoch, batch=number)
        metadata = (inputs.input_id, inputs.time)
        return (
            _homogeneous(batch, metadata) if batch.schema.is_homogeneous else _heterogeneous(batch, metadata)
        )


def nodes_of(output: SamplerOutput | HeteroSamplerOutput, homogeneous_type: str) -> dict[str, Any]:
    """Node ids, a tensor for each type, of whatever a sampler of PyG's kind returned."""
    return dict(output.node) if isinstance(output.node, dict) else {homogeneous_type: output.node}


def _layers(num_neighbors: NumNeighbors) -> Any:
    """PyG's order, seeds first, turned into DGL's, seeds last."""
    if isinstance(num_neighbors, Mapping):
        return {edge_type: list(reversed(hops)) for edge_type, hops in num_neighbors.items()}
    return list(reversed(num_neighbors))


def _homogeneous(batch: SampledBatch, metadata: tuple[Any, Any]) -> SamplerOutput:
    [edges] = edges_by_hop(TensorBatch.of(batch)).values()
    name = batch.schema.node_types[0]
    return SamplerOutput(
        node=torch.from_numpy(batch.nodes[name]),
        row=edges.ends[0],
        col=edges.ends[1],
        edge=edges.edge_ids,
        num_sampled_nodes=_new_nodes(batch, name),
        num_sampled_edges=edges.counts,
        metadata=metadata,
    )


def _heterogeneous(batch: SampledBatch, metadata: tuple[Any, Any]) -> HeteroSamplerOutput:
    edges = {tuple(name): found for name, found in edges_by_hop(TensorBatch.of(batch)).items()}
    return HeteroSamplerOutput(
        node={name: torch.from_numpy(ids) for name, ids in batch.nodes.items()},
        row={name: found.ends[0] for name, found in edges.items()},
        col={name: found.ends[1] for name, found in edges.items()},
        edge={name: found.edge_ids for name, found in edges.items()},
        num_sampled_nodes={name: _new_nodes(batch, name) for name in batch.nodes},
        num_sampled_edges={name: found.counts for name, found in edges.items()},
        metadata=metadata,
    )


def _new_nodes(batch: SampledBatch, name: str) -> list[int]:
    counts = [each[name] for each in batch.node_counts]
    return [later - earlier for earlier, later in zip([0, *counts], counts, strict=False)]
