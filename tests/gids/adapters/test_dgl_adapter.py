"""`gids.dgl`: what DGL's own loader promises, with features from files."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gids.errors import PackageMissing, UnknownNodeType
from gids.sampling.dgl_import import import_dgl

try:
    dgl = import_dgl()
except PackageMissing as missing:
    pytest.skip(str(missing), allow_module_level=True)

import bam
import gids
from bam.errors import ConfigError
from gids.dgl import DataLoader, MultiLayerFullNeighborSampler, NeighborSampler, graph_of
from gids.graph.convert import convert_igbh
from gids.graph.synth import synthesize

TO, BACK = ("author", "writes", "paper"), ("paper", "written_by", "author")


@pytest.fixture
def graph() -> Any:
    random = torch.Generator().manual_seed(3)

    def ends(n: int) -> Any:
        return torch.randint(0, n, (4000,), generator=random)

    edges = {TO: (ends(300), ends(600)), BACK: (ends(600), ends(300))}
    made = dgl.heterograph(edges, num_nodes_dict={"paper": 600, "author": 300})
    made.ndata["year"] = {"paper": torch.arange(600.0), "author": torch.arange(300.0)}
    made.edges[TO].data["weight"] = torch.arange(4000.0)
    return made


@pytest.fixture
def paper_rows(tmp_path: Path) -> Any:
    rows = np.random.default_rng(0).standard_normal((600, 16), dtype=np.float32)
    np.save(tmp_path / "paper.npy", rows)
    with bam.open_array(tmp_path / "paper.npy", cache="16KiB") as array:
        yield rows, array


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """With several threads DGL's sampler does not repeat itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_num_threads(threads)


def batches_of(loader_class: Any, graph: Any, **settings: Any) -> list[Any]:
    np.random.seed(7)  # noqa: NPY002 - DGL shuffles with it
    torch.manual_seed(5)
    dgl.seed(3)
    sampler = dgl.dataloading.NeighborSampler([4, 3])
    seeds = {"paper": torch.arange(0, 600, 3)}
    return list(loader_class(graph, seeds, sampler, batch_size=48, shuffle=True, **settings))


def test_with_dgls_sampler_mini_batches_are_those_of_dgls_loader(graph: Any, paper_rows: Any) -> None:
    rows, array = paper_rows
    theirs = batches_of(dgl.dataloading.DataLoader, graph)
    ours = batches_of(DataLoader, graph, features={"paper": array})
    assert len(theirs) == len(ours) == 5
    for (inputs, outputs, blocks), (our_inputs, our_outputs, our_blocks) in zip(theirs, ours, strict=True):
        for name in ("paper", "author"):
            assert torch.equal(inputs[name], our_inputs[name])
        assert torch.equal(outputs["paper"], our_outputs["paper"])
        for block, our_block in zip(blocks, our_blocks, strict=True):
            for edge_type in (TO, BACK):
                ends = block.edges(etype=edge_type), our_block.edges(etype=edge_type)
                assert all(torch.equal(end, ours) for end, ours in zip(*ends, strict=True))
        found = our_blocks[0].srcnodes["paper"].data["feat"]
        np.testing.assert_array_equal(found, rows[our_inputs["paper"]])


def test_worker_processes_sample_and_we_read(graph: Any, paper_rows: Any) -> None:
    rows, array = paper_rows
    sampler = dgl.dataloading.NeighborSampler([4, 3])
    loader = DataLoader(
        graph, {"paper": torch.arange(100)}, sampler, batch_size=25, features={"paper": array}, num_workers=1
    )
    for inputs, _, blocks in loader:
        np.testing.assert_array_equal(blocks[0].srcnodes["paper"].data["feat"], rows[inputs["paper"]])


def test_our_sampler_gives_dgls_blocks_with_the_graphs_own_data(graph: Any, paper_rows: Any) -> None:
    rows, array = paper_rows
    sampler = NeighborSampler([4, 3], prefetch_node_feats={"author": ["year"]})
    loader = DataLoader(
        graph, {"paper": torch.arange(200)}, sampler, batch_size=64, shuffle=True, features={"paper": array}
    )
    seen = []
    for inputs, outputs, blocks in loader:
        seen.append(outputs["paper"])
        assert torch.equal(blocks[0].srcnodes["author"].data["year"], inputs["author"].float())
        assert torch.equal(blocks[0].srcnodes["paper"].data["year"], inputs["paper"].float())
        np.testing.assert_array_equal(blocks[0].srcnodes["paper"].data["feat"], rows[inputs["paper"]])
        for block in blocks:
            for edge_type in (TO, BACK):
                ids = block.edges[edge_type].data[dgl.EID]
                src, dst = block.edges(etype=edge_type)
                whole_src, whole_dst = graph.find_edges(ids, etype=edge_type)
                assert torch.equal(block.srcnodes[edge_type[0]].data[dgl.NID][src], whole_src)
                assert torch.equal(block.dstnodes[edge_type[2]].data[dgl.NID][dst], whole_dst)
            assert torch.equal(block.edges[TO].data["weight"], block.edges[TO].data[dgl.EID].float())
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(200))
    assert loader.counts()["paper"].rows_requested > 0


