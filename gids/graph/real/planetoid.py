"""Planetoid's citation graphs (Yang et al., ICML 2016): `ind.<name>.allx`, `.tx`, labels, neighbours.

Test documents are numbered by `ind.<name>.test.index`; the rows of `tx` come in that order. In some sets
(citeseer) a few numbers between them are missing: those documents have neither features nor labels.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real.in_memory import (
    Int64Array,
    dataset_in_memory,
    read_integers,
    require_ids,
    task_of,
    unit_rows,
)
from gids.graph.real.pickles import load_pickle, sparse_of_pickle
from gids.graph.splits import Split

VALIDATION_NODES = 500
NODE_TYPE = "paper"


def load_planetoid(folder: str | os.PathLike[str], name: str = "cora") -> Dataset:
    """A citation graph with the task ``"topic"`` and its public split (20 a class, 500, 1,000).

    One relation, ``(paper, cites, paper)``, in both directions, each edge once and without loops.
    Rows of features are scaled to length 1.

    Raises
    ------
    DatasetError
        A file is missing or damaged, or the files do not fit together.
    """
    path = Path(folder)

    def file(part: str) -> Path:
        return path / f"ind.{name}.{part}"

    known, test = (sparse_of_pickle(file(part), load_pickle(file(part))).dense() for part in ("allx", "tx"))
    known_labels, test_labels = (_one_hot(file(part)) for part in ("ally", "ty"))
    n_train = len(_one_hot(file("y")))
    order = read_integers(file("test.index"), 1)[:, 0]
    n_nodes = max(int(order.max()) + 1, len(known) + len(test))
    sizes = (len(known_labels), len(test_labels), len(order), known.shape[1])
    if sizes != (len(known), len(test), len(test), test.shape[1]) or n_train > len(known):
        raise DatasetError(str(file("allx")), "as many labels as rows, and one width", f"sizes {sizes}")
    if order.min() < len(known) or len(np.unique(order)) != len(order):
        raise DatasetError(str(file("test.index")), f"distinct numbers from {len(known)} on", "others")
    rows = np.zeros((n_nodes, known.shape[1]), np.float32)
    rows[: len(known)], rows[order] = known, test
    labels = np.full(n_nodes, -1, np.int64)
    labels[: len(known)], labels[order] = known_labels.argmax(1), test_labels.argmax(1)
    src, dst = _edges(file("graph"), n_nodes)
    split = Split(np.arange(n_train), np.arange(n_train, min(n_train + VALIDATION_NODES, len(known))), order)
    return dataset_in_memory(
        path,
        {(NODE_TYPE, "cites", NODE_TYPE): (src, dst)},
        {NODE_TYPE: n_nodes},
        {NODE_TYPE: unit_rows(rows)},
        [task_of("topic", NODE_TYPE, labels, known_labels.shape[1], split)],
    )


def _one_hot(path: Path) -> npt.NDArray[Any]:
    labels = load_pickle(path)
    if not isinstance(labels, np.ndarray) or labels.ndim != 2 or labels.dtype.kind not in "iuf":
        raise DatasetError(str(path), "labels as a matrix of zeros and ones", type(labels).__name__)
    return labels


def _edges(path: Path, n_nodes: int) -> tuple[Int64Array, Int64Array]:
    neighbours = load_pickle(path)
    if not isinstance(neighbours, dict) or not all(isinstance(each, list) for each in neighbours.values()):
        raise DatasetError(str(path), "a dictionary of lists of neighbours", type(neighbours).__name__)
    try:
        src = np.array([node for node, others in neighbours.items() for _ in others], np.int64)
        dst = np.array([other for others in neighbours.values() for other in others], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(str(path), "node numbers", str(error)) from error
    require_ids(path, src, n_nodes)
    require_ids(path, dst, n_nodes)
    return undirected(src, dst, n_nodes)


def undirected(src: Int64Array, dst: Int64Array, n_nodes: int) -> tuple[Int64Array, Int64Array]:
    """Both directions of every edge once, without loops, sorted."""
    codes = np.unique(np.concatenate([src * n_nodes + dst, dst * n_nodes + src]))
    first, second = codes // n_nodes, codes % n_nodes
    return first[first != second], second[first != second]
