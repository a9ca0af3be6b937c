"""Four ways to know beforehand how often an epoch asks for each node's features.

``measured``: sample whole epochs and count. ``expected``: the probability that a mini-batch holds a node, hop
by hop,

    w'(u) = 1 - (1 - s(u)) * product over edges u -> v of (1 - r(v))

with `s` the probability of being a seed, and `r(v)` that of `v` being there before the hop and having drawn
the edge in this hop or an earlier one, in each of which it draws `min(1, fanout / degree)` of its edges. That
is exact where the nodes of a mini-batch are independent of each other, and takes one pass over the edges for
each hop. ``pagerank``: weighted reverse PageRank from the seeds (Min et al.: "Graph Neural Network Training
with Data Tiering", KDD 2022; GIDS, section 3.4). ``degree``: edges that a node is the source of, as hot-first
stores are ordered. The last two know an order and no counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from bam.errors import ConfigError
from gids.fetch.expected_requests import (
    USUAL_DISPERSION,
    ExpectedRequests,
    HotnessMethod,
    levels_of_counts,
)
from gids.graph.dataset import Features
from gids.graph.graph import Graph
from gids.graph.hotness import graph_degrees
from gids.graph.progress import Progress, no_progress
from gids.graph.schema import Schema
from gids.sampling.fanouts import ALL, fanout_matrix
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

NodeCounts = dict[str, npt.NDArray[np.float64]]
SeedIds = Mapping[str, npt.ArrayLike]

DAMPING = 0.85
ITERATIONS = 20
#: Rows whose mean count is larger do not tell how regular small counts are.
_REGULAR_UP_TO = 8.0


def expect_requests(
    graph: Graph,
    features: Mapping[str, Features],
    seeds: SeedIds,
    sampler: NeighborSampler,
    *,
    batch_size: int,
    method: HotnessMethod = HotnessMethod.EXPECTED,
    epochs: int = 2,
    first_epoch: int = 0,
    progress: Progress = no_progress,
) -> ExpectedRequests:
    """Requests of an epoch for the rows of every node type that has features.

    Parameters
    ----------
    graph : Graph
    features : mapping of str to Features
    seeds : mapping of str to integers
    sampler : NeighborSampler
        Of the training: its fanouts, and for ``measured`` its seed too.
    batch_size : int
    method : HotnessMethod
    epochs, first_epoch : int
        Epochs that ``measured`` samples.
    progress : Progress

    Raises
    ------
    ConfigError
    """
    if epochs < 1:
        raise ConfigError("epochs", epochs, "at least 1")
    batches = SeedBatches(seeds, graph.schema, batch_size=batch_size, shuffle=True, seed=sampler.seed)
    dispersion = USUAL_DISPERSION
    if method is HotnessMethod.MEASURED:
        sampled = [
            _sampled_counts(graph, batches, sampler, first_epoch + number, progress)
            for number in range(epochs)
        ]
        counts = {name: np.mean([each[name] for each in sampled], axis=0) for name in sampled[0]}
        if epochs > 1:
            dispersion = _dispersion(sampled)
    elif method is HotnessMethod.EXPECTED:
        counts = _expected_counts(graph, batches, sampler, progress)
    elif method is HotnessMethod.PAGERANK:
        counts = _scaled(_page_rank(graph, seeds, progress), len(batches))
    else:
        counts = _scaled(
            {name: graph_degrees(graph, name).astype(np.float64) for name in features}, len(batches)
        )
    return ExpectedRequests(
        method,
        len(batches),
        epochs if method is HotnessMethod.MEASURED else 0,
        dispersion,
        {name: _levels_by_row(each, counts[name]) for name, each in features.items()},
        {
            "fanouts": repr(sampler.layers),
            "batch_size": batch_size,
            "seed": sampler.seed,
            "edges": graph.num_edges,
        },
    )


def _levels_by_row(features: Features, counts: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    levels = levels_of_counts(counts)
    if features.rank is None:
        return levels
    by_row = np.empty_like(levels)
    by_row[features.rank] = levels
    return by_row


def _sampled_counts(
    graph: Graph, batches: SeedBatches, sampler: NeighborSampler, epoch: int, progress: Progress
) -> NodeCounts:
    counts = {name: np.zeros(count) for name, count in graph.schema.num_nodes.items()}
    bar = progress(f"epoch {epoch}", len(batches), 0)
    try:
        for number in range(len(batches)):
            seeds = batches.batch(epoch, number)
            batch = sampler.sample(graph, seeds.nodes, epoch=epoch, batch=seeds.number)
            for name, nodes in batch.nodes.items():
                counts[name][nodes] += 1  # they are distinct
            bar.update(1)
    finally:
        bar.close()
    return counts


def _dispersion(epochs: list[NodeCounts]) -> float:
    """Variance over mean of rows with small counts, all together."""
    variance = mean = 0.0
    for name in epochs[0]:
        table = np.stack([each[name] for each in epochs])
        means = table.mean(axis=0)
        small = (means > 0) & (means <= _REGULAR_UP_TO)
        variance += float(table[:, small].var(axis=0, ddof=1).sum())
        mean += float(means[small].sum())
    return min(1.0, variance / mean) if mean else USUAL_DISPERSION


def _expected_counts(
    graph: Graph, batches: SeedBatches, sampler: NeighborSampler, progress: Progress
) -> NodeCounts:
    n_batches, schema = max(1, len(batches)), graph.schema
    held = {name: np.zeros(count) for name, count in schema.num_nodes.items()}
    for number in range(len(batches)):
        for name, nodes in batches.batch(0, number).nodes.items():
            held[name][nodes] = 1 / n_batches
    seeds, before = held, {name: np.zeros_like(each) for name, each in held.items()}
    # Of each relation: the probability that a node is there and has not drawn a given one of its edges yet.
    undrawn = [np.zeros(schema.num_nodes[edge_type.dst]) for edge_type in schema.edge_types]
    fanouts = fanout_matrix(sampler.layers, schema)
    bar = progress("expected requests", fanouts.size, 0)
    try:
        for hop in fanouts.tolist():
            missed = {name: np.zeros_like(each) for name, each in held.items()}
            for number, edge_type in enumerate(schema.edge_types):
                csc, name = graph[edge_type], edge_type.dst
                new = held[name] - before[name]
                stay = 1 - _drawn_share(np.diff(csc.indptr), hop[number])
                undrawn[number] = stay * new + undrawn[number] * (stay if sampler.resample else 1)
                _miss(csc.indptr, csc.indices, held[name] - undrawn[number], missed[edge_type.src])
                bar.update(1)
            before, held = held, {name: 1 - (1 - seeds[name]) * np.exp(missed[name]) for name in held}
    finally:
        bar.close()
    return {name: each * n_batches for name, each in held.items()}


def _drawn_share(degrees: npt.NDArray[np.int64], fanout: int) -> npt.NDArray[np.float64]:
    """Share of its edges that each node draws."""
    if fanout == ALL:
        return np.ones(len(degrees))
    return np.minimum(1, fanout / np.maximum(1, degrees))


@njit(cache=True, nogil=True)
def _miss(indptr: Any, indices: Any, drawn: Any, missed: Any) -> None:
    """Add up the logarithms of the probability that no edge reaches each source."""
    for node in range(len(indptr) - 1):
        if drawn[node] <= 0:
            continue
        logarithm = np.log1p(-min(drawn[node], 1 - 1e-9))
        for at in range(indptr[node], indptr[node + 1]):
            missed[indices[at]] += logarithm


def _page_rank(graph: Graph, seeds: SeedIds, progress: Progress) -> NodeCounts:
    schema = graph.schema
    restart = {name: np.zeros(count) for name, count in schema.num_nodes.items()}
    total = sum(len(np.asarray(nodes)) for nodes in seeds.values())
    for name, nodes in seeds.items():
        restart[name][np.asarray(nodes)] = 1 / max(1, total)
    rank, relations = restart, _relations_into(graph, schema)
    bar = progress("reverse PageRank", ITERATIONS, 0)
    try:
        for _ in range(ITERATIONS):
            flow = {name: np.zeros_like(each) for name, each in rank.items()}
            for edge_type, csc in graph.relations.items():
                name = edge_type.dst
                _spread(csc.indptr, csc.indices, rank[name], relations[name], flow[edge_type.src])
            rank = {name: (1 - DAMPING) * restart[name] + DAMPING * flow[name] for name in rank}
            bar.update(1)
    finally:
        bar.close()
    return rank


def _relations_into(graph: Graph, schema: Schema) -> dict[str, npt.NDArray[np.int64]]:
    """Relations in which each node has in-edges: its rank is divided among them."""
    counts = {name: np.zeros(count, np.int64) for name, count in schema.num_nodes.items()}
    for edge_type, csc in graph.relations.items():
        counts[edge_type.dst] += np.diff(csc.indptr) > 0
    return counts


@njit(cache=True, nogil=True)
def _spread(indptr: Any, indices: Any, rank: Any, relations: Any, flow: Any) -> None:
    for node in range(len(indptr) - 1):
        degree = indptr[node + 1] - indptr[node]
        if degree == 0 or rank[node] == 0:
            continue
        share = rank[node] / (degree * relations[node])
        for at in range(indptr[node], indptr[node + 1]):
            flow[indices[at]] += share


def _scaled(counts: NodeCounts, n_batches: int) -> NodeCounts:
    """With the most wanted node in every mini-batch; an order has no unit of its own."""
    largest = max((float(each.max()) for each in counts.values() if len(each)), default=0.0)
    return {name: each * (n_batches / largest) if largest else each for name, each in counts.items()}
