"""Neighbour sampling of heterogeneous graphs, the same bits whoever computes them.

**What a mini-batch is.** Given seeds, fanouts, and the numbers (seed, epoch, batch):

1. The nodes of each type start as the seeds of that type, in their order.
2. For hop 0, 1 ... and each edge type `(s, rel, d)` in the schema's order, every known node of type `d`, in
   order, takes of its `degree` in-edges

   - none, if the fanout is 0 or the degree is 0;
   - all, in stored order, if the fanout is -1, or if it is at least the degree and edges are not replaced;
   - with replacement: for draw `j` = 0 ... fanout - 1, the edge at position `below(degree)`;
   - without (Floyd: "A sample of brilliance", CACM 1987): for draw `j` = 0 ... fanout - 1, with
     `t = below(degree - fanout + j + 1)`, the edge at position `t`, or at `degree - fanout + j` if an earlier
     draw has `t`. Which edges are taken is unbiased; in which order they come is not random.

   Draws are those of `gids.sampling.random` for (seed, epoch, batch, hop, edge type), item = node id,
   draw = `j`.
3. After the hop, the sources of its edges, edge type by edge type and edge by edge, are appended to the nodes
   of their type when they are not there yet. A local id is a position in these lists.
4. The hop's edges are one block; hop 0 makes the last one, as in DGL.

All of it is data-parallel: step 2 needs a node only, its result's place is a prefix sum, and step 3 ranks
nodes by their first appearance. A node's work is bounded by the fanout: membership is looked up among the
earlier draws (fanout up to 64) or in a table of 2 to 4 times fanout slots (above), never in anything that
grows with the degree.

With `resample=False` (PyG's way) a hop expands only the nodes that the hop before it reached, and others
keep the edges they have; so every node draws once, and each block holds the next one's edges as its first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from bam.errors import ConfigError
from gids.graph.graph import Graph
from gids.sampling.assemble import FlatBatch, assemble
from gids.sampling.block import SampledBatch
from gids.sampling.fanouts import Fanouts, layers_of
from gids.sampling.launch import GraphArguments, Seeds, failure, flat_seeds, run_kernel

if TYPE_CHECKING:
    from gids.sampling.shared_draws import SharedDraws


class NeighborSampler:
    """Samples in-neighbours per edge type, layer by layer, into blocks.

    A call depends on its arguments and the sampler's settings only, so one sampler may serve any number of
    threads.

    Parameters
    ----------
    fanouts : list of (int or dict of edge type to int), dict of edge type to list of int, or int
        Neighbours per node and edge type, one entry per layer of the network, the first layer first as in
        DGL; so the last one applies to the seeds (PyG lists them the other way round). -1 takes all, 0 none.
        A dict names every edge type; an int is a single layer.
    replace : bool
        Draw with replacement: a node with a neighbour then gets exactly `fanout` edges.
    edge_dir : str
        "in", the only direction messages flow in a block.
    return_edge_ids : bool
        Give the graph's edge ids too.
    resample : bool
        True: at each hop every known node draws anew, as in DGL. False: only nodes new in the hop before
        draw, and all keep the edges they have, as in PyG.
    seed : int
        From 0 to 2^64 - 1.
    threads : int
        Threads that work on one mini-batch. With 1 no thread pool is touched, and several mini-batches at
        once, each in a thread of its own, scale better; more shorten the wait for a large one. Results do
        not depend on it.

    Raises
    ------
    ConfigError
        A setting is out of its range.
    """

    #: Random numbers that nodes or mini-batches have in common; see `gids.sampling.shared_draws`.
    shared: SharedDraws | None = None

    def __init__(
        self,
        fanouts: Fanouts,
        *,
        replace: bool = False,
        edge_dir: str = "in",
        return_edge_ids: bool = False,
        resample: bool = True,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        if edge_dir != "in":
            raise ConfigError("edge_dir", edge_dir, "'in'; for out-edges sample the reversed relations")
        self.layers = layers_of(fanouts)
        self.replace, self.resample = bool(replace), bool(resample)
        self.return_edge_ids = bool(return_edge_ids)
        self.seed = checked_setting("seed", seed, 2**64)
        self.threads = checked_setting("threads", threads, 2**16, smallest=1)
        self._known_graphs: WeakKeyDictionary[Graph, GraphArguments] = WeakKeyDictionary()
        self._expected_nodes = 0

    def sample(self, graph: Graph, seeds: Seeds, *, epoch: int = 0, batch: int = 0) -> SampledBatch:
        """Sample one mini-batch.

        Parameters
        ----------
        graph : Graph
        seeds : mapping of str to integers, or integers
            Distinct node ids of each type; a plain array where the graph has one node type.
        epoch, batch : int
            Number of the epoch, and of the mini-batch in it over all ranks; each from 0 to 2^32 - 1.

        Raises
        ------
        UnknownNodeType, NodeOutOfRange, DuplicateSeed
            The seeds do not fit the graph.
        GraphError
            The graph's arrays are damaged where the sampler looked.
        """
        epoch, batch = self.checked_numbers(epoch, batch)
        known = self._known(graph)
        arguments = (
            *(known.table, known.num_nodes, known.fanouts),
            *(self.replace, self.resample, self.return_edge_ids),
            *flat_seeds(seeds, graph.schema),
            *(np.uint64(self.seed), epoch, batch, self._expected_nodes),
        )
        status, nodes, bases, node_counts, indptr, offsets, sources, edge_ids = run_kernel(
            self.threads,
            arguments,
            None if self.shared is None else (int(self.shared.by_source), self.shared.kappa),
        )
        if status[0]:
            raise failure(status.tolist(), graph)
        ids = edge_ids if self.return_edge_ids else None
        flat = FlatBatch(nodes, bases, node_counts, indptr, offsets, sources, ids)
        self._expected_nodes = int(flat.node_counts[-1].sum())
        return assemble(graph.schema, flat, epoch, batch, self.resample)

    def check(self, graph: Graph) -> None:
        """Whether the fanouts fit a graph.

        Raises
        ------
        UnknownEdgeType, ConfigError
        """
        self._known(graph)

    def _known(self, graph: Graph) -> GraphArguments:
        known = self._known_graphs.get(graph)
        if known is None:
            known = self._known_graphs[graph] = GraphArguments.of(graph, self.layers)
        return known

    def checked_numbers(self, epoch: int, batch: int) -> tuple[int, int]:
        """Both as plain ints; ConfigError where `sample` does not take them."""
        return checked_setting("epoch", epoch, 2**32), checked_setting("batch", batch, 2**32)


def checked_setting(setting: str, value: int, limit: int, smallest: int = 0) -> int:
    """`value` as an int; ConfigError unless it is one from `smallest` to below `limit`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not smallest <= value < limit:
        raise ConfigError(setting, value, f"an int from {smallest} to {limit - 1}")
    return int(value)