def test_a_homogeneous_graph_needs_no_names(paper_rows: Any) -> None:
    rows, array = paper_rows
    ends = torch.randint(0, 600, (2, 3000), generator=torch.Generator().manual_seed(2))
    graph = dgl.graph((ends[0], ends[1]), num_nodes=600)
    sampler = MultiLayerFullNeighborSampler(1)
    ((inputs, outputs, blocks),) = DataLoader(graph, torch.arange(50), sampler, batch_size=50, features=array)
    np.testing.assert_array_equal(blocks[0].srcdata["feat"], rows[inputs])
    assert torch.equal(outputs, torch.arange(50))
    assert blocks[0].num_edges() == int(graph.in_degrees(torch.arange(50)).sum())


def test_edges_come_back_as_dgls(graph: Any) -> None:
    ours = graph_of(graph)
    for edge_type in (TO, BACK):
        src, dst = graph.edges(etype=edge_type)
        csc = ours[edge_type]
        ids = csc.edge_ids if csc.edge_ids is not None else np.arange(csc.num_edges)
        np.testing.assert_array_equal(src[ids], csc.indices)
        np.testing.assert_array_equal(dst[ids], np.repeat(np.arange(csc.num_dst), csc.degrees()))


def test_without_features_it_is_dgls_loader(graph: Any) -> None:
    theirs, ours = batches_of(dgl.dataloading.DataLoader, graph), batches_of(DataLoader, graph)
    for (inputs, _, _), (our_inputs, _, blocks) in zip(theirs, ours, strict=True):
        assert torch.equal(inputs["paper"], our_inputs["paper"])
        assert torch.equal(blocks[0].srcnodes["paper"].data["year"], our_inputs["paper"].float())


def test_a_data_set_of_ours_brings_features_and_labels(tmp_path: Path) -> None:
    synthesize(tmp_path / "igbh", scale=0.003, seed=1, dim=8)
    dataset = gids.open_dataset(convert_igbh(tmp_path / "igbh", tmp_path / "store"))
    seeds = {"paper": torch.from_numpy(dataset.tasks["19"].split().train[:60])}
    loader = DataLoader(dataset, seeds, NeighborSampler([3, 2]), batch_size=20, labels="19", cache="64KiB")
    for inputs, outputs, blocks in loader:
        for name in dataset.features:
            expected = dataset.features[name].take(inputs[name].numpy())
            np.testing.assert_array_equal(blocks[0].srcnodes[name].data["feat"], expected)
        labels = blocks[-1].dstnodes["paper"].data["label"]
        np.testing.assert_array_equal(labels, dataset.tasks["19"].labels[outputs["paper"]])
    loader.close()


def test_an_epoch_left_early_leaves_nothing_running(graph: Any, paper_rows: Any) -> None:
    _, array = paper_rows
    before = set(threading.enumerate())
    loader = DataLoader(
        graph, {"paper": torch.arange(600)}, NeighborSampler([2]), batch_size=10, features={"paper": array}
    )
    for _ in loader:
        break
    loader.close()
    assert set(threading.enumerate()) <= before


def test_bad_settings_are_refused_before_any_work(graph: Any) -> None:
    seeds, sampler = {"paper": torch.arange(5)}, NeighborSampler([2])
    with pytest.raises(UnknownNodeType, match="paper"):
        DataLoader(graph, seeds, sampler, features={"papers": np.zeros((600, 1))})
    with pytest.raises(ConfigError, match="mapping"):
        DataLoader(graph, seeds, sampler, features=np.zeros((600, 1)))
    with pytest.raises(ConfigError, match="600"):
        DataLoader(graph, seeds, sampler, features={"paper": np.zeros((5, 1))})
    with pytest.raises(ConfigError, match="prob"):
        NeighborSampler([2], prob="weight")
    with pytest.raises(ConfigError, match="labels"):
        DataLoader(graph, seeds, sampler, labels="19")
