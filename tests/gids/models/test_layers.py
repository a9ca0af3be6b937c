"""Compacted relation layers against PyG's own over all nodes, and against sums written out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from small_graphs import COUNTS, DIMS, all_features, batch_of, random_graph

from bam.errors import ConfigError
from gids.graph.schema import EdgeType
from gids.models.config import Combine
from gids.models.convolutions import AttentionConvolution, MeanConvolution
from gids.models.edges import compact
from gids.models.layers import InputProjection, RelationLayer
from gids.sampling.block import Block, BlockEdges

DIM = 8


def vectors_of(block: Block, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(n, DIM, generator=generator) for name, n in block.num_src.items() if n}


@pytest.fixture
def block() -> Block:
    return batch_of(random_graph(), np.arange(0, 60, 4), [3, 3]).blocks[0]


def full_edge_index(edges: BlockEdges) -> torch.Tensor:
    return torch.from_numpy(np.stack([edges.indices, edges.destinations()]))


def test_compact_keeps_edges_and_their_order(block: Block) -> None:
    for edge_type, edges in block.edges.items():
        if edges.num_edges == 0:
            continue
        part = compact(edges, block.num_src[edge_type.src])
        source, destination = part.edge_index()
        assert torch.equal(part.sources[source], torch.from_numpy(edges.indices))
        assert torch.equal(part.destinations[destination], torch.from_numpy(edges.destinations()))
        assert torch.equal(part.sources, torch.unique(part.sources))
        assert len(torch.unique(source)) == len(part.sources)
        assert len(torch.unique(destination)) == len(part.destinations)


def test_attention_layer_equals_pyg_hetero_conv(block: Block) -> None:
    geometric = pytest.importorskip("torch_geometric.nn", reason="torch_geometric is not installed")
    vectors = vectors_of(block)
    edge_types = tuple(block.edges)
    make = partial(AttentionConvolution, heads=2)
    layer = RelationLayer(tuple(COUNTS), edge_types, DIM, DIM, make, Combine.SUM, skip=False)
    present = [each for each in edge_types if block.edges[each].num_edges]
    convolutions = {each: layer.convolutions[edge_types.index(each)].attention for each in present}
    reference = geometric.HeteroConv({tuple(each): conv for each, conv in convolutions.items()}, aggr="sum")
    inputs = {
        tuple(each): (vectors[each.src], vectors[each.dst][: block.num_dst[each.dst]]) for each in present
    }
    indices = {tuple(each): full_edge_index(block.edges[each]) for each in present}
    expected = reference(inputs, indices)
    found = layer(block, vectors)
    assert expected.keys() <= found.keys()
    for name, values in expected.items():
        torch.testing.assert_close(found[name], values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("combine", list(Combine))
def test_mean_layer_equals_sums_written_out(block: Block, own: bool, combine: Combine) -> None:
    vectors = vectors_of(block)
    edge_types = tuple(block.edges)
    layer = RelationLayer(tuple(COUNTS), edge_types, DIM, DIM, partial(MeanConvolution, own=own), combine)
    found = layer(block, vectors)
    assert set(found) == {name for name, n in block.num_dst.items() if n}
    for place, name in enumerate(COUNTS):
        for node in range(block.num_dst[name]):
            said = []
            for number, edge_type in enumerate(edge_types):
                edges = block.edges[edge_type]
                chosen = (
                    edges.indices[edges.indptr[node] : edges.indptr[node + 1]]
                    if edge_type.dst == name
                    else []
                )
                if len(chosen):
                    convolution = layer.convolutions[number]
                    message = convolution.neighbour(vectors[edge_type.src][chosen].mean(0))
                    said.append(message + convolution.own(vectors[name][node]) if own else message)
            total = torch.stack(said).sum(0) / (len(said) if combine is Combine.MEAN else 1) if said else 0
            expected = layer.own[place](vectors[name][node]) + total
            torch.testing.assert_close(found[name][node], expected, rtol=1e-4, atol=1e-5)


def test_mean_of_sources_agrees_with_gather_and_add(block: Block) -> None:
    edge_type = EdgeType("paper", "cites", "paper")
    part = compact(block.edges[edge_type], block.num_src["paper"])
    convolution = MeanConvolution(DIM, DIM)
    sources = torch.randn(len(part.sources), DIM, requires_grad=True)
    found = convolution(sources, None, part)
    source, destination = part.edge_index()
    sums = torch.zeros(len(part.destinations), DIM).index_add(0, destination, sources[source])
    expected = convolution.neighbour(sums / torch.bincount(destination)[:, None])
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * weights).sum(), sources)[0] for out in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_projection_takes_any_dtype_and_scales() -> None:
    project = InputProjection(COUNTS, DIMS, DIM)
    rows = all_features()
    counts = {"paper": COUNTS["paper"], "author": COUNTS["author"], "venue": 2, "unused": 0}
    found = project(rows, counts)
    assert {name: tuple(each.shape) for name, each in found.items()} == {
        "paper": (60, DIM),
        "author": (40, DIM),
        "venue": (2, DIM),
    }
    assert all(each.dtype == torch.float32 for each in found.values())
    assert torch.equal(found["venue"][0], found["venue"][1])
    scale = torch.rand(DIMS["paper"]) + 0.5
    whole = torch.randint(-127, 128, rows["paper"].shape, dtype=torch.int8)
    scaled = project({**rows, "paper": whole}, counts, {"paper": scale})["paper"]
    assert torch.equal(scaled, project({**rows, "paper": whole.float() * scale}, counts)["paper"])


def test_projection_names_wrong_features() -> None:
    project = InputProjection(COUNTS, DIMS, DIM)
    counts = {"paper": 60, "author": 40, "venue": 0, "unused": 0}
    with pytest.raises(ConfigError, match=r"author.*none"):
        project({"paper": all_features()["paper"]}, counts)
    with pytest.raises(ConfigError, match=r"paper.*\(60, 12\)"):
        project({**all_features(), "paper": torch.zeros(59, 12)}, counts)
