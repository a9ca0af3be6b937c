"""`gids.pyg`: what PyG's own loaders promise, from memory and from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pyg = pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'gids-bam[pyg]'")

import bam  # noqa: E402
import gids  # noqa: E402
from bam.errors import ConfigError  # noqa: E402
from gids.adapters.pyg_graph import graph_of  # noqa: E402
from gids.errors import GraphError, UnknownNodeType  # noqa: E402
from gids.graph.convert import convert_igbh  # noqa: E402
from gids.graph.synth import synthesize  # noqa: E402
from gids.pyg import NeighborLoader, Sampler, open_stores  # noqa: E402

TO, BACK = ("author", "writes", "paper"), ("paper", "written_by", "author")


@pytest.fixture
def data() -> Any:
    made = pyg.data.HeteroData()
    random = torch.Generator().manual_seed(3)
    made["paper"].x = torch.randn(600, 8, generator=random)
    made["paper"].y = torch.arange(600)
    made["author"].num_nodes = 300

    def ends(n: int) -> Any:
        return torch.randint(0, n, (4000,), generator=random)

    made[TO].edge_index = torch.stack([ends(300), ends(600)])
    made[TO].edge_attr = torch.arange(4000.0)
    made[BACK].edge_index = torch.stack([ends(600), ends(300)])
    return made


@pytest.fixture
def author_rows(tmp_path: Path) -> Any:
    rows = np.random.default_rng(0).standard_normal((300, 16), dtype=np.float32)
    np.save(tmp_path / "author.npy", rows)
    with bam.open_array(tmp_path / "author.npy", cache="16KiB") as array:
        yield rows, array


def test_mini_batches_have_what_pygs_have(data: Any, author_rows: Any) -> None:
    rows, array = author_rows
    seeds = torch.arange(0, 600, 5)
    loader = NeighborLoader(
        data, [4, 3], ("paper", seeds), batch_size=32, shuffle=True, features={"author": array}, num_workers=2
    )
    seen = []
    for batch in loader:
        size = batch["paper"].batch_size
        ids = batch["paper"].n_id
        seen.append(ids[:size])
        assert torch.equal(seeds[batch["paper"].input_id], ids[:size])
        assert torch.equal(batch["paper"].x, data["paper"].x[ids])
        assert torch.equal(batch["paper"].y, ids)
        np.testing.assert_array_equal(batch["author"].x, rows[batch["author"].n_id])
        assert sum(batch["paper"].num_sampled_nodes) == len(ids)
        for edge_type in (TO, BACK):
            edges = batch[edge_type]
            whole = data[edge_type].edge_index[:, edges.e_id]
            assert torch.equal(batch[edge_type[0]].n_id[edges.edge_index[0]], whole[0])
            assert torch.equal(batch[edge_type[2]].n_id[edges.edge_index[1]], whole[1])
            assert sum(edges.num_sampled_edges) == edges.edge_index.shape[1]
        assert torch.equal(batch[TO].edge_attr, batch[TO].e_id.float())
    assert len(seen) == len(loader) == 4
    assert torch.equal(torch.cat(seen).sort().values, seeds)
    assert not torch.equal(torch.cat(seen), seeds)
    assert loader.counts()["author"].rows_requested > 0


def test_a_seeded_script_gets_the_same_mini_batches_again(data: Any) -> None:
    def ids(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        loader = NeighborLoader(data, [3, 2], "paper", batch_size=100, shuffle=True)
        return [batch["paper"].n_id.tolist() for _ in range(2) for batch in loader]

    first, again, other = ids(1), ids(1), ids(2)
    assert first == again
    assert first != other
    assert first[:6] != first[6:], "each epoch draws anew"


def test_homogeneous_data_and_trimming(author_rows: Any) -> None:
    rows, array = author_rows
    edge_index = torch.randint(0, 300, (2, 2000), generator=torch.Generator().manual_seed(1))
    data = pyg.data.Data(edge_index=edge_index, num_nodes=300, y=torch.arange(300))
    for batch in NeighborLoader(data, [5, 4, 3], batch_size=64, features=array):
        np.testing.assert_array_equal(batch.x, rows[batch.n_id])
        assert torch.equal(batch.y, batch.n_id)
        x, edges, _ = pyg.utils.trim_to_layer(
            1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index
        )
        assert int(edges[0].max()) < len(x)


def test_all_neighbours_are_those_of_the_whole_graph(data: Any) -> None:
    batch = next(iter(NeighborLoader(data, [-1], ("paper", torch.tensor([7, 9])), batch_size=2)))
    wanted = (data[TO].edge_index[1] == 7) | (data[TO].edge_index[1] == 9)
    assert torch.equal(batch[TO].e_id.sort().values, wanted.nonzero().view(-1))


class OwnSampler(pyg.sampler.BaseSampler):
    """Somebody's own sampler, which draws from PyTorch's generator."""

    def sample_from_nodes(self, inputs: Any, **_: Any) -> Any:
        extra = torch.randint(0, 600, (5,))
        nodes = torch.cat([inputs.node, extra[~torch.isin(extra, inputs.node)].unique()])
        none = torch.empty(0, dtype=torch.int64)
        return pyg.sampler.HeteroSamplerOutput(
            node={"paper": nodes},
            row={TO: none, BACK: none},
            col={TO: none, BACK: none},
            edge={TO: none, BACK: none},
            metadata=(inputs.input_id, inputs.time),
        )

    def sample_from_edges(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


def test_with_a_sampler_of_pygs_kind_mini_batches_are_those_of_pygs_loader(data: Any) -> None:
    def ids(make: Any) -> list[Any]:
        torch.manual_seed(4)
        return [batch["paper"].n_id.tolist() for batch in make()]

    settings = {"input_nodes": ("paper", torch.arange(90)), "batch_size": 16, "shuffle": True}
    theirs = ids(lambda: pyg.loader.NodeLoader(data, OwnSampler(), **settings))
    ours = ids(lambda: NeighborLoader(data, [1], neighbor_sampler=OwnSampler(), **settings))
    assert theirs == ours


def test_our_sampler_in_pygs_own_loader() -> None:
    sampler = Sampler(gids.Graph.from_coo({("a", "to", "a"): ([0, 1], [1, 2])}, {"a": 3}), [-1, -1])
    data = pyg.data.Data(x=torch.arange(3.0)[:, None], edge_index=torch.tensor([[0, 1], [1, 2]]))
    (batch,) = pyg.loader.NodeLoader(data, sampler, torch.tensor([2]))
    assert batch.n_id.tolist() == [2, 1, 0]
    assert batch.x.view(-1).tolist() == [2, 1, 0]


def test_an_error_in_a_later_mini_batch_comes_after_those_before_it(data: Any) -> None:
    class Failing(OwnSampler):
        def sample_from_nodes(self, inputs: Any, **_: Any) -> Any:
            if 40 in inputs.node:
                raise RuntimeError("no more")
            return pyg.sampler.HeteroSamplerOutput(
                node={"paper": inputs.node}, row={}, col={}, edge={}, metadata=(inputs.input_id, None)
            )

    loader = NeighborLoader(data, [1], ("paper", torch.arange(90)), batch_size=10, neighbor_sampler=Failing())
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    with pytest.raises(RuntimeError, match="no more"):
        next(iterator)


def test_rows_are_those_of_what_the_users_transform_leaves(data: Any, author_rows: Any) -> None:
    rows, array = author_rows

    def reversed_authors(output: Any) -> Any:
        output.node["author"] = output.node["author"].flip(0)
        return output

    loader = NeighborLoader(
        data,
        [3],
        ("paper", torch.arange(40)),
        batch_size=20,
        features={"author": array},
        transform_sampler_output=reversed_authors,
    )
    for batch in loader:
        np.testing.assert_array_equal(batch["author"].x, rows[batch["author"].n_id])


def test_worker_processes_and_epochs_draw_other_neighbours(data: Any) -> None:
    graph = graph_of(data)
    sampler = Sampler(graph, [3], seed=1)
    loader = pyg.loader.NodeLoader(data, sampler, ("paper", torch.arange(64)), batch_size=32, num_workers=2)
    drawn = [batch[TO].e_id.tolist() for _ in range(2) for batch in loader]
    assert len(drawn) == 4
    assert drawn[:2] != drawn[2:]


@pytest.mark.parametrize(
    "setting", [{"disjoint": True}, {"weight_attr": "w"}, {"subgraph_type": "induced"}, {"time_attr": "t"}]
)
def test_what_our_sampler_cannot_do_is_refused(data: Any, setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        NeighborLoader(data, [1], "paper", **setting)


def test_data_without_edges_or_with_unknown_types_is_refused(data: Any) -> None:
    with pytest.raises(GraphError, match="edge_index"):
        NeighborLoader(pyg.data.Data(x=torch.zeros(3, 1)), [1])
    with pytest.raises(UnknownNodeType, match="paper"):
        NeighborLoader(data, [1], "paper", features={"papers": np.zeros((600, 1))})
    with pytest.raises(ConfigError, match="600"):
        NeighborLoader(data, [1], "paper", features={"paper": np.zeros((5, 1))})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pyg")
    synthesize(folder / "igbh", scale=0.003, seed=1, dim=8)
    return gids.open_dataset(convert_igbh(folder / "igbh", folder / "store"))


def test_a_data_set_of_ours_in_one_line(dataset: Any) -> None:
    seeds = torch.from_numpy(dataset.tasks["19"].split().train[:100])
    loader = NeighborLoader(dataset, [4, 2], ("paper", seeds), batch_size=40, labels="19", cache="64KiB")
    for batch in loader:
        for name in dataset.features:
            expected = dataset.features[name].take(batch[name].n_id.numpy())
            np.testing.assert_array_equal(batch[name].x, expected)
        np.testing.assert_array_equal(batch["paper"].y, dataset.tasks["19"].labels[batch["paper"].n_id])
    loader.close()


def test_given_rows_stand_beside_those_of_a_data_set(dataset: Any) -> None:
    papers = np.arange(dataset.graph.schema.num_nodes["paper"], dtype=np.float32)[:, None]
    seeds = ("paper", torch.arange(40))
    loader = NeighborLoader(dataset, [3], seeds, batch_size=20, labels="19", features={"paper": papers})
    for batch in loader:
        np.testing.assert_array_equal(batch["paper"].x[:, 0], batch["paper"].n_id)
        expected = dataset.features["author"].take(batch["author"].n_id.numpy())
        np.testing.assert_array_equal(batch["author"].x, expected)
    loader.close()


def test_stores_are_pygs_remote_backend(dataset: Any) -> None:
    stores = open_stores(dataset, labels="19")
    features, graph = stores
    whole = features.get_tensor(group_name="author", attr_name="x", index=None)
    np.testing.assert_array_equal(whole, dataset.features["author"].take(np.arange(len(whole))))
    assert features.get_tensor_size(group_name="author", attr_name="x") == tuple(whole.shape)
    part = features.get_tensor(group_name="author", attr_name="x", index=torch.tensor([5, 2, 5]))
    assert torch.equal(part, whole[[5, 2, 5]])
    sliced = features.get_tensor(group_name="author", attr_name="x", index=slice(3, 9))
    assert torch.equal(sliced, whole[3:9])
    with pytest.raises(ConfigError, match="attr_name"):
        features.get_tensor(group_name="author", attr_name="z", index=None)
    edge_type = ("paper", "written_by", "author")
    row, column = graph.get_edge_index(edge_type=edge_type, layout="csc")
    np.testing.assert_array_equal(row, dataset.graph[edge_type].indices)
    rows, columns, _ = graph.coo([edge_type])
    assert torch.equal(rows[edge_type], row)
    assert torch.equal(torch.bincount(columns[edge_type], minlength=len(column) - 1), column.diff())
    # PyG's own loader over them, with a sampler that needs no library of PyG's.
    sampler = Sampler(dataset.graph, [2, 2], seed=1)
    theirs = pyg.loader.NodeLoader((features, graph), sampler, ("paper", torch.arange(30)), batch_size=10)
    ours = NeighborLoader((features, graph), [2, 2], ("paper", torch.arange(30)), batch_size=10, seed=1)
    for expected, found in zip(theirs, ours, strict=True):
        for name in dataset.features:
            assert torch.equal(expected[name].n_id, found[name].n_id)
            assert torch.equal(expected[name].x, found[name].x)
    stores.close()


def test_pygs_own_neighbor_loader_takes_them_where_its_sampler_is_installed(dataset: Any) -> None:
    if not (pyg.typing.WITH_PYG_LIB or pyg.typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG's NeighborLoader needs pyg-lib or torch-sparse")
    stores = open_stores(dataset, labels="19")
    loader = pyg.loader.NeighborLoader(tuple(stores), [3, 2], ("paper", torch.arange(40)), batch_size=20)
    for batch in loader:
        for name in dataset.features:
            expected = dataset.features[name].take(batch[name].n_id.numpy())
            np.testing.assert_array_equal(batch[name].x, expected)
    stores.close()
