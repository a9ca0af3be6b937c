"""Conversion to PyG: its loader's fields, and each node expanded once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import graphs, power_law_graph, seeds_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gids.graph.graph import Graph
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.to_pyg import to_pyg

pytest.importorskip("torch_geometric", reason="PyG is not installed")


@settings(max_examples=50)
@given(st.data())
def test_hops_as_pyg_counts_them(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    seeds = data.draw(seeds_of(graph))
    fanouts = data.draw(st.lists(st.integers(-1, 4), min_size=1, max_size=3))
    sampler = NeighborSampler(fanouts, resample=data.draw(st.booleans()), return_edge_ids=True)
    batch = sampler.sample(graph, seeds)
    converted = to_pyg(batch)
    hop_of = {}
    for name in graph.schema.node_types:
        store = converted[name]
        assert store.n_id.tolist() == batch.nodes[name].tolist()
        assert store.num_sampled_nodes[0] == len(seeds.get(name, []))
        assert sum(store.num_sampled_nodes) == store.num_nodes == len(store.n_id)
        assert ("batch_size" in store) == bool(seeds.get(name))
        hop_of[name] = np.repeat(np.arange(len(fanouts) + 1), store.num_sampled_nodes)
    for edge_type in graph.schema.edge_types:
        store = converted[tuple(edge_type)]
        src, dst = store.edge_index.numpy()
        hops = np.repeat(np.arange(len(fanouts)), store.num_sampled_edges)
        np.testing.assert_array_equal(
            hop_of[edge_type.dst][dst], hops
        )  # expanded in the hop after it was reached
        assert (hop_of[edge_type.src][src] <= hops + 1).all()
        csc = graph[edge_type]
        sources = np.empty(csc.num_edges, np.int64)
        ids = np.arange(csc.num_edges) if csc.edge_ids is None else csc.edge_ids
        sources[ids] = csc.indices
        np.testing.assert_array_equal(converted[edge_type.src].n_id.numpy()[src], sources[store.e_id.numpy()])
        for local in range(converted[edge_type.dst].num_nodes):
            hop = hop_of[edge_type.dst][local]
            fanout = 0 if hop == len(fanouts) else fanouts[len(fanouts) - 1 - hop]
            degree = len(csc.in_edges(int(converted[edge_type.dst].n_id[local])))
            assert (dst == local).sum() == (degree if fanout == -1 else min(fanout, degree))


def test_trimming_layers_changes_nothing_at_the_seeds() -> None:
    from torch_geometric.nn import HeteroConv, SAGEConv
    from torch_geometric.utils import trim_to_layer

    graph = power_law_graph()
    batch = NeighborSampler([3, 3], resample=False).sample(graph, {"p": np.arange(20)})
    features = {name: torch.rand(len(ids), 4) for name, ids in batch.nodes.items()}
    data = to_pyg(batch, features, {"p": torch.arange(20)})
    torch.manual_seed(0)
    layers = [
        HeteroConv({tuple(each): SAGEConv((4, 4), 4) for each in graph.schema.edge_types}) for _ in range(2)
    ]

    def run(trim: bool) -> torch.Tensor:
        x, edge_index = data.x_dict, data.edge_index_dict
        for number, layer in enumerate(layers):
            if trim:
                x, edge_index, _ = trim_to_layer(
                    number, data.num_sampled_nodes_dict, data.num_sampled_edges_dict, x, edge_index
                )
            x = layer(x, edge_index)
        return x["p"][: data["p"].batch_size]

    assert data["p"].y.tolist() == list(range(20))
    torch.testing.assert_close(run(trim=True), run(trim=False))


def test_a_homogeneous_graph_gives_data() -> None:
    graph = Graph.from_coo(([0, 1, 2, 0], [1, 2, 0, 0]), 3)
    data = to_pyg(NeighborSampler([-1, -1]).sample(graph, [1]), {"_N": torch.ones(3, 2)})
    assert type(data).__name__ == "Data"
    assert data.n_id.tolist() == [1, 0, 2]
    assert data.edge_index.tolist() == [[1, 2, 1], [0, 1, 1]]
    assert (data.num_sampled_nodes, data.num_sampled_edges) == ([1, 1, 1], [1, 2])
    assert data.batch_size == 1
