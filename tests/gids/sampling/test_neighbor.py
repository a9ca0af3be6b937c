"""The compiled sampler against the plain Python one, and what a sample must be whatever was drawn."""

from __future__ import annotations

import numpy as np
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

from gids.graph.graph import Graph
from gids.sampling.neighbor import NeighborSampler


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
