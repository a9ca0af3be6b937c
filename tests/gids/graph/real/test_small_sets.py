"""ACM, Cora, Amazon Photo, UMLS, parts of ogbn-arxiv and the Reddit trace: counts, and what damage does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gids.errors import DatasetError, GidsError
from gids.graph.dataset import Dataset
from gids.graph.real import (
    load_acm,
    load_amazon_photo,
    load_arxiv_parts,
    load_planetoid,
    load_reddit_trace,
    load_umls,
)

FOLDERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "heco-acm": (load_acm, "heco-acm"),
    "planetoid-cora": (load_planetoid, "planetoid-cora"),
    "amazon-photo": (load_amazon_photo, "graphdata-amazon-photo"),
    "umls": (load_umls, "kg-umls"),
    "arxiv": (load_arxiv_parts, "ogb-layout/ogbn_arxiv"),
    "reddit": (load_reddit_trace, "trace-reddit-quiver"),
}


def edge_counts(dataset: Dataset) -> dict[str, int]:
    return {str(edge_type): csc.num_edges for edge_type, csc in dataset.graph.relations.items()}


def test_acm(shared_data: Path) -> None:
    dataset = load_acm(shared_data / "heco-acm")
    assert dataset.graph.schema.num_nodes == {"author": 7167, "paper": 4019, "subject": 60}
    assert edge_counts(dataset) == {
        "author__rev_written_by__paper": 13407,
        "paper__about__subject": 4019,
        "paper__written_by__author": 13407,
        "subject__rev_about__paper": 4019,
    }
    assert {name: rows.dim for name, rows in dataset.features.items()} == {
        "author": 1902,
        "paper": 1902,
        "subject": 60,
    }
    for per_class in (20, 40, 60):
        task = dataset.tasks[str(per_class)]
        split = task.split("files")
        assert np.bincount(task.labels[split.train]).tolist() == [per_class] * 3
        assert (len(split.validation), len(split.test)) == (1000, 1000)
    lengths = np.linalg.norm(dataset.features["paper"].take(np.arange(4019)), axis=1)
    assert np.allclose(lengths[lengths > 0], 1, atol=1e-5)


def test_acm_edges_are_those_of_the_neighbour_lists(shared_data: Path) -> None:
    """`nei_s.npy` says the same as `ps.txt`: the subject of each paper."""
    dataset = load_acm(shared_data / "heco-acm")
    subjects = np.load(shared_data / "heco-acm" / "nei_s.npy")[:, 0]
    csc = dataset.graph["subject", "rev_about", "paper"]
    assert np.array_equal(csc.indices, subjects)


def test_cora(shared_data: Path) -> None:
    dataset = load_planetoid(shared_data / "planetoid-cora")
    task = dataset.tasks["topic"]
    split = task.split("files")
    assert dataset.graph.schema.num_nodes == {"paper": 2708}
    assert edge_counts(dataset) == {"paper__cites__paper": 10556}
    assert dataset.features["paper"].dim == 1433
    assert task.n_classes == 7
    assert np.bincount(task.labels[split.train]).tolist() == [20] * 7
    assert (len(split.validation), len(split.test)) == (500, 1000)
    assert (split.test.min(), split.test.max()) == (1708, 2707)


def test_amazon_photo(shared_data: Path) -> None:
    dataset = load_amazon_photo(shared_data / "graphdata-amazon-photo", split_seed=3)
    task = dataset.tasks["category"]
    assert dataset.graph.schema.num_nodes == {"product": 7650}
    assert edge_counts(dataset) == {"product__bought_with__product": 238162}
    assert (dataset.features["product"].dim, task.n_classes) == (745, 8)
    split = task.split("files")
    assert np.bincount(task.labels[split.train]).tolist() == [20] * 8
    assert np.bincount(task.labels[split.validation]).tolist() == [30] * 8
    assert len(split.test) == 7650 - 50 * 8


def test_umls(shared_data: Path) -> None:
    dataset = load_umls(shared_data / "kg-umls")
    names = {edge_type.rel for edge_type in dataset.graph.schema.edge_types}
    assert dataset.graph.schema.num_nodes == {"concept": 135}
    assert len(names) == 2 * 45
    assert "isa" not in names
    # 6,529 triples, 500 of them say `isa`.
    assert dataset.graph.num_edges == 2 * (6529 - 500)
    assert np.bincount(dataset.tasks["kind"].labels + 1).tolist() == [2, 62, 37, 15, 19]


def test_arxiv_parts(shared_data: Path) -> None:
    parts = load_arxiv_parts(shared_data / "ogb-layout" / "ogbn_arxiv")
    assert (parts.n_nodes, parts.n_edges, len(parts.categories)) == (169_343, 1_166_243, 40)
    split = parts.split()
    # The sizes OGB publishes.
    assert [len(part) for part in (split.train, split.validation, split.test)] == [90_941, 29_799, 48_603]


def test_reddit_trace(shared_data: Path) -> None:
    ids = load_reddit_trace(shared_data / "trace-reddit-quiver")
    assert ids.shape == (1000, 48)
    assert ids.dtype == np.int64


@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_missing_truncated_or_replaced(shared_data: Path, tmp_path: Path, name: str) -> None:
    """A typed error that names a file of the folder, whatever happens to whichever file is read."""
    load, folder = FOLDERS[name]
    copy = tmp_path / "copy"
    shutil.copytree(shared_data / folder, copy)
    errors = 0
    for path in sorted(each for each in copy.rglob("*") if each.is_file()):
        content = path.read_bytes()
        for damage in (None, b"", content[: len(content) // 2], b"\x80\x02cos\nsystem\n(S'false'\ntR."):
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            error = _error_of(load, copy)
            errors += 1 if error else 0
            assert error is None or str(copy) in str(error)
            if damage is None:
                path.touch()
        path.write_bytes(content)
    load(copy)
    assert errors > 0


def _error_of(load: Callable[[Any], Any], folder: Path) -> GidsError | None:
    """What loading raises; damage to a file that is not needed raises nothing."""
    try:
        load(folder)
    except GidsError as error:
        return error
    return None


def test_acm_files_that_do_not_fit_together(shared_data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(shared_data / "heco-acm", copy)
    np.save(copy / "labels.npy", np.zeros(4020))
    with pytest.raises(DatasetError, match="4020 rows"):
        load_acm(copy)
    shutil.copy(shared_data / "heco-acm" / "labels.npy", copy)
    with (copy / "pa.txt").open("a") as stream:
        stream.write("0\t7167\n")
    with pytest.raises(DatasetError, match=r"pa\.txt.*7166"):
        load_acm(copy)
    shutil.copy(shared_data / "heco-acm" / "pa.txt", copy)
    shutil.copy(copy / "train_60.npy", copy / "val_60.npy")
    with pytest.raises(DatasetError, match="one part of the split"):
        load_acm(copy)
