"""Our neighbour sampler with the signature of DGL's, for any of DGL's loaders."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from bam.errors import ConfigError
from gids.adapters.dgl_graph import graph_of
from gids.adapters.rows import worker_epoch
from gids.graph.graph import Graph
from gids.sampling import neighbor
from gids.sampling.dgl_import import import_dgl
from gids.sampling.to_dgl import to_dgl

dgl = import_dgl()


class NeighborSampler(dgl.dataloading.BlockSampler):  # type: ignore[misc,name-defined]  # DGL has no types
    """In the place of `dgl.dataloading.NeighborSampler`.

    Parameters
    ----------
    fanouts, replace, prefetch_node_feats, prefetch_labels, prefetch_edge_feats, output_device
        As in DGL; the last fanout is the one at the seeds.
    edge_dir, prob, mask
        Only DGL's defaults.
    fused
        Taken, and without effect.
    seed : int, optional
        Default: PyTorch's (`torch.manual_seed`).
    threads : int
        See :class:`gids.NeighborSampler`.

    Raises
    ------
    ConfigError
    """

    def __init__(
        self,
        fanouts: Any,
        edge_dir: str = "in",
        prob: str | None = None,
        mask: str | None = None,
        replace: bool = False,
        prefetch_node_feats: Any = None,
        prefetch_labels: Any = None,
        prefetch_edge_feats: Any = None,
        output_device: Any = None,
        fused: bool = True,
        *,
        seed: int | None = None,
        threads: int = 1,
    ) -> None:
        for name, value in (("prob", prob), ("mask", mask)):
            if value is not None:
                raise ConfigError(name, value, "None, or DGL's own sampler")
        super().__init__(prefetch_node_feats, prefetch_labels, prefetch_edge_feats, output_device)
        self.fanouts, self.replace = fanouts, replace
        self._sampler = neighbor.NeighborSampler(
            fanouts,
            replace=replace,
            edge_dir=edge_dir,
            return_edge_ids=True,
            seed=torch.initial_seed() % 2**64 if seed is None else seed,
            threads=threads,
        )
        self._numbers = itertools.count()
        self._graphs: WeakKeyDictionary[Any, Graph] = WeakKeyDictionary()

    def sample_blocks(self, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> tuple[Any, Any, list[Any]]:
        """`(input_nodes, output_nodes, blocks)`; the next call draws other neighbours.

        Raises
        ------
        ConfigError
            Edges are to be excluded.
        UnknownNodeType, NodeOutOfRange, DuplicateSeed
        """
        if exclude_eids is not None:
            raise ConfigError("exclude_eids", type(exclude_eids).__name__, "None, or DGL's own sampler")
        graph = self._graphs.get(g)
        if graph is None:
            graph = self._graphs[g] = graph_of(g)
        named = isinstance(seed_nodes, Mapping)
        seeds = seed_nodes if named else {g.ntypes[0]: seed_nodes}
        batch = self._sampler.sample(
            graph,
            {name: np.asarray(ids, np.int64) for name, ids in seeds.items()},
            epoch=worker_epoch(),
            batch=next(self._numbers) % 2**32,
        )
        _, _, blocks = to_dgl(batch)
        blocks = [self._with_frames(g, block) for block in blocks]
        if not named:
            return blocks[0].srcdata[dgl.NID], seed_nodes, blocks
        inputs = {name: torch.from_numpy(ids) for name, ids in batch.input_nodes.items()}
        return inputs, {name: torch.from_numpy(ids) for name, ids in batch.output_nodes.items()}, blocks

    @staticmethod
    def _with_frames(g: Any, block: Any) -> Any:
        """The graph's own node and edge data, sliced when they are looked at, as DGL's sampler gives."""
        src = [block.srcnodes[name].data[dgl.NID] for name in g.ntypes]
        dst = [block.dstnodes[name].data[dgl.NID] for name in g.ntypes]
        edges = [block.edges[each].data[dgl.EID] for each in g.canonical_etypes]
        utils = dgl.utils
        utils.set_new_frames(block, node_frames=utils.extract_node_subframes_for_block(g, src, dst))
        utils.set_new_frames(block, edge_frames=utils.extract_edge_subframes(g, edges))
        return block if g.idtype == torch.int64 else block.astype(g.idtype)


class MultiLayerFullNeighborSampler(NeighborSampler):
    """In the place of DGL's: all neighbours in each of `num_layers` layers."""

    def __init__(self, num_layers: int, **settings: Any) -> None:
        super().__init__([-1] * num_layers, **settings)
