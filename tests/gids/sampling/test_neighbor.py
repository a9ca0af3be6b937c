"""The compiled sampler against the plain Python one, and what a sample must be whatever was drawn."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from graphs import (
    assert_same_as_reference,
    assert_same_batches,
    graphs,
    power_law_graph,
    reference_of,
    seeds_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from bam.errors import ConfigError
from gids.errors import DuplicateSeed, GraphError, NodeOutOfRange, UnknownEdgeType, UnknownNodeType
from gids.graph.csc import Csc
from gids.graph.graph import Graph
from gids.graph.schema import EdgeType, Schema
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.relabel import _MULTIPLIER


@settings(max_examples=150)
@given(st.data())
def test_same_bits_as_the_reference(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    seeds = data.draw(seeds_of(graph))
    one_layer = st.integers(-1, 5) | st.fixed_dictionaries(
        dict.fromkeys(graph.schema.edge_types, st.integers(-1, 4))
    )
    fanouts = data.draw(st.lists(one_layer, min_size=1, max_size=3))
    options = {"replace": data.draw(st.booleans()), "resample": data.draw(st.booleans())}
    seed = data.draw(st.integers(0, 2**64 - 1))
    epoch, batch = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(0, 2**32 - 1))
    sampler = NeighborSampler(fanouts, return_edge_ids=data.draw(st.booleans()), seed=seed, **options)
    found = sampler.sample(graph, seeds, epoch=epoch, batch=batch)
    expected = reference_of(graph, seeds, fanouts, seed=seed, epoch=epoch, batch=batch, **options)
    assert_same_as_reference(found, expected)


@pytest.mark.parametrize("fanout", [63, 64, 65, 100, 700])
@pytest.mark.parametrize("replace", [False, True])
def test_large_fanouts_are_the_reference_too(fanout: int, replace: bool) -> None:
    degrees = [0, 1, fanout - 1, fanout, fanout + 1, 3 * fanout, 2000]
    dst = np.repeat(np.arange(len(degrees)), degrees)
    graph = Graph.from_coo((np.arange(len(dst)), dst), len(dst))
    seeds = {"_N": list(range(len(degrees)))}
    sampler = NeighborSampler([fanout], replace=replace, return_edge_ids=True, seed=5)
    expected = reference_of(graph, seeds, [fanout], replace=replace, seed=5)
    assert_same_as_reference(sampler.sample(graph, seeds), expected)


@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_threads_change_nothing(replace: bool, resample: bool) -> None:
    graph = power_law_graph()
    seeds = {"p": np.arange(0, 3000, 3), "q": np.arange(7)}
    results = [
        NeighborSampler([9, 4], replace=replace, resample=resample, threads=threads).sample(
            graph, seeds, batch=8
        )
        for threads in (1, 2)
    ]
    assert results[0].num_edges > 20_000
    assert_same_batches(*results)


def test_one_sampler_serves_many_threads() -> None:
    graph = power_law_graph()
    for threads in (1, 2):
        sampler = NeighborSampler([5, 5], threads=threads)

        def sample(batch: int, sampler: NeighborSampler = sampler) -> object:
            return sampler.sample(graph, {"p": np.arange(batch, batch + 200)}, batch=batch)

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(sample, range(24)))
        for batch in (0, 11, 23):
            assert_same_batches(found[batch], sample(batch))


def test_no_neighbour_twice_without_replacement() -> None:
    graph = power_law_graph()
    batch = NeighborSampler([6], return_edge_ids=True).sample(graph, {"p": np.arange(3000)})
    for edge_type, edges in batch.blocks[0].edges.items():
        pairs = np.stack((edges.edge_ids, edges.destinations()))
        assert len(np.unique(pairs, axis=1).T) == edges.num_edges
        if edge_type.dst == "p":
            expected = np.minimum(graph[edge_type].degrees(), 6)
            np.testing.assert_array_equal(np.diff(edges.indptr), expected)


def chi_square_tail(counts: np.ndarray) -> float:
    """Probability of a larger deviation from equal counts."""
    expected = counts.sum() / counts.size
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1))


@pytest.mark.parametrize(("degree", "fanout"), [(3, 1), (5, 2), (6, 5), (70, 66)])
def test_every_subset_is_equally_likely(degree: int, fanout: int) -> None:
    """Numbers are fixed by the seed, so the outcome is too."""
    nodes = 4000
    dst = np.repeat(np.arange(nodes), degree)
    graph = Graph.from_coo(
        {("s", "to", "d"): (np.tile(np.arange(degree), nodes), dst)}, {"s": degree, "d": nodes}
    )
    batch = NeighborSampler([fanout], seed=1).sample(graph, {"d": np.arange(nodes)})
    edges = batch.blocks[0].edges[EdgeType("s", "to", "d")]
    chosen = np.sort(batch.nodes["s"][edges.indices].reshape(nodes, fanout), axis=1)
    inclusions = np.bincount(chosen.ravel(), minlength=degree)
    left_out_share = 1 - fanout / degree  # a choice without replacement varies less than independent draws
    deviation = ((inclusions - inclusions.mean()) ** 2 / (inclusions.mean() * left_out_share)).sum()
    assert 0.001 < chi2.sf(deviation * (degree - 1) / degree, degree - 1) < 0.999
    if degree <= 6:
        subsets = np.unique(chosen, axis=0, return_counts=True)[1]
        assert 0.001 < chi_square_tail(subsets) < 0.999


def test_draws_with_replacement_are_uniform_and_independent() -> None:
    nodes, degree, fanout = 3000, 7, 4
    dst = np.repeat(np.arange(nodes), degree)
    graph = Graph.from_coo(
        {("s", "to", "d"): (np.tile(np.arange(degree), nodes), dst)}, {"s": degree, "d": nodes}
    )
    batch = NeighborSampler([fanout], replace=True, seed=2).sample(graph, {"d": np.arange(nodes)})
    drawn = batch.nodes["s"][batch.blocks[0].edges[EdgeType("s", "to", "d")].indices].reshape(nodes, fanout)
    for one in range(fanout):
        for other in range(one):
            pairs = np.bincount(drawn[:, one] * degree + drawn[:, other], minlength=degree**2)
            assert 0.0005 < chi_square_tail(pairs) < 0.9995


def test_whatever_numbers_a_choice_is_for_changes_it() -> None:
    graph = power_law_graph()

    def picked(seed: int = 0, epoch: int = 0, batch: int = 0, fanouts: tuple[int, ...] = (4,)) -> bytes:
        sampled = NeighborSampler(fanouts, seed=seed).sample(
            graph, {"p": np.arange(100)}, epoch=epoch, batch=batch
        )
        edges = sampled.blocks[0].edges[EdgeType("p", "cites", "p")]
        return sampled.nodes["p"][edges.indices[: edges.indptr[100]]].tobytes()

    variants = [
        picked(),
        picked(seed=1),
        picked(seed=2**63),
        picked(epoch=1),
        picked(batch=1),
        picked(fanouts=(4, 4)),
    ]
    assert len(set(variants)) == len(variants)
    assert picked() == picked()


def test_the_other_seeds_of_a_batch_do_not_matter() -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([4], return_edge_ids=True)
    alone = sampler.sample(graph, {"p": [123]}).blocks[0]
    among = sampler.sample(graph, {"p": [5, 123, 9], "q": [1]}).blocks[0]
    for edge_type, edges in alone.edges.items():
        if edge_type.dst == "p":
            first, stop = among.edges[edge_type].indptr[1:3]
            assert edges.edge_ids.tolist() == among.edges[edge_type].edge_ids[first:stop].tolist()


def test_seeds_and_types_without_edges() -> None:
    graph = Graph.from_coo(
        {("a", "r", "a"): ([1], [2]), ("a", "s", "b"): ([], [])}, {"a": 3, "b": 2, "alone": 4}
    )
    batch = NeighborSampler([2, 2]).sample(graph, {"a": [0], "alone": [3]})
    assert {name: ids.tolist() for name, ids in batch.nodes.items()} == {"a": [0], "alone": [3], "b": []}
    assert [block.num_edges for block in batch.blocks] == [0, 0]
    nothing = NeighborSampler([2]).sample(graph, {})
    assert nothing.num_edges == 0
    assert all(len(ids) == 0 for ids in nothing.nodes.values())


def test_self_loops_and_parallel_edges_are_edges() -> None:
    graph = Graph.from_coo(([0, 0, 0, 1], [0, 0, 0, 0]), 2)
    batch = NeighborSampler([-1], return_edge_ids=True).sample(graph, [0])
    edges = batch.blocks[0].edges[EdgeType("_N", "_E", "_N")]
    assert edges.indices.tolist() == [0, 0, 0, 1]
    assert edges.edge_ids.tolist() == [0, 1, 2, 3]
    assert batch.nodes["_N"].tolist() == [0, 1]


def test_ids_that_collide_in_the_hash_table() -> None:
    """300 ids whose search starts at one slot in every table up to 4,096; of a type with 2^40 nodes."""
    candidates = np.arange(2**40 - 2**22, 2**40, dtype=np.uint64)
    slots = (candidates * _MULTIPLIER >> np.uint64(32)) & np.uint64(4095)
    many = candidates[slots == 5][:300].astype(np.int64)
    assert len(many) == 300
    csc = Csc(np.array([0, 600], np.int64), np.concatenate((many, many[::-1])), 2**40)
    graph = Graph(Schema({"big": 2**40, "d": 1}, [("big", "to", "d")]), {EdgeType("big", "to", "d"): csc})
    batch = NeighborSampler([-1]).sample(graph, {"d": [0]})
    assert batch.nodes["big"].tolist() == many.tolist()
    found = batch.blocks[0].edges[EdgeType("big", "to", "d")].indices
    assert found.tolist() == [*range(300), *reversed(range(300))]


def test_more_nodes_than_a_table_entry_can_count() -> None:
    """The more nodes a graph has, the fewer bits are left for local ids; 2^61 nodes leave one."""
    csc = Csc(np.array([0, 3], np.int64), np.array([5, 6, 7], np.int64), 2**61 - 1)
    edge_type = EdgeType("big", "to", "d")
    graph = Graph(Schema({"big": 2**61 - 1, "d": 1}, [edge_type]), {edge_type: csc})
    assert NeighborSampler([2]).sample(graph, {"d": [0]}).num_edges == 2
    with pytest.raises(GraphError, match="fewer nodes of one type"):
        NeighborSampler([3]).sample(graph, {"d": [0]})


def test_index_width_and_memory_maps_change_nothing(tmp_path: Path) -> None:
    graph = power_law_graph()
    mapped = {}
    for number, (edge_type, csc) in enumerate(graph.relations.items()):
        arrays = []
        for name, array in (
            ("indptr", csc.indptr),
            ("indices", csc.indices.astype(np.int64)),
            ("ids", csc.edge_ids),
        ):
            np.save(tmp_path / f"{number}.{name}.npy", array)
            arrays.append(np.load(tmp_path / f"{number}.{name}.npy", mmap_mode="r"))
        mapped[edge_type] = Csc(arrays[0], arrays[1], csc.num_src, arrays[2])
    sampler = NeighborSampler([5, 3], return_edge_ids=True)
    seeds = {"p": np.arange(64)}
    assert graph["cites"].indices.dtype == np.int32
    assert_same_batches(sampler.sample(graph, seeds), sampler.sample(Graph(graph.schema, mapped), seeds))


def test_fanouts_may_be_written_in_several_ways() -> None:
    graph = power_law_graph()
    seeds = {"p": np.arange(50)}
    per_type = {"cites": 3, "p__by__q": 3, ("q", "writes", "p"): 3}
    whole = NeighborSampler([3]).sample(graph, seeds)
    for fanouts in (3, per_type, [per_type], {name: [3] for name in per_type}):
        assert_same_batches(whole, NeighborSampler(fanouts).sample(graph, seeds))
    two = NeighborSampler([2, 5]).sample(graph, seeds)
    lists = NeighborSampler({name: [2, 5] for name in per_type}).sample(graph, seeds)
    assert_same_batches(two, lists)
    assert (
        max(np.diff(two.blocks[-1].edges[EdgeType("p", "cites", "p")].indptr)) == 5
    )  # the last is at the seeds


@pytest.mark.parametrize(
    "fanouts", [[], [-2], [True], [1.5], "10,5", [2**31], {"cites": [1, 2], "by": [1]}, {}, [[1]], None]
)
def test_wrong_fanouts_are_refused(fanouts: object) -> None:
    with pytest.raises(ConfigError, match="fanouts"):
        NeighborSampler(fanouts)  # type: ignore[arg-type]


def test_wrong_settings_are_refused() -> None:
    for wrong in ({"seed": -1}, {"seed": 2**64}, {"threads": 0}, {"edge_dir": "out"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            NeighborSampler([1], **wrong)  # type: ignore[arg-type]
    graph = power_law_graph(20, 50)
    with pytest.raises(ConfigError, match="threads"):
        NeighborSampler([1], threads=5000).sample(graph, {"p": [1]})
    for number in ({"epoch": -1}, {"batch": 2**32}):
        with pytest.raises(ConfigError, match=next(iter(number))):
            NeighborSampler([1]).sample(graph, {"p": [1]}, **number)
    with pytest.raises(UnknownEdgeType, match="did you mean 'cites'"):
        NeighborSampler([{"cite": 1, "by": 1, "writes": 1}]).sample(graph, {"p": [1]})
    with pytest.raises(ConfigError, match=r"left out.*writes"):
        NeighborSampler([{"cites": 1, "by": 1}]).sample(graph, {"p": [1]})
    with pytest.raises(ConfigError, match="each edge type once"):
        NeighborSampler([{"cites": 1, "p__cites__p": 1, "by": 1, "writes": 2}]).sample(graph, {"p": [1]})


def test_wrong_seeds_are_refused() -> None:
    graph = power_law_graph(20, 50)
    sampler = NeighborSampler([1])
    with pytest.raises(DuplicateSeed) as duplicate:
        sampler.sample(graph, {"q": [1], "p": [4, 7, 4]})
    assert (duplicate.value.node_type, duplicate.value.node_id, duplicate.value.position) == ("p", 4, 2)
    for wrong in (-1, 20, 2**62):
        with pytest.raises(NodeOutOfRange) as outside:
            sampler.sample(graph, {"q": [3, wrong]})
        assert (outside.value.node_type, outside.value.node_id, outside.value.position) == ("q", wrong, 1)
    with pytest.raises(UnknownNodeType, match="known: 'p', 'q'"):
        sampler.sample(graph, {"paper": [1]})
    with pytest.raises(GraphError, match="seeds"):
        sampler.sample(graph, [1])
    for kind in ([[1]], [0.5]):
        with pytest.raises(GraphError, match="integers in one dimension"):
            sampler.sample(graph, {"p": kind})


def damaged(indptr: list[int], indices: list[int]) -> Graph:
    schema = Schema({"s": 5, "d": len(indptr) - 1}, [("s", "r", "d")])
    csc = Csc(np.array(indptr), np.array(indices), 5, name="s__r__d")
    return Graph(schema, {EdgeType("s", "r", "d"): csc})


@pytest.mark.parametrize("threads", [1, 2])
def test_damaged_arrays_are_named_and_never_followed(threads: int) -> None:
    sampler = NeighborSampler([2, 2], threads=threads)
    for indptr in ([0, 3, 1, 4], [0, 10**15, 4, 4], [0, -5, 4, 4]):
        with pytest.raises(GraphError, match="indptr at node"):
            sampler.sample(damaged(indptr, [0, 1, 2, 3]), {"d": [0, 1, 2]})
    for wrong in (5, -1, 2**40):
        with pytest.raises(GraphError, match="indices: expected ids from 0 to 4") as error:
            sampler.sample(damaged([0, 1, 2], [0, wrong]), {"d": [0, 1]})
        assert error.value.found == str(wrong)
