"""OGB folders and MAG240M: stores hold what the files hold."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stores import assert_edges, assert_features, assert_split, converted, random_edges, write_csv

from gids.cli.info import _store_facts
from gids.errors import DatasetError
from gids.formats.convert import convert_dataset
from gids.formats.detect import detect_format
from gids.formats.format import RelationOptions
from gids.graph.feature_types import FeatureDtype

HOMOGENEOUS = ("_N", "_E", "_N")


def write_ogb(folder: Path, *, edges: Any, rows: Any, labels: Any, parts: Any, rule: str = "time") -> Path:
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", edges.T)
    write_csv(raw / "num-node-list.csv.gz", np.array([len(rows)]))
    write_csv(raw / "num-edge-list.csv.gz", np.array([edges.shape[1]]))
    write_csv(raw / "node-feat.csv.gz", rows, "%.9g")
    write_csv(raw / "node-label.csv.gz", labels)
    write_csv(raw / "node_year.csv.gz", np.full(len(rows), 2015))
    for name, ids in zip(("train", "valid", "test"), parts, strict=True):
        write_csv(folder / "split" / rule / f"{name}.csv.gz", ids)
    return folder


@pytest.fixture
def arrays() -> dict[str, Any]:
    random = np.random.default_rng(4)
    order = random.permutation(80)
    return {
        "edges": random_edges(random, 80, 80, 500),
        "rows": random.standard_normal((80, 5)).astype(np.float32),
        "labels": random.integers(0, 7, 80),
        "parts": (order[:50], order[50:60], order[60:]),
    }


def test_text_set(tmp_path: Path, arrays: dict[str, Any]) -> None:
    folder = write_ogb(tmp_path / "ogbn_arxiv", **arrays)
    assert detect_format(folder).name == "ogb"
    found = converted(folder, tmp_path / "store")
    assert_edges(found, {HOMOGENEOUS: arrays["edges"]})
    assert_features(found, {"_N": arrays["rows"]})
    np.testing.assert_array_equal(found.tasks["label"].labels, arrays["labels"])
    assert found.tasks["label"].n_classes == arrays["labels"].max() + 1
    assert_split(found, "label", *arrays["parts"])
    # Once more: nothing to do; other settings: another store.
    convert_dataset(folder, tmp_path / "store", "ogb")
    with pytest.raises(DatasetError, match="other files or settings"):
        convert_dataset(folder, tmp_path / "store", relations=RelationOptions(reverse=True))


def test_sets_whose_loader_adds_the_other_direction(tmp_path: Path, arrays: dict[str, Any]) -> None:
    folder = write_ogb(tmp_path / "ogbn_products", **arrays, rule="sales_ranking")
    edges = arrays["edges"]
    doubled = np.empty((2, 1000), np.int64)
    doubled[:, 0::2], doubled[:, 1::2] = edges, edges[::-1]
    assert_edges(converted(folder, tmp_path / "store"), {HOMOGENEOUS: doubled})


def test_several_columns_of_labels_are_as_many_tasks(tmp_path: Path, arrays: dict[str, Any]) -> None:
    labels = np.random.default_rng(1).integers(0, 2, (80, 3))
    folder = write_ogb(tmp_path / "ogbn_proteins", **(arrays | {"labels": labels}), rule="species")
    (folder / "raw" / "node-feat.csv.gz").unlink()
    write_csv(folder / "raw" / "edge-feat.csv.gz", np.ones((500, 8)), "%g")
    found = converted(folder, tmp_path / "store")
    assert sorted(found.tasks) == ["label_0", "label_1", "label_2"]
    assert found.features == {}
    for column in range(3):
        np.testing.assert_array_equal(found.tasks[f"label_{column}"].labels, labels[:, column])


@pytest.mark.parametrize(("save", "order"), [(np.savez, "C"), (np.savez, "F"), (np.savez_compressed, "F")])
def test_binary_set(tmp_path: Path, arrays: dict[str, Any], save: Any, order: str) -> None:
    folder = write_ogb(tmp_path / "ogbn_papers100M", **arrays)
    for path in (folder / "raw").iterdir():
        path.unlink()
    save(
        folder / "raw" / "data.npz",
        edge_index=np.array(arrays["edges"], order=order),
        node_feat=arrays["rows"],
        node_year=np.zeros(80),
        num_nodes_list=np.array([80]),
        num_edges_list=np.array([500]),
    )
    labels = arrays["labels"].astype(np.float32)
    labels[arrays["parts"][2][:5]] = np.nan
    save(folder / "raw" / "node-label.npz", node_label=labels[:, None])
    found = converted(folder, tmp_path / "store")
    assert_edges(found, {HOMOGENEOUS: arrays["edges"]})
    assert_features(found, {"_N": arrays["rows"]})
    np.testing.assert_array_equal(found.tasks["label"].labels, np.nan_to_num(labels, nan=-1))
    train, valid, test = arrays["parts"]
    assert_split(found, "label", train, valid, test[5:])


def test_heterogeneous_set(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    folder, raw = tmp_path / "ogbn_mag", tmp_path / "ogbn_mag" / "raw"
    counts = {"author": 30, "paper": 50}
    edges = {
        ("author", "writes", "paper"): random_edges(random, 30, 50, 90),
        ("paper", "cites", "paper"): random_edges(random, 50, 50, 70),
    }
    raw.mkdir(parents=True)
    header = ",".join(counts) + "\n" + ",".join(str(each) for each in counts.values()) + "\n"
    (raw / "num-node-dict.csv.gz").write_bytes(gzip.compress(header.encode()))
    triplets = "".join(",".join(each) + "\n" for each in edges)
    (raw / "triplet-type-list.csv.gz").write_bytes(gzip.compress(triplets.encode()))
    for edge_type, ends in edges.items():
        place = raw / "relations" / "___".join(edge_type)
        write_csv(place / "edge.csv.gz", ends.T)
        write_csv(place / "num-edge-list.csv.gz", np.array([ends.shape[1]]))
    rows, labels = random.standard_normal((50, 4)).astype(np.float32), random.integers(0, 5, 50)
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", rows, "%.9g")
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", labels)
    for name, ids in (("train", range(30)), ("valid", range(30, 40)), ("test", range(40, 50))):
        write_csv(folder / "split" / "time" / "paper" / f"{name}.csv.gz", np.array(ids))
    assert_edges(converted(folder, tmp_path / "store"), edges)
    found = converted(folder, tmp_path / "both", relations=RelationOptions(True, ("cites",)))
    cites = edges["paper", "cites", "paper"]
    expected = edges | {
        ("paper", "rev_writes", "author"): edges["author", "writes", "paper"][::-1],
        ("paper", "cites", "paper"): np.concatenate([cites, cites[::-1]], axis=1),
    }
    assert_edges(found, expected)
    assert_features(found, {"paper": rows})
    np.testing.assert_array_equal(found.tasks["label"].labels, labels)
    assert_split(found, "label", np.arange(30), np.arange(30, 40), np.arange(40, 50))


def test_real_arxiv_labels_and_counts(tmp_path: Path, shared_data: Path | None) -> None:
    """The published files, and edges and features made up beside them."""
    if shared_data is None:
        pytest.skip("the shared data folder is not there")
    folder = tmp_path / "ogbn_arxiv"
    raw = folder / "raw"
    raw.mkdir(parents=True)
    for path in (shared_data / "ogb-layout" / "ogbn_arxiv" / "raw").iterdir():
        (raw / path.name).write_bytes(path.read_bytes())
    edges = random_edges(np.random.default_rng(0), 169_343, 169_343, 1000)
    write_csv(raw / "edge.csv.gz", edges.T)
    with pytest.raises(DatasetError, match="1166243 edges, as num-edge-list says, found 1000"):
        convert_dataset(folder, tmp_path / "store")
    (raw / "num-edge-list.csv.gz").unlink()
    write_csv(raw / "num-edge-list.csv", np.array([1000]))
    found = converted(folder, tmp_path / "other")
    lines = gzip.decompress((raw / "node-label.csv.gz").read_bytes()).split()
    np.testing.assert_array_equal(found.tasks["label"].labels, np.array(lines, np.int64))
    assert found.tasks["label"].n_classes == 40
    assert len(found.tasks["label"].usual_split().train) == int(0.6 * 169_343)


def write_mag240m(root: Path) -> dict[str, Any]:
    random = np.random.default_rng(2)
    folder = root / "mag240m_kddcup2021"
    counts = {"paper": 60, "author": 25, "institution": 6, "num_classes": 153}
    edges = {
        ("author", "affiliated_with", "institution"): random_edges(random, 25, 6, 30),
        ("author", "writes", "paper"): random_edges(random, 25, 60, 100),
        ("paper", "cites", "paper"): random_edges(random, 60, 60, 150),
    }
    rows = random.standard_normal((60, 8)).astype(np.float16)
    labels = random.integers(0, 153, 60).astype(np.float32)
    labels[50:] = np.nan
    (folder / "processed" / "paper").mkdir(parents=True)
    np.save(folder / "processed" / "paper" / "node_feat.npy", rows)
    np.save(folder / "processed" / "paper" / "node_label.npy", labels)
    np.save(folder / "processed" / "paper" / "node_year.npy", np.full(60, 2019))
    for edge_type, ends in edges.items():
        place = folder / "processed" / "___".join(edge_type)
        place.mkdir()
        np.save(place / "edge_index.npy", ends)
    torch.save(counts, folder / "meta.pt")
    split = {"train": np.arange(40), "valid": np.arange(40, 50), "test": np.arange(50, 60)}
    torch.save(split, folder / "split_dict.pt")
    return {"edges": edges, "rows": rows, "labels": labels, "folder": folder}


def test_mag240m(tmp_path: Path) -> None:
    made = write_mag240m(tmp_path)
    assert detect_format(tmp_path).name == detect_format(made["folder"]).name == "mag240m"
    found = converted(tmp_path, tmp_path / "store")
    edges = made["edges"]
    cites = edges["paper", "cites", "paper"]
    expected = edges | {
        ("institution", "rev_affiliated_with", "author"): edges["author", "affiliated_with", "institution"][
            ::-1
        ],
        ("paper", "rev_writes", "author"): edges["author", "writes", "paper"][::-1],
        ("paper", "cites", "paper"): np.concatenate([cites, cites[::-1]], axis=1),
    }
    assert_edges(found, expected)
    assert_features(found, {"paper": made["rows"]})
    assert found.features["paper"].dtype is FeatureDtype.FLOAT16
    assert found.tasks["label"].n_classes == 153
    np.testing.assert_array_equal(found.tasks["label"].labels, np.nan_to_num(made["labels"], nan=-1))
    assert_split(found, "label", np.arange(40), np.arange(40, 50), np.arange(0))
    facts = _store_facts(tmp_path / "store")["node_types"]
    assert [(each["name"], each["nodes"], each["dim"]) for each in facts] == [
        ("author", 25, 0),
        ("institution", 6, 0),
        ("paper", 60, 8),
    ]
    plain = converted(tmp_path, tmp_path / "plain", relations=RelationOptions())
    assert_edges(plain, edges)


def test_interrupted_it_goes_on(
    tmp_path: Path, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_ogb(tmp_path / "ogbn_arxiv", **arrays)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in ("check_edges", "build_csc", "write_features", "record_file"):
        with monkeypatch.context() as patch:
            patch.setattr(f"gids.graph.store_build.{step}", interrupted)
            with pytest.raises(KeyboardInterrupt):
                convert_dataset(folder, tmp_path / "store")
        assert not (tmp_path / "store").exists()
    read = []
    monkeypatch.setattr("gids.formats.ogb_text.csv_numbers", lambda *_: read.append(1))
    convert_dataset(folder, tmp_path / "store")
    assert read == [], "what was staged is not read again"
    monkeypatch.undo()
    convert_dataset(folder, tmp_path / "whole")
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file() and path.name != "journal.jsonl":
            assert (
                path.read_bytes() == (tmp_path / "store" / path.relative_to(tmp_path / "whole")).read_bytes()
            )


def _spoil_text(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("raw/edge.csv.gz", "0,1\n2,x\n", "2 whole numbers a line"),
        ("raw/edge.csv.gz", "0,1\n2\n", "2 whole numbers a line"),
        ("raw/edge.csv.gz", "0,1\n2,\n", "none in column 1, row 1"),
        ("raw/edge.csv.gz", "0,1\n", "500 edges, as num-edge-list says, found 1"),
        ("raw/edge.csv.gz", "0,80\n" * 500, "_N ids from 0 to 79, found 80 in column 1 of row 0"),
        ("raw/num-node-list.csv.gz", "5\n6\n", "data sets of one graph"),
        ("raw/node-feat.csv.gz", "1,2\n" * 79, "shape \\(80, dim\\), a row for each _N"),
        ("raw/node-feat.csv.gz", "1,b\n" * 80, "2 numbers a line"),
        ("raw/node-label.csv.gz", "1\n" * 79, "80 labels, one a node, found 79"),
        ("raw/node-label.csv.gz", "1.5\n" * 80, "1.5 for node 0"),
        ("raw/node-label.csv.gz", "40000\n" * 80, "whole numbers below 32768"),
        ("split/time/valid.csv.gz", "80\n", "node ids from 0 to 79, found 80"),
        ("split/time/valid.csv.gz", "1\n1\n", "node 1 twice"),
    ],
)
def test_files_that_cannot_be(
    tmp_path: Path, arrays: dict[str, Any], file: str, text: str, message: str
) -> None:
    folder = write_ogb(tmp_path / "ogbn_arxiv", **arrays)
    if "valid" in file:
        write_csv(folder / "split/time/train.csv.gz", np.arange(2, 9))
        write_csv(folder / "split/time/test.csv.gz", np.arange(9, 12))
    _spoil_text(folder / file, text)
    with pytest.raises(DatasetError, match=message):
        convert_dataset(folder, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_damaged_archives_and_pickles(tmp_path: Path, arrays: dict[str, Any]) -> None:
    folder = write_ogb(tmp_path / "ogbn_arxiv", **arrays)
    path = folder / "raw" / "edge.csv.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"edge\.csv\.gz"):
        convert_dataset(folder, tmp_path / "store")
    archive = folder / "raw" / "data.npz"
    np.savez(archive, edge_index=arrays["edges"], num_nodes_list=[80])
    with pytest.raises(DatasetError, match="'num_edges_list'"):
        convert_dataset(folder, tmp_path / "two")
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DatasetError, match=r"data\.npz: expected an npz archive"):
        convert_dataset(folder, tmp_path / "three")
    made = write_mag240m(tmp_path)

    class Evil:
        def __reduce__(self) -> Any:
            return print, ("run",)

    torch.save({"paper": Evil()}, made["folder"] / "meta.pt")
    with pytest.raises(DatasetError, match=r"meta\.pt.*object of print"):
        convert_dataset(tmp_path, tmp_path / "four", "mag240m")
    torch.save({"paper": 60, "author": 25, "institution": -6, "num_classes": 153}, made["folder"] / "meta.pt")
    with pytest.raises(DatasetError, match="'institution': a count"):
        convert_dataset(tmp_path, tmp_path / "five", "mag240m")
    (made["folder"] / "split_dict.pt").unlink()
    with pytest.raises(DatasetError, match=r"split_dict\.pt"):
        convert_dataset(tmp_path, tmp_path / "six", "mag240m")


def test_what_was_looked_for_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"meta\.pt.*raw/edge\.csv\.gz.*metadata\.yaml.*graph\.toml"):
        detect_format(tmp_path)
