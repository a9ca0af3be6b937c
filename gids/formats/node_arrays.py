"""Which arrays of a node type are its features, labels and split, by the names in use with PyG and DGL."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.formats.labels import split_of_masks, task_of
from gids.formats.staging import Staging, require_name
from gids.graph.edge_array import EdgeArray
from gids.graph.graph_source import TaskSource
from gids.graph.schema import EdgeType

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]

FEATURE_NAMES = ("x", "feat", "feature", "features", "node_feat")
LABEL_NAMES = ("y", "label", "labels")
MASK_NAMES = {
    "train": ("train_mask",),
    "validation": ("val_mask", "valid_mask", "validation_mask"),
    "test": ("test_mask",),
}


def features_of(
    where: str, node_type: str, arrays: Mapping[str, Array], staging: Staging
) -> ArrayDescription | None:
    """The first array that is named as features are; None where there is none.

    Raises
    ------
    DatasetError
    """
    name = _named(arrays, FEATURE_NAMES)
    if name is None:
        return None
    rows = arrays[name]
    place = f"{where}: {name} of {node_type}"
    if rows.ndim == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise DatasetError(place, "features of shape (nodes, dim)", f"shape {rows.shape}")
    return staging.features(node_type, place, rows.dtype, rows.shape[1], lambda: pieces(rows, staging))


def tasks_of(
    where: str, counts: Mapping[str, int], arrays: Mapping[str, Mapping[str, Array]], staging: Staging
) -> tuple[TaskSource, ...]:
    """A task for each node type with labels, split by its masks if it has some."""
    labelled = {name: found for name in counts if (found := _named(arrays.get(name, {}), LABEL_NAMES))}
    tasks = []
    for node_type, name in labelled.items():
        of_type = arrays[node_type]
        masks = {
            part: of_type[found] for part, names in MASK_NAMES.items() if (found := _named(of_type, names))
        }
        for part, mask in masks.items():
            if mask.shape != (counts[node_type],):
                found_shape = f"shape {mask.shape}"
                expected = f"a truth value for each of {counts[node_type]} nodes"
                raise DatasetError(f"{where}: {part} mask of {node_type}", expected, found_shape)
        place = f"{where}: {name} of {node_type}"
        split = split_of_masks(place, {part: mask.astype(bool) for part, mask in masks.items()})
        task = name if len(labelled) == 1 else f"{node_type}_{name}"
        labels = of_type[name]

        def parts(labels: Array = labels) -> Iterator[Array]:
            return pieces(labels, staging)

        tasks.append(task_of(task, node_type, counts[node_type], place, parts, split=split))
    return tuple(tasks)


def edges_from(edge_type: EdgeType, src: Array, dst: Array, where: str, staging: Staging) -> EdgeArray:
    """Edges that two arrays hold.

    Raises
    ------
    DatasetError
    """
    for name in edge_type:
        require_name(f"{where}: edges {edge_type}", name)
    if src.shape != dst.shape or src.ndim != 1 or src.dtype.kind not in "iu" or dst.dtype.kind not in "iu":
        found = f"{src.dtype} of shape {src.shape} and {dst.dtype} of shape {dst.shape}"
        raise DatasetError(f"{where}: edges {edge_type}", "two lists of whole numbers of one length", found)
    step = staging.chunk_rows(16)

    def chunks() -> Iterator[npt.NDArray[np.int64]]:
        for first in range(0, len(src), step):
            part = slice(first, first + step)
            yield np.stack([src[part].astype(np.int64), dst[part].astype(np.int64)], axis=1)

    return staging.edges(edge_type, chunks)


def pieces(array: Array, staging: Staging) -> Iterator[Array]:
    """Rows of an array in memory, or mapped, a few at a time."""
    step = staging.chunk_rows(array[:1].nbytes)
    for first in range(0, len(array), step):
        yield array[first : first + step]


def tell_left_out(where: str, node_type: str, names: list[str]) -> None:
    """Log which arrays of a node type a store has no place for."""
    known = {*FEATURE_NAMES, *LABEL_NAMES, *(each for names in MASK_NAMES.values() for each in names)}
    left_out = [name for name in names if name not in known]
    if left_out:
        logger.warning("%s: %s of %s are left out", where, ", ".join(map(repr, left_out)), node_type)


def _named(arrays: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in arrays), None)
