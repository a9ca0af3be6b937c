"""Labels and splits of other data sets as ours: int16 classes, -1 for none, and lists of labelled nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.graph_source import TaskSource
from gids.graph.splits import Split

logger = logging.getLogger(__name__)

MOST_CLASSES = 2**15

Parts = Callable[[], Iterable[npt.NDArray[Any]]]
Int64Array = npt.NDArray[np.int64]


def class_chunks(where: str, n_nodes: int, parts: Parts) -> Iterator[npt.NDArray[np.int16]]:
    """Labels as int16: NaN and negative numbers mean none.

    Raises
    ------
    DatasetError
        A label is no whole number or too large, or there are not as many as nodes.
    """
    first = 0
    for part in parts():
        values = np.asarray(part)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1 or values.dtype.kind not in "iufb":
            found = f"{values.dtype} of shape {values.shape}"
            raise DatasetError(where, "labels: one whole number a node", found)
        missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
        missing |= values < 0
        known = np.where(missing, 0, values)
        wrong = (known >= MOST_CLASSES) | (known != np.floor(known))
        if wrong.any():
            at = int(np.argmax(wrong))
            expected = f"classes: whole numbers below {MOST_CLASSES}"
            raise DatasetError(where, expected, f"{values[at]} for node {first + at}")
        labels = known.astype(np.int16)
        labels[missing] = -1
        first += len(labels)
        yield labels
    if first != n_nodes:
        raise DatasetError(where, f"{n_nodes} labels, one a node", f"{first}")


def task_of(
    name: str,
    node_type: str,
    n_nodes: int,
    where: str,
    parts: Parts,
    *,
    n_classes: int | None = None,
    split: Split | None = None,
) -> TaskSource:
    """A task; nodes of the split that have no label are left out of it, and that is logged.

    Raises
    ------
    DatasetError
        A split's node has no row, or is in two parts. The labels are checked when they are read.
    """
    kept = None if split is None else _labelled(where, n_nodes, parts, split)

    def chunks() -> Iterator[npt.NDArray[np.int16]]:
        return class_chunks(where, n_nodes, parts)

    return TaskSource(name, node_type, chunks, n_classes, split=kept)


def split_of_masks(where: str, masks: dict[str, npt.NDArray[np.bool_]]) -> Split | None:
    """Split by truth values of each node; None where there are none to train on."""
    if "train" not in masks:
        return None
    parts = []
    for name in ("train", "validation", "test"):
        mask = masks.get(name, np.zeros(0, bool))
        if mask.ndim != 1 or mask.dtype != np.bool_:
            found = f"{mask.dtype} of shape {mask.shape}"
            raise DatasetError(where, f"a {name} mask: a truth value a node", found)
        parts.append(np.flatnonzero(mask))
    return Split(*parts)


def _labelled(where: str, n_nodes: int, parts: Parts, split: Split) -> Split:
    """The split without nodes that have no label, as hidden test sets have."""
    lists = [_ids(where, each, n_nodes) for each in (split.train, split.validation, split.test)]
    ids, counts = np.unique(np.concatenate(lists), return_counts=True)
    if (counts > 1).any():
        raise DatasetError(where, "each node in one part of the split", f"node {ids[counts > 1][0]} twice")
    without: list[Int64Array] = []
    first = 0
    for labels in class_chunks(where, n_nodes, parts):
        inside = ids[np.searchsorted(ids, first) : np.searchsorted(ids, first + len(labels))]
        without.append(inside[labels[inside - first] < 0])
        first += len(labels)
    dropped = np.concatenate(without) if without else np.empty(0, np.int64)
    if len(dropped):
        logger.warning("%s: %d nodes of the split have no label and are left out of it", where, len(dropped))
        lists = [each[~np.isin(each, dropped)] for each in lists]
    return Split(*lists)


def _ids(where: str, given: npt.NDArray[Any], n_nodes: int) -> Int64Array:
    ids = np.asarray(given)
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise DatasetError(where, "a split: whole numbers, ids of nodes", f"{ids.dtype} of shape {ids.shape}")
    wrong = (ids < 0) | (ids >= n_nodes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise DatasetError(where, f"node ids from 0 to {n_nodes - 1}", f"{ids[at]} at position {at}")
    return ids.astype(np.int64)
