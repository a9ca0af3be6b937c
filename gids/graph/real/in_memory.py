"""Data sets whose arrays are in memory, and checks that their readers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.sources import MemorySource
from gids.errors import DatasetError
from gids.graph.dataset import Dataset, Features, Task
from gids.graph.feature_types import FeatureDtype
from gids.graph.graph import Coo, Graph
from gids.graph.relations import REVERSE_PREFIX
from gids.graph.splits import Split

Int64Array = npt.NDArray[np.int64]


def features_in_memory(node_type: str, rows: npt.NDArray[Any]) -> Features:
    """Features that are an array, shape (nodes, dim), read in place."""
    source = MemorySource(rows)
    return Features(node_type, FeatureDtype(str(rows.dtype)), rows.shape[1], source, source.describe())


def with_reverse(edges: Mapping[tuple[str, str, str], Coo]) -> dict[tuple[str, str, str], Coo]:
    """The relations and, for each, `rev_<relation>` with source and destination exchanged."""
    both = dict(edges)
    for (src, rel, dst), (sources, destinations) in edges.items():
        both[dst, REVERSE_PREFIX + rel, src] = destinations, sources
    return both


def dataset_in_memory(
    path: Path,
    edges: Mapping[tuple[str, str, str], Coo],
    num_nodes: Mapping[str, int],
    features: Mapping[str, npt.NDArray[Any]],
    tasks: Iterable[Task],
) -> Dataset:
    """A data set made of arrays.

    Raises
    ------
    GraphError, NodeOutOfRange, UnknownNodeType
        They do not fit together.
    """
    described = {name: features_in_memory(name, rows) for name, rows in features.items()}
    # Readers hand out columns of arrays of pairs, which are strided.
    columns = {
        each: (np.ascontiguousarray(src), np.ascontiguousarray(dst)) for each, (src, dst) in edges.items()
    }
    return Dataset(path, Graph.from_coo(columns, num_nodes), described, {task.name: task for task in tasks})


def task_of(name: str, node_type: str, labels: Int64Array, n_classes: int, split: Split) -> Task:
    """A task with a split of its own; labels below 0 mean none."""
    return Task(
        name, node_type, n_classes, labels.astype(np.int16), int(np.count_nonzero(labels >= 0)), given=split
    )


def unit_rows(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The rows scaled to length 1; rows of zeros stay. Long texts do not shout, and layers start in range."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    return np.asarray(rows / np.where(lengths == 0, 1, lengths))


def stratified_split(
    labels: Int64Array, seed: int, train_share: float = 0.6, validation_share: float = 0.1
) -> Split:
    """Random shares of every class: to train and to validate, the others test. Nodes below 0 are left out.

    Every class has at least one node to train on.
    """
    generator = np.random.default_rng(seed)
    parts: list[list[Int64Array]] = [[], [], []]
    for label in np.unique(labels[labels >= 0]):
        members = generator.permutation(np.flatnonzero(labels == label))
        train = max(1, round(len(members) * train_share))
        validation = round(len(members) * (train_share + validation_share))
        for part, ends in zip(parts, pairwise((0, train, max(train, validation), len(members))), strict=True):
            part.append(members[slice(*ends)])
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def per_class_split(labels: Int64Array, seed: int, train: int, validation: int) -> Split:
    """So many random nodes of every class to train and to validate, the others test."""
    generator = np.random.default_rng(seed)
    parts: list[list[Int64Array]] = [[], [], []]
    for label in np.unique(labels[labels >= 0]):
        members = generator.permutation(np.flatnonzero(labels == label))
        for part, chosen in zip(parts, np.split(members, [train, train + validation]), strict=True):
            part.append(chosen)
    return Split(*(np.sort(np.concatenate(part)) for part in parts))


def read_integers(path: Path, columns: int) -> Int64Array:
    """Whole numbers of a text file, `columns` a line, between white space; int64, shape (lines, columns).

    Raises
    ------
    DatasetError
    """
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(str(path), "a text file of numbers", str(error)) from error
    lines = [line.split() for line in text.splitlines() if line.strip()]
    try:
        numbers = np.array([[int(word) for word in line] for line in lines], np.int64)
    except (ValueError, OverflowError) as error:
        raise DatasetError(str(path), f"{columns} whole numbers a line", str(error)) from error
    if numbers.size == 0:
        raise DatasetError(str(path), f"{columns} whole numbers a line", "no lines")
    if numbers.shape[1] != columns:
        raise DatasetError(str(path), f"{columns} whole numbers a line", f"{numbers.shape[1]}")
    return numbers


def require_ids(path: Path, ids: npt.NDArray[Any], n: int) -> Int64Array:
    """`ids` as int64, if they are whole numbers of one dimension in ``[0, n)``.

    Raises
    ------
    DatasetError
    """
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuf" or len(ids) == 0:
        raise DatasetError(str(path), "a list of whole numbers", f"{getattr(ids, 'dtype', type(ids))}")
    wrong = ~((ids >= 0) & (ids < n)) | (ids != np.floor(ids))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DatasetError(str(path), f"whole numbers from 0 to {n - 1}", f"{ids[at]} at position {at}")
    return ids.astype(np.int64)


def require_disjoint(path: Path, split: Split) -> Split:
    """The split, if no id is in it twice.

    Raises
    ------
    DatasetError
    """
    ids, counts = np.unique(np.concatenate([split.train, split.validation, split.test]), return_counts=True)
    if (counts > 1).any():
        raise DatasetError(
            str(path), "each node in one part of the split", f"node {ids[counts > 1][0]} twice"
        )
    return split
