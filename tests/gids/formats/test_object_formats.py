"""PyG's data objects, DGL's files and GraphBolt's folders: stores hold what the objects hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stores import assert_edges, assert_features, assert_split, converted, random_edges, write_csv

from gids.errors import DatasetError
from gids.formats.convert import convert_dataset
from gids.formats.detect import detect_format
from gids.sampling.dgl_import import import_dgl

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
COUNTS = {"author": 20, "paper": 45}


@pytest.fixture
def arrays() -> dict[str, Any]:
    random = np.random.default_rng(9)
    order = random.permutation(45)
    masks = np.zeros((3, 45), bool)
    for mask, ids in zip(masks, np.split(order, [25, 35]), strict=True):
        mask[ids] = True
    return {
        "edges": {WRITES: random_edges(random, 20, 45, 80), CITES: random_edges(random, 45, 45, 60)},
        "rows": random.standard_normal((45, 6)).astype(np.float32),
        "counts": random.integers(0, 9, (20, 3)),
        "labels": random.integers(0, 4, 45),
        "masks": masks,
    }


def assert_same(found: Any, arrays: dict[str, Any], task: str) -> None:
    assert_edges(found, arrays["edges"])
    assert_features(found, {"paper": arrays["rows"], "author": arrays["counts"]})
    np.testing.assert_array_equal(found.tasks[task].labels, arrays["labels"])
    assert_split(found, task, *(np.flatnonzero(mask) for mask in arrays["masks"]))


def hetero_data(arrays: dict[str, Any]) -> Any:
    pyg = pytest.importorskip("torch_geometric", reason="PyG is not installed")
    data = pyg.data.HeteroData()
    data["paper"].x, data["paper"].y = torch.tensor(arrays["rows"]), torch.tensor(arrays["labels"])
    for name, mask in zip(("train_mask", "val_mask", "test_mask"), arrays["masks"], strict=True):
        data["paper"][name] = torch.tensor(mask)
    data["author"].x = torch.tensor(arrays["counts"])
    for edge_type, ends in arrays["edges"].items():
        data[edge_type].edge_index = torch.tensor(ends)
        data[edge_type].edge_attr = torch.zeros(ends.shape[1], 2)
    return data


def test_hetero_data(tmp_path: Path, arrays: dict[str, Any]) -> None:
    data = hetero_data(arrays)
    torch.save(data, tmp_path / "data.pt")
    assert detect_format(tmp_path / "data.pt").name == "pyg"
    assert_same(converted(tmp_path / "data.pt", tmp_path / "store"), arrays, "y")
    # As PyG's in-memory data sets save it, in both of the forms there are.
    torch.save((data.to_dict(), None, type(data)), tmp_path / "three.pt")
    assert_same(converted(tmp_path / "three.pt", tmp_path / "store3"), arrays, "y")
    torch.save((data, None), tmp_path / "two.pt")
    assert_same(converted(tmp_path / "two.pt", tmp_path / "store2"), arrays, "y")


def test_data_of_one_type(tmp_path: Path, arrays: dict[str, Any]) -> None:
    pyg = pytest.importorskip("torch_geometric", reason="PyG is not installed")
    edges = arrays["edges"][CITES]
    labels = torch.tensor(arrays["labels"])
    labels[7] = -1
    data = pyg.data.Data(torch.tensor(arrays["rows"]).double(), torch.tensor(edges), y=labels)
    torch.save(data, tmp_path / "data.pt")
    found = converted(tmp_path / "data.pt", tmp_path / "store")
    assert_edges(found, {("_N", "_E", "_N"): edges})
    assert_features(found, {"_N": arrays["rows"]})
    np.testing.assert_array_equal(found.tasks["y"].labels, labels)
    # Without masks: 60 / 20 / 20 of the nodes that have labels.
    labelled = np.flatnonzero(labels.numpy() >= 0)
    assert_split(found, "y", labelled[:26], labelled[26:34], labelled[34:])


def test_objects_that_cannot_be_taken(tmp_path: Path, arrays: dict[str, Any]) -> None:
    pyg = pytest.importorskip("torch_geometric", reason="PyG is not installed")
    path = tmp_path / "data.pt"

    def refused(data: Any, message: str) -> None:
        torch.save(data, path)
        with pytest.raises(DatasetError, match=message) as caught:
            convert_dataset(path, tmp_path / "store", "pyg", overwrite=True)
        assert caught.value.file.startswith(str(path))
        for left in sorted((tmp_path / "store.partial").rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()

    refused(pyg.data.Data(x=torch.zeros(3, 2)), "edges: an edge_index")
    refused({"weights": torch.zeros(3)}, "edges: an edge_index")
    refused([1, 2, 3], "a HeteroData or Data of PyG, found list")
    data = hetero_data(arrays)
    data["paper"].y = torch.rand(45)
    refused(data, "classes: whole numbers below 32768, found")
    data["paper"].y = torch.zeros(44, dtype=torch.int64)
    refused(data, "num_nodes, or attributes with a row for each node, found lengths")
    data = hetero_data(arrays)
    data[WRITES].edge_index = torch.zeros(3, 4)
    refused(data, r"shape \(2, edges\)")
    data = hetero_data(arrays)
    data["paper"].train_mask = torch.zeros(3, dtype=torch.bool)
    data["paper"].num_nodes = 45
    refused(data, "a truth value for each of 45 nodes")
    data = hetero_data(arrays)
    data["author"].x = torch.full((20, 1), 2**40)
    refused(data, "whole numbers up to")
    data = hetero_data(arrays)
    data["a/b", "to", "paper"].edge_index = torch.zeros(2, 0, dtype=torch.int64)
    data["a/b"].num_nodes = 1
    refused(data, "a name without '/'")
    torch.save(hetero_data(arrays), path)
    content = path.read_bytes()
    for cut in (10, len(content) // 2, len(content) - 5):
        path.write_bytes(content[:cut])
        with pytest.raises(DatasetError, match=r"data\.pt"):
            convert_dataset(path, tmp_path / f"store{cut}", "pyg")


def test_dgl_file(tmp_path: Path, arrays: dict[str, Any]) -> None:
    pytest.importorskip("dgl" if False else "torch", reason="torch is not installed")
    dgl = import_dgl()
    graph = dgl.heterograph(
        {each: tuple(torch.tensor(ends)) for each, ends in arrays["edges"].items()}, num_nodes_dict=COUNTS
    )
    paper = graph.nodes["paper"].data
    paper["feat"], paper["label"] = torch.tensor(arrays["rows"]), torch.tensor(arrays["labels"])
    for name, mask in zip(("train_mask", "val_mask", "test_mask"), arrays["masks"], strict=True):
        paper[name] = torch.tensor(mask)
    graph.nodes["author"].data["feat"] = torch.tensor(arrays["counts"])
    path = tmp_path / "graph.bin"
    dgl.save_graphs(str(path), [graph])
    assert detect_format(path).name == "dgl"
    assert_same(converted(path, tmp_path / "store"), arrays, "label")
    dgl.save_graphs(str(tmp_path / "two.bin"), [graph, graph])
    with pytest.raises(DatasetError, match="one graph, found 2"):
        convert_dataset(tmp_path / "two.bin", tmp_path / "other")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatasetError, match=r"graph\.bin: expected a whole file of dgl\.save_graphs"):
        convert_dataset(path, tmp_path / "third")
    path.write_bytes(b"something else")
    with pytest.raises(DatasetError, match="another first word"):
        convert_dataset(path, tmp_path / "fourth", "dgl")


METADATA = """
dataset_name: made
graph:
  nodes:
    - {type: author, num: 20}
    - {type: paper, num: 45}
  edges:
    - {type: "author:writes:paper", format: csv, path: edges/writes.csv}
    - {type: "paper:cites:paper", format: numpy, path: edges/cites.npy}
