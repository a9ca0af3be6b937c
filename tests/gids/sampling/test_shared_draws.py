"""LABOR and dependent mini-batches: the reference's bits, unbiased means, and what they are for."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import assert_same_as_reference, graphs, power_law_graph, reference_of, seeds_of
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.graph.graph import Graph
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.reference import choose_smallest
from gids.sampling.shared_draws import DependentSampler, LaborSampler, SharedDraws

SAMPLERS = {
    "labor": lambda fanouts, **options: LaborSampler(fanouts, **options),
    "labor, kappa 8": lambda fanouts, **options: LaborSampler(fanouts, kappa=8, **options),
    "dependent, kappa 4": lambda fanouts, **options: DependentSampler(fanouts, kappa=4, **options),
}


@settings(max_examples=100)
@given(st.data())
def test_same_bits_as_the_reference(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    seeds = data.draw(seeds_of(graph))
    fanouts = data.draw(st.lists(st.integers(-1, 4), min_size=1, max_size=3))
    shared = SharedDraws(data.draw(st.booleans()), data.draw(st.sampled_from([1, 2, 7, 2**31 - 1])))
    resample, ids = data.draw(st.booleans()), data.draw(st.booleans())
    seed = data.draw(st.integers(0, 2**64 - 1))
    epoch, batch = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.integers(0, 2**32 - 1))
    kind = LaborSampler if shared.by_source else DependentSampler
    sampler = kind(fanouts, kappa=shared.kappa, resample=resample, return_edge_ids=ids, seed=seed)
    assert sampler.shared == shared
    found = sampler.sample(graph, seeds, epoch=epoch, batch=batch)
    expected = reference_of(
        graph, seeds, fanouts, resample=resample, shared=shared, seed=seed, epoch=epoch, batch=batch
    )
    assert_same_as_reference(found, expected)


def test_threads_give_the_same_bits() -> None:
    graph = power_law_graph()
    seeds = {"p": np.arange(400)}
    one, two = (LaborSampler([7, 3], seed=1, threads=threads).sample(graph, seeds) for threads in (1, 2))
    assert all(np.array_equal(one.nodes[name], two.nodes[name]) for name in one.nodes)


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(-1, 6))
def test_the_smallest_numbers_are_chosen(numbers: list[int], fanout: int) -> None:
    chosen = choose_smallest(numbers, fanout)
    assert len(chosen) == (len(numbers) if fanout == -1 else min(fanout, len(numbers)))
    assert chosen == sorted(set(chosen))
    left = set(range(len(numbers))) - set(chosen)
    assert all((numbers[a], a) < (numbers[b], b) for a in chosen for b in left)


DEGREES, FANOUT, DRAWS = (3, 6, 20, 150), 5, 4000


@pytest.fixture(scope="module")
def stars() -> Graph:
    """Nodes 0 to 3 with so many neighbours, all among the same 150."""
    random = np.random.default_rng(3)
    sources = np.concatenate([4 + random.choice(150, degree, replace=False) for degree in DEGREES])
    return Graph.from_coo((sources, np.repeat(np.arange(4), DEGREES)), 154)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("batch", [0, 5])
def test_the_mean_over_the_sample_is_unbiased(stars: Graph, name: str, batch: int) -> None:
    """Over many draws it is the mean over all neighbours, within 4.5 standard errors."""
    values = np.random.default_rng(4).standard_normal(154) ** 3
    csc = next(iter(stars.relations.values()))
    full = [values[csc.indices[csc.indptr[v] : csc.indptr[v + 1]]].mean() for v in range(4)]
    sampler = SAMPLERS[name]([FANOUT], seed=11)
    means = np.empty((DRAWS, 4))
    for draw in range(DRAWS):
        sampled = sampler.sample(stars, np.arange(4), epoch=draw, batch=batch)
        edges = next(iter(sampled.blocks[0].edges.values()))
        taken = values[sampled.nodes["_N"][edges.indices]]
        means[draw] = np.add.reduceat(taken, edges.indptr[:-1]) / np.diff(edges.indptr)
    errors = means.std(axis=0, ddof=1) / np.sqrt(DRAWS)
    assert means[:, 0] == pytest.approx(full[0])  # all of its neighbours
    for node in (1, 2, 3):
        assert abs(means[:, node].mean() - full[node]) < 4.5 * errors[node], node


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_edge_is_taken_equally_often(stars: Graph, name: str) -> None:
    counts = np.zeros(154)
    sampler = SAMPLERS[name]([FANOUT], seed=12)
    for draw in range(DRAWS):
        sampled = sampler.sample(stars, np.array([2]), epoch=draw)
        counts[sampled.nodes["_N"][1:]] += 1
    taken = counts[counts > 0]
    assert len(taken) == 20
    expected = DRAWS * FANOUT / 20
    # 19 degrees of freedom, less spread than independent draws have; 43.8 is chi square's 0.1 % point.
    assert ((taken - expected) ** 2 / expected).sum() < 43.8


def test_labor_takes_fewer_nodes_for_as_many_edges() -> None:
    graph = power_law_graph()
    seeds = {"p": np.arange(0, 600, 2)}
    plain = NeighborSampler([5], seed=2).sample(graph, seeds)
    labor = LaborSampler([5], seed=2).sample(graph, seeds)
    edges = [sum(len(each.indices) for each in batch.blocks[-1].edges.values()) for batch in (plain, labor)]
    assert edges[0] == edges[1]
    nodes = [sum(map(len, batch.nodes.values())) for batch in (plain, labor)]
    assert nodes[1] < 0.9 * nodes[0]


def shared_share(sampler: NeighborSampler, graph: Graph, batches: tuple[int, int]) -> float:
    """Share of a mini-batch's nodes that another of the same seeds has too."""
    first, second = (
        set(sampler.sample(graph, {"p": np.arange(100)}, batch=batch).nodes["p"].tolist())
        for batch in batches
    )
    return len(first & second) / len(second)


def test_neighbouring_mini_batches_share_more_the_larger_kappa() -> None:
    graph = power_law_graph()
    shares = [shared_share(DependentSampler([5], kappa=kappa, seed=1), graph, (6, 7)) for kappa in (1, 4, 64)]
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.95
    far = shared_share(DependentSampler([5], kappa=4, seed=1), graph, (6, 10))
    assert far == pytest.approx(shares[0], abs=0.06), "after kappa mini-batches all numbers are new"


@pytest.mark.parametrize("kappa", [0, -1, 1.5, True, 2**31])
def test_no_such_kappa(kappa: object) -> None:
    with pytest.raises(ConfigError, match="kappa"):
        LaborSampler([5], kappa=kappa)
    with pytest.raises(ConfigError, match="kappa"):
        DependentSampler([5], kappa=kappa)
