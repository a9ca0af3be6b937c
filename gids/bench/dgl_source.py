"""Mini-batches from DGL's own sampler and loader, as ours."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bam.errors import ConfigError
from gids.adapters.dgl_graph import dgl_graph_of
from gids.bench.sources import BatchPlan, BatchSource
from gids.graph.graph import Graph
from gids.graph.schema import EdgeType, Schema
from gids.sampling.block import Block, BlockEdges, SampledBatch
from gids.sampling.dgl_import import import_dgl
from gids.sampling.sampler_kind import SamplerKind


class DglSource(BatchSource):
    """`dgl.dataloading.DataLoader` with `NeighborSampler` over a graph in memory.

    Parameters
    ----------
    graph : Graph
    plan : BatchPlan
    workers : int
        Sampling processes.

    Raises
    ------
    PackageMissing
    ConfigError
        Mini-batches are to share random numbers, which DGL's sampler cannot.
    """

    resumes = False

    def __init__(self, graph: Graph, plan: BatchPlan, workers: int = 0) -> None:
        if plan.kind is not SamplerKind.NEIGHBOR:
            expected = "'neighbor' for loaders that sample with DGL, or bench.same_batches = true"
            raise ConfigError("sampling.sampler", plan.kind.value, expected)
        self._dgl = import_dgl()
        self._schema, self._plan, self._workers = graph.schema, plan, workers
        self._graph = dgl_graph_of(graph)
        self._sampler = self._dgl.dataloading.NeighborSampler(list(plan.fanouts))
        self._n = -(-sum(len(ids) for ids in plan.seeds.values()) // plan.batch_size)

    def __len__(self) -> int:
        return self._n

    def settings(self) -> dict[str, Any]:
        plan = self._plan
        return {"fanouts": list(plan.fanouts), "batch_size": plan.batch_size, "seed": plan.seed}

    def batches(self, epoch: int, first: int = 0) -> Iterator[SampledBatch]:
        """Those of an epoch.

        Raises
        ------
        ConfigError
            `first` is not 0: DGL's sampler cannot go on in the middle of an epoch.
        """
        if first:
            raise ConfigError("batch", first, "0 with DGL's sampler, or --same-batches")
        plan = self._plan
        self._dgl.seed(plan.seed + epoch)
        # Shuffled here, and with a generator of its own: DGL would draw from the one that dropout uses.
        random = np.random.default_rng((plan.seed, epoch))
        orders = {name: random.permutation(ids) if plan.shuffle else ids for name, ids in plan.seeds.items()}
        seeds = {name: torch.from_numpy(ids) for name, ids in orders.items()}
        loader = self._dgl.dataloading.DataLoader(
            self._graph,
            seeds if len(self._schema.node_types) > 1 else next(iter(seeds.values())),
            self._sampler,
            batch_size=plan.batch_size,
            shuffle=False,
            drop_last=False,
            num_workers=self._workers,
            generator=torch.Generator(),
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Dataloader CPU affinity opt is not enabled")
            iterator = iter(loader)
        for number, (input_nodes, _, blocks) in enumerate(iterator):
            begin = time.perf_counter()
            batch = sampled_batch(self._schema, input_nodes, blocks, epoch, number)
            self.adapt_s += time.perf_counter() - begin
            yield batch


def sampled_batch(
    schema: Schema,
    input_nodes: Mapping[str, torch.Tensor] | torch.Tensor,
    blocks: Sequence[Any],
    epoch: int,
    number: int,
) -> SampledBatch:
    """A `SampledBatch` from what DGL's loader yields."""
    if isinstance(input_nodes, torch.Tensor):
        input_nodes = {schema.node_types[0]: input_nodes}
    nodes = {name: input_nodes[name].numpy().astype(np.int64, copy=False) for name in schema.node_types}
    made = tuple(_block(schema, block) for block in blocks)
    counts = (made[-1].num_dst, *(block.num_src for block in reversed(made)))
    return SampledBatch(schema, nodes, counts, made, epoch, number, resampled=True)


def _block(schema: Schema, block: Any) -> Block:
    num_src = {name: int(block.num_src_nodes(name)) for name in schema.node_types}
    num_dst = {name: int(block.num_dst_nodes(name)) for name in schema.node_types}
    edges = {each: _edges(block, each, num_dst[each.dst]) for each in schema.edge_types}
    return Block(num_src, num_dst, edges)


def _edges(block: Any, edge_type: EdgeType, num_dst: int) -> BlockEdges:
    src, dst = (ids.numpy().astype(np.int64, copy=False) for ids in block.edges(etype=tuple(edge_type)))
    if len(dst) and (np.diff(dst) < 0).any():
        order = np.argsort(dst, kind="stable")
        src, dst = src[order], dst[order]
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(np.bincount(dst, minlength=num_dst), out=indptr[1:])
    return BlockEdges(indptr, np.ascontiguousarray(src))