feature_data:
  - {domain: node, type: paper, name: feat, format: numpy, in_memory: false, path: data/paper.npy}
  - {domain: node, type: paper, name: year, format: numpy, path: data/year.npy}
  - {domain: node, type: author, name: feat, format: torch, path: data/author.pt}
tasks:
  - name: topics
    num_classes: 4
    train_set:
      - {type: paper, data: [{name: seeds, format: numpy, path: set/train.npy},
                             {name: labels, format: numpy, path: set/train_labels.npy}]}
    validation_set:
      - {type: paper, data: [{name: seeds, format: torch, path: set/valid.pt},
                             {name: labels, format: torch, path: set/valid_labels.pt}]}
    test_set:
      - {type: paper, data: [{name: seeds, format: numpy, path: set/test.npy},
                             {name: labels, format: numpy, path: set/test_labels.npy}]}
"""


def write_graphbolt(folder: Path, arrays: dict[str, Any], metadata: str = METADATA) -> Path:
    for name in ("edges", "data", "set"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata.yaml").write_text(metadata)
    write_csv(folder / "edges" / "writes.csv", arrays["edges"][WRITES].T)
    np.save(folder / "edges" / "cites.npy", arrays["edges"][CITES].astype(np.int32))
    np.save(folder / "data" / "paper.npy", arrays["rows"])
    np.save(folder / "data" / "year.npy", np.zeros(45))
    torch.save(torch.tensor(arrays["counts"]), folder / "data" / "author.pt")
    for name, mask in zip(("train", "valid", "test"), arrays["masks"], strict=True):
        ids = np.flatnonzero(mask)
        for suffix, values in (("", ids), ("_labels", arrays["labels"][ids])):
            np.save(folder / "set" / f"{name}{suffix}.npy", values)
            torch.save(torch.tensor(values), folder / "set" / f"{name}{suffix}.pt")
    return folder


def test_graphbolt_folder(tmp_path: Path, arrays: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install 'gids-bam[graphbolt]'")
    folder = write_graphbolt(tmp_path / "made", arrays)
    assert detect_format(folder).name == "graphbolt"
    found = converted(folder, tmp_path / "store")
    assert_same(found, arrays, "topics")
    assert found.tasks["topics"].n_classes == 4
    assert "'year' of paper are left out" in caplog.text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph:", "topology:", "graph: nodes and edges"),
        ("num: 45", "num: many", r"graph\.nodes\.num: expected a count, found 'many'"),
        ("author:writes:paper", "writes", "source:relation:destination"),
        ("format: csv", "format: parquet", "csv or numpy, found 'parquet'"),
        ("path: data/paper.npy", "path: data/none.npy", r"none\.npy: expected a file"),
        ("num_classes: 4", "num_classes: four", r"tasks\.num_classes"),
        ("name: topics", "name: ../topics", "a name without '/'"),
        ("path: set/train_labels.npy", "path: set/test_labels.npy", "labels, one a seed"),
        ("num: 45", "num: 44", "paper ids from 0 to 43"),
        ("dataset_name: made", "dataset_name: [", "YAML"),
        ("{name: labels, format: numpy, path: set/train_labels.npy}", "", "an entry of name labels"),
    ],
)
def test_metadata_that_cannot_be(
    tmp_path: Path, arrays: dict[str, Any], old: str, new: str, message: str
) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed: pip install 'gids-bam[graphbolt]'")
    assert old in METADATA
    folder = write_graphbolt(tmp_path / "made", arrays, METADATA.replace(old, new))
    with pytest.raises(DatasetError, match=message):
        convert_dataset(folder, tmp_path / "store", "graphbolt")
