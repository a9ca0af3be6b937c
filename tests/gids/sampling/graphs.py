"""Small graphs and comparisons for tests of sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from gids.graph.graph import Graph
from gids.graph.schema import EdgeType
from gids.sampling.block import SampledBatch
from gids.sampling.reference import ReferenceBatch, sample
from gids.sampling.shared_draws import SharedDraws

EDGE_TYPES = (("a", "likes", "a"), ("a", "owns", "b"), ("b", "of", "a"), ("b", "of", "c"))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Three node types, four relations: self loops, parallel edges, empty relations and types without
    nodes."""
    num_nodes = {name: draw(st.integers(0, 12)) for name in ("a", "b", "c")}
    num_nodes["a"] += 1
    edges = {}
    for edge_type in EDGE_TYPES:
        ends = num_nodes[edge_type[0]], num_nodes[edge_type[2]]
        count = draw(st.integers(0, 40)) if min(ends) else 0
        pairs = [(draw(st.integers(0, ends[0] - 1)), draw(st.integers(0, ends[1] - 1))) for _ in range(count)]
        array = np.array(pairs, draw(st.sampled_from([np.int32, np.int64]))).reshape(-1, 2)
        edges[edge_type] = (array[:, 0], array[:, 1])
    return Graph.from_coo(edges, num_nodes)


@st.composite
def seeds_of(draw: st.DrawFn, graph: Graph) -> dict[str, list[int]]:
    """Some distinct nodes of some types."""
    return {
        name: draw(st.permutations(range(count)))[: draw(st.integers(0, count))]
        for name, count in graph.schema.num_nodes.items()
        if draw(st.booleans())
    }


def power_law_graph(num_nodes: int = 3000, num_edges: int = 30_000, seed: int = 7) -> Graph:
    """Two node types; degrees from 0 to hundreds."""
    rng = np.random.default_rng(seed)

    def ends(count: int) -> np.ndarray:
        return (num_nodes * rng.random(count) ** 3).astype(np.int64)

    edges = {
        edge_type: (ends(num_edges), ends(num_edges))
        for edge_type in (("p", "cites", "p"), ("q", "writes", "p"), ("p", "by", "q"))
    }
    return Graph.from_coo(edges, {"p": num_nodes, "q": num_nodes})


def assert_same_as_reference(batch: SampledBatch, reference: ReferenceBatch) -> None:
    """Equality in every number."""
    assert {name: ids.tolist() for name, ids in batch.nodes.items()} == reference.nodes
    assert list(batch.node_counts) == reference.node_counts
    assert len(batch.blocks) == len(reference.hops)
    for hop, (block, edges) in enumerate(zip(reversed(batch.blocks), reference.hops, strict=True)):
        assert (block.num_dst, block.num_src) == (
            reference.node_counts[hop],
            reference.node_counts[hop + 1],
        )
        assert list(block.edges) == list(edges)
        for edge_type, expected in edges.items():
            found = block.edges[edge_type]
            assert found.indptr.tolist() == np.cumsum([0, *map(len, expected.sources)]).tolist()
            assert found.indices.tolist() == [node for sources in expected.sources for node in sources]
            if found.edge_ids is not None:
                assert found.edge_ids.tolist() == [edge for ids in expected.edge_ids for edge in ids]


def reference_of(
    graph: Graph,
    seeds: Mapping[str, Sequence[int]],
    fanouts: Sequence[int | Mapping[EdgeType, int]],
    replace: bool = False,
    resample: bool = True,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    shared: SharedDraws | None = None,
) -> ReferenceBatch:
    """The plain Python sampler for fanouts in `NeighborSampler`'s order."""
    layers = [
        layer if isinstance(layer, Mapping) else dict.fromkeys(graph.schema.edge_types, layer)
        for layer in reversed(fanouts)
    ]
    return sample(
        graph,
        seeds,
        layers,
        replace=replace,
        resample=resample,
        shared=shared,
        seed=seed,
        epoch=epoch,
        batch=batch,
    )


def assert_same_batches(one: SampledBatch, other: SampledBatch) -> None:
    """Equality in every number of two results of the compiled sampler."""
    assert one.node_counts == other.node_counts
    for name, ids in one.nodes.items():
        np.testing.assert_array_equal(ids, other.nodes[name])
    for block, other_block in zip(one.blocks, other.blocks, strict=True):
        for edge_type, edges in block.edges.items():
            np.testing.assert_array_equal(edges.indptr, other_block.edges[edge_type].indptr)
            np.testing.assert_array_equal(edges.indices, other_block.edges[edge_type].indices)
