"""The reader takes folders as published, and says which file is wrong, what it expected and what it found."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from igbh_folders import NODES, write_igbh

from bam.errors import SourceError
from gids.errors import DatasetError
from gids.graph import igbh as igbh_module
from gids.graph import igbh_facts
from gids.graph.igbh import IgbhFolder, is_igbh, label_chunks, open_igbh, read_labels, read_rows
from gids.graph.igbh_facts import PUBLISHED, IgbhSize, labelled_papers, mlperf_papers
from gids.graph.schema import EdgeType

FEATURES = "processed/author/node_feat.npy"
CITES = "processed/paper__cites__paper/edge_index.npy"


def test_counts_are_the_published_ones() -> None:
    assert PUBLISHED[IgbhSize.FULL].nodes["paper"] == 269_346_174
    assert PUBLISHED[IgbhSize.FULL].nodes["journal"] == 49_052
    assert PUBLISHED[IgbhSize.FULL].edges["cites"] == 3_996_442_004
    tiny = PUBLISHED[IgbhSize.TINY].nodes
    rows = sum(tiny[name] for name in ("paper", "author", "fos", "institute"))
    assert rows * 4096 == 2_252_795_904  # 2.25 GB of float32 features of dim 1024


def test_opens_headers_and_counts(igbh: Path) -> None:
    folder = open_igbh(igbh)
    assert folder.num_nodes == NODES
    assert folder.size is None
    assert folder.features["author"].shape == (70, 12)
    assert folder.edges[EdgeType("paper", "topic", "fos")].shape == (700, 2)
    assert sorted(folder.labels) == [19, 2983]
    assert open_igbh(igbh / "processed") == folder
    assert is_igbh(igbh)
    assert not is_igbh(igbh.parent)


def test_journal_and_conference_are_read_when_there(igbh: Path) -> None:
    for relation, end in (
        ("paper__published__journal", "journal"),
        ("paper__venue__conference", "conference"),
    ):
        (igbh / "processed" / relation).mkdir()
        np.save(igbh / "processed" / relation / "edge_index.npy", np.array([[0, 1]], np.int64))
        (igbh / "processed" / end).mkdir()
        np.save(igbh / "processed" / end / "node_feat.npy", np.zeros((3, 12), np.float32))
    folder = open_igbh(igbh)
    assert folder.num_nodes["journal"] == folder.num_nodes["conference"] == 3
    assert EdgeType("paper", "venue", "conference") in folder.edges


def test_files_without_header_read_like_those_with_one(tmp_path: Path, igbh: Path) -> None:
    raw = open_igbh(write_igbh(tmp_path / "raw", headerless=("paper", "author")))
    headed = open_igbh(igbh)
    assert raw.num_nodes == headed.num_nodes
    for name in NODES:
        expected = read_rows(headed.features[name], 0, NODES[name])
        assert np.array_equal(read_rows(raw.features[name], 0, NODES[name]), expected)


def test_rows_are_read_from_the_middle(igbh: Path) -> None:
    whole = np.load(igbh / FEATURES)
    assert np.array_equal(read_rows(open_igbh(igbh).features["author"], 7, 5), whole[7:12])


def _replace(path: Path, array: np.ndarray) -> None:
    np.save(path, array)


@pytest.mark.parametrize(
    ("file", "array", "expected", "found"),
    [
        (FEATURES, np.zeros((70, 12), np.int32), "float32", "int32"),
        (FEATURES, np.zeros(70, np.float32), "(nodes, dim)", "shape (70,)"),
        (CITES, np.zeros((5, 2), np.int32), "int64", "int32 of shape (5, 2)"),
        (CITES, np.zeros((2, 5), np.int64), "(edges, 2)", "shape (2, 5)"),
        ("processed/paper/node_label_19.npy", np.zeros(119, np.float32), "120 labels", "(119,)"),
        ("processed/paper/node_label_19.npy", np.zeros((120, 2), np.float32), "(papers, 1)", "(120, 2)"),
        ("processed/paper/node_label_2K.npy", np.zeros(120, "U3"), "numbers", "<U3"),
    ],
)
def test_wrong_shape_or_dtype(igbh: Path, file: str, array: np.ndarray, expected: str, found: str) -> None:
    _replace(igbh / file, array)
    with pytest.raises((DatasetError, SourceError), match=re.escape(expected)) as caught:
        open_igbh(igbh)
    assert caught.value.file.endswith(file)
    assert found in caught.value.found


@pytest.mark.parametrize("file", [FEATURES, CITES])
def test_missing_and_truncated_files(igbh: Path, file: str) -> None:
    whole = (igbh / file).read_bytes()
    (igbh / file).write_bytes(whole[:-3])
    with pytest.raises(SourceError, match="cut short") as caught:
        open_igbh(igbh)
    assert caught.value.file.endswith(file)
    (igbh / file).unlink()
    with pytest.raises(SourceError, match="No such file"):
        open_igbh(igbh)


def test_missing_folders(igbh: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such data set"):
        open_igbh(tmp_path / "nothing")
    (igbh / CITES).unlink()
    (igbh / CITES).parent.rmdir()
    with pytest.raises(DatasetError, match="paper__cites__paper"):
        open_igbh(igbh)


def test_no_labels_at_all(igbh: Path) -> None:
    for name in igbh_facts.LABEL_FILES.values():
        (igbh / "processed/paper" / name).unlink()
    with pytest.raises(DatasetError, match="node_label_19"):
        open_igbh(igbh)


def test_truncated_file_without_header(tmp_path: Path) -> None:
    folder = write_igbh(tmp_path / "raw", headerless=("author",))
    with open(folder / FEATURES, "r+b") as stream:
        stream.truncate(70 * 48 - 4)
    with pytest.raises(DatasetError, match="without one") as caught:
        open_igbh(folder)
    assert "3356" in str(caught.value)


def test_a_folder_named_after_a_size_must_have_its_counts(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"expected 357041 rows, one for each author, found shape \(70, 12\)"
    ):
        open_igbh(write_igbh(tmp_path / "tiny"))


def test_swapped_feature_files_of_a_synthetic_folder(tmp_path: Path, synthetic: Path) -> None:
    copy = tmp_path / "copy"
    for path in synthetic.rglob("*.npy"):
        target = copy / path.relative_to(synthetic)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(path)
    (copy / "synthetic.toml").write_bytes((synthetic / "synthetic.toml").read_bytes())
    assert open_igbh(copy).num_nodes["paper"] == 2000
    paper, author = copy / "processed/paper/node_feat.npy", copy / FEATURES
    paper.rename(copy / "x")
    author.rename(paper)
    (copy / "x").rename(author)
    with pytest.raises(DatasetError, match="one for each author"):
        open_igbh(copy)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(np.float32, (120,)), (np.int64, (120, 1)), (np.uint16, (120,)), (np.float64, (120, 1))],
)
def test_labels_of_any_number_type(igbh: Path, dtype: type, shape: tuple[int, ...]) -> None:
    labels = np.arange(120) % 19
    _replace(igbh / "processed/paper/node_label_19.npy", labels.astype(dtype).reshape(shape))
    read = read_labels(open_igbh(igbh), 19)
    assert read.dtype == np.int16
    assert np.array_equal(read, labels)


def test_labels_without_header(igbh: Path) -> None:
    (np.arange(120) % 19).astype(np.float32).tofile(igbh / "processed/paper/node_label_19.npy")
    assert np.array_equal(read_labels(open_igbh(igbh), 19), np.arange(120) % 19)


@pytest.mark.parametrize("bad", [19.0, -1.0, 0.5, np.nan, 65536.0])
def test_values_that_are_no_class(igbh: Path, bad: float) -> None:
    labels = np.zeros(120, np.float32)
    labels[77] = bad
    _replace(igbh / "processed/paper/node_label_19.npy", labels)
    with pytest.raises(DatasetError, match=r"labels from 0 to 18.*for paper 77"):
        read_labels(open_igbh(igbh), 19)


def test_swapped_label_files(igbh: Path, tmp_path: Path) -> None:
    folder = igbh / "processed/paper"
    (folder / "node_label_19.npy").rename(tmp_path / "x")
    (folder / "node_label_2K.npy").rename(folder / "node_label_19.npy")
    (tmp_path / "x").rename(folder / "node_label_2K.npy")
    with pytest.raises(DatasetError, match="labels from 0 to 18"):
        read_labels(open_igbh(igbh), 19)


def test_labels_of_19_classes_in_the_file_of_2983(tmp_path: Path) -> None:
    nodes = NODES | {"paper": 30_000}
    folder = write_igbh(tmp_path / "igbh", nodes=nodes)
    _replace(folder / "processed/paper/node_label_2K.npy", (np.arange(30_000) % 19).astype(np.float32))
    with pytest.raises(DatasetError, match=r"none above 18, as if it were node_label_19\.npy"):
        read_labels(open_igbh(folder), 2983)


def test_asking_for_classes_there_are_no_labels_for(igbh: Path) -> None:
    (igbh / "processed/paper/node_label_2K.npy").unlink()
    with pytest.raises(DatasetError, match="labels of 19 classes, found 2983 asked for"):
        read_labels(open_igbh(igbh), 2983)


@pytest.fixture
def padded(igbh: Path, monkeypatch: pytest.MonkeyPatch) -> IgbhFolder:
    """A folder that plays the full set: labels of papers 80 … 119 are padding for 2,983 classes."""
    monkeypatch.setattr(igbh_facts, "_FULL_PAPERS", 120)
    monkeypatch.setattr(igbh_facts, "_FULL_LABELLED", {19: 100, 2983: 80})
    monkeypatch.setattr(igbh_facts, "_FULL_MLPERF", {19: 100, 2983: 90})
    monkeypatch.setattr(igbh_module, "LABEL_CHUNK", 32)
    labels = np.full(120, 7, np.float32)
    labels[80:] = np.nan
    _replace(igbh / "processed/paper/node_label_2K.npy", labels)
    return open_igbh(igbh)


def test_labels_beyond_the_labelled_papers_are_ignored(padded: IgbhFolder) -> None:
    assert read_labels(padded, 2983).tolist() == [7] * 80 + [-1] * 40
    assert [len(part) for part in label_chunks(padded, 2983)] == [32, 32, 32, 24]
    assert labelled_papers(120, 19) == 100
    assert mlperf_papers(120, 2983) == 90


def test_labels_may_end_with_the_labelled_papers(padded: IgbhFolder, igbh: Path) -> None:
    _replace(igbh / "processed/paper/node_label_2K.npy", np.full(85, 7, np.float32))
    assert read_labels(open_igbh(igbh), 2983).tolist() == [7] * 80 + [-1] * 40
    _replace(igbh / "processed/paper/node_label_2K.npy", np.full(79, 7, np.float32))
    with pytest.raises(DatasetError, match="80 to 120 labels"):
        open_igbh(igbh)


def test_published_counts_of_the_full_set() -> None:
    full = PUBLISHED[IgbhSize.FULL].nodes["paper"]
    assert labelled_papers(full, 2983) == 153_383_374
    assert mlperf_papers(full, 2983) == 157_675_969
    assert labelled_papers(full, 19) == mlperf_papers(full, 19) == 227_130_858
    assert labelled_papers(100_000, 2983) == 100_000
