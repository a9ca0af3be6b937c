"""What the tests of formats share: converting, and comparing a store with arrays read naively."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.formats.convert import convert_dataset
from gids.graph.dataset import Dataset
from gids.graph.open_dataset import open_dataset
from gids.graph.store import verify_store

Array = npt.NDArray[Any]


def converted(src: Path, dst: Path, layout: str | None = None, **settings: Any) -> Dataset:
    """The store of a data set, every checksum verified; nothing temporary is left in it."""
    store = convert_dataset(src, dst, layout, memory_bytes="16MiB", **settings)
    assert verify_store(store) == []
    assert not (store / "staging").exists()
    assert sorted(each.name for each in dst.parent.glob(f"{dst.name}*")) == [dst.name]
    return open_dataset(store)


def assert_edges(dataset: Dataset, expected: Mapping[tuple[str, str, str], Array]) -> None:
    """`expected` are arrays (2, edges); in-edges stand in their order."""
    assert set(dataset.graph.relations) == set(expected)
    for edge_type, edges in expected.items():
        csc = dataset.graph[edge_type]
        order = np.argsort(edges[1], kind="stable")
        np.testing.assert_array_equal(csc.indices, edges[0][order])
        counts = np.bincount(edges[1], minlength=csc.num_dst)
        np.testing.assert_array_equal(csc.indptr, np.concatenate([[0], np.cumsum(counts)]))


def assert_features(dataset: Dataset, expected: Mapping[str, Array]) -> None:
    """Every row of every type that has features."""
    assert set(dataset.features) == set(expected)
    for name, rows in expected.items():
        np.testing.assert_array_equal(
            dataset.features[name].take(np.arange(len(rows))), rows.astype(np.float32)
        )


def assert_split(dataset: Dataset, task: str, *parts: Array) -> None:
    """The split that came with the data."""
    split = dataset.tasks[task].usual_split()
    for found, expected in zip((split.train, split.validation, split.test), parts, strict=True):
        np.testing.assert_array_equal(found, expected)


def write_csv(path: Path, rows: Array, form: str = "%d") -> None:
    """Numbers without a header line; compressed where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = np.asarray(rows).reshape(len(rows), -1)
    text = "".join(",".join(form % each for each in row) + "\n" for row in rows)
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def random_edges(random: np.random.Generator, n_src: int, n_dst: int, count: int) -> Array:
    """int64 of shape (2, count), with duplicates and loops."""
    return np.stack([random.integers(0, n, count) for n in (n_src, n_dst)])
