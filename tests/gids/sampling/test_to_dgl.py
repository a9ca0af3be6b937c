"""Conversion to DGL, and that DGL's own sampler means the same by its words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import graphs, power_law_graph, seeds_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gids.errors import PackageMissing
from gids.graph.graph import Graph
from gids.sampling.dgl_import import import_dgl
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.to_dgl import to_dgl

try:
    dgl = import_dgl()
except PackageMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)


def dgl_graph(graph: Graph) -> Any:
    """The same graph in DGL, with our edge ids."""
    relations = {}
    for edge_type, csc in graph.relations.items():
        ids = np.arange(csc.num_edges) if csc.edge_ids is None else csc.edge_ids
        arrays = (csc.indptr, csc.indices.astype(np.int64), ids)
        relations[tuple(edge_type)] = ("csc", tuple(map(torch.from_numpy, arrays)))
    return dgl.heterograph(relations, num_nodes_dict=dict(graph.schema.num_nodes))


def edge_set(block: Any, edge_type: tuple[str, str, str]) -> list[tuple[int, int, int]]:
    """(source id, destination id, edge id) of each edge, sorted."""
    src, dst = block.edges(etype=edge_type)
    ends = block.srcnodes[edge_type[0]].data[dgl.NID][src], block.dstnodes[edge_type[2]].data[dgl.NID][dst]
    return sorted(
        zip(*(each.tolist() for each in (*ends, block.edges[edge_type].data[dgl.EID])), strict=True)
    )


@settings(max_examples=30)
@given(st.data())
def test_all_neighbours_are_those_dgl_gives(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    seeds = data.draw(seeds_of(graph))
    layers = data.draw(st.integers(1, 3))
    ours = to_dgl(NeighborSampler([-1] * layers, return_edge_ids=True).sample(graph, seeds))
    tensors = {name: torch.tensor(seeds.get(name, []), dtype=torch.int64) for name in graph.schema.node_types}
    theirs = dgl.dataloading.NeighborSampler([-1] * layers).sample_blocks(dgl_graph(graph), tensors)
    for name in graph.schema.node_types:
        assert sorted(ours[0][name].tolist()) == sorted(theirs[0][name].tolist())
        assert ours[1][name].tolist() == seeds.get(name, [])
    for our_block, their_block in zip(ours[2], theirs[2], strict=True):
        for name in graph.schema.node_types:
            assert our_block.num_dst_nodes(name) == their_block.num_dst_nodes(name)
            assert our_block.num_src_nodes(name) == their_block.num_src_nodes(name)
            ids = our_block.dstnodes[name].data[dgl.NID]
            assert our_block.srcnodes[name].data[dgl.NID][: len(ids)].tolist() == ids.tolist()
        for edge_type in our_block.canonical_etypes:
            assert edge_set(our_block, edge_type) == edge_set(their_block, edge_type)


@pytest.mark.parametrize("replace", [False, True])
def test_as_many_edges_per_node_as_dgl(replace: bool) -> None:
    graph = power_law_graph()
    seeds = np.arange(0, 3000, 7)
    ours = to_dgl(NeighborSampler([4], replace=replace).sample(graph, {"p": seeds}))[2][0]
    sampler = dgl.dataloading.NeighborSampler([4], replace=replace)
    theirs = sampler.sample_blocks(dgl_graph(graph), {"p": torch.from_numpy(seeds)})[2][0]
    for edge_type in ours.canonical_etypes:
        assert ours.in_degrees(etype=edge_type).tolist() == theirs.in_degrees(etype=edge_type).tolist()


def test_aggregation_over_converted_blocks() -> None:
    graph = power_law_graph()
    batch = NeighborSampler([3, 3]).sample(graph, {"p": np.arange(50)})
    features = {name: torch.rand(len(ids), 5) for name, ids in batch.nodes.items()}
    _, _, blocks = to_dgl(batch, features, {"p": torch.arange(50)})
    first = blocks[0]
    assert blocks[-1].dstnodes["p"].data["label"].tolist() == list(range(50))
    edge_type = ("q", "writes", "p")
    first.update_all(dgl.function.copy_u("feat", "m"), dgl.function.sum("m", "h"), etype=edge_type)
    edges = batch.blocks[0].edges[graph.schema.edge_type(edge_type)]
    expected = torch.zeros(batch.blocks[0].num_dst["p"], 5)
    expected.index_add_(
        0, torch.from_numpy(edges.destinations()), features["q"][torch.from_numpy(edges.indices)]
    )
    torch.testing.assert_close(first.dstnodes["p"].data["h"], expected)


def test_a_homogeneous_graph_gives_tensors() -> None:
    graph = Graph.from_coo(([0, 1, 2], [1, 2, 0]), 3)
    input_nodes, output_nodes, blocks = to_dgl(NeighborSampler([1]).sample(graph, [2]))
    assert (input_nodes.tolist(), output_nodes.tolist()) == ([2, 1], [2])
    assert blocks[0].is_block
    assert blocks[0].srcdata[dgl.NID].tolist() == [2, 1]
