"""OGB's node property data sets as text: CSV files, compressed by gzip. See :mod:`gids.formats.ogb`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.formats.format import SourceGraph
from gids.formats.labels import task_of
from gids.formats.staging import Staging
from gids.formats.text_rows import csv_file, csv_integers, csv_numbers, first_line, first_lines, require_csv
from gids.formats.torch_files import as_array, load_torch
from gids.graph.edge_array import EdgeArray
from gids.graph.graph_source import TaskSource
from gids.graph.igbh import read_rows
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE, EdgeType
from gids.graph.splits import Split

logger = logging.getLogger(__name__)

#: Sets whose files have each edge once and whose reader adds the other direction (OGB's table of data sets).
BOTH_WAYS = ("products", "proteins")
_MOST_RELATIONS = 100_000


def read_text(path: Path, staging: Staging) -> SourceGraph:
    """A set of one node and one edge type."""
    raw, node_type = path / "raw", HOMOGENEOUS_NODE_TYPE
    count = _only(require_csv(raw, "num-node-list"), staging)
    both = path.name.replace("-", "_").removeprefix("ogbn_") in BOTH_WAYS
    edges = _text_edges(raw, HOMOGENEOUS_EDGE_TYPE, both, staging)
    features = _text_features(raw, node_type, staging)
    splits = split(path, "", staging)
    return SourceGraph(
        {node_type: count},
        {HOMOGENEOUS_EDGE_TYPE: edges},
        {} if features is None else {node_type: features},
        tuple(_text_tasks(raw, node_type, count, splits, "label", staging)),
    )


def read_heterogeneous(path: Path, staging: Staging) -> SourceGraph:
    """A heterogeneous set."""
    raw = path / "raw"
    counts = _node_counts(require_csv(raw, "num-node-dict"), staging)
    edges = {}
    for edge_type in _triplets(require_csv(raw, "triplet-type-list")):
        edges[edge_type] = _text_edges(raw / "relations" / "___".join(edge_type), edge_type, False, staging)
    features: dict[str, ArrayDescription] = {}
    tasks: list[TaskSource] = []
    labelled = [name for name in counts if csv_file(raw / "node-label" / name, "node-label") is not None]
    for name, count in counts.items():
        found = _text_features(raw / "node-feat" / name, name, staging)
        if found is not None:
            features[name] = found
        if name in labelled:
            task = "label" if len(labelled) == 1 else f"{name}_label"
            splits = split(path, name, staging)
            tasks += _text_tasks(raw / "node-label" / name, name, count, splits, task, staging)
    return SourceGraph(counts, edges, features, tuple(tasks))


def _text_edges(folder: Path, edge_type: EdgeType, both: bool, staging: Staging) -> EdgeArray:
    path = require_csv(folder, "edge")

    def chunks() -> Iterator[npt.NDArray[np.int64]]:
        for edges in csv_numbers(path, np.int64, 2, staging):
            if not both:
                yield edges
                continue
            doubled = np.empty((2 * len(edges), 2), np.int64)
            doubled[0::2], doubled[1::2] = edges, edges[:, ::-1]
            yield doubled

    edges = staging.edges(edge_type, chunks)
    expected = _only(require_csv(folder, "num-edge-list"), staging)
    if edges.n_edges != expected * (2 if both else 1):
        found = edges.n_edges // (2 if both else 1)
        raise DatasetError(str(path), f"{expected} edges, as num-edge-list says", f"{found}")
    left_out = [each.name for each in sorted(folder.glob("edge*.csv*")) if each != path]
    tell_left_out(folder, [name for name in left_out if not name.startswith("edge.csv")])
    return edges


def _text_features(folder: Path, node_type: str, staging: Staging) -> ArrayDescription | None:
    path = csv_file(folder, "node-feat")
    if path is None:
        return None
    dim = len(first_line(path))

    def chunks() -> Iterator[npt.NDArray[Any]]:
        for rows in csv_numbers(path, np.float64, dim, staging):
            yield rows.astype(np.float32)

    return staging.features(node_type, str(path), np.dtype(np.float32), dim, chunks)


def _text_tasks(
    folder: Path, node_type: str, count: int, split: Split | None, name: str, staging: Staging
) -> Iterator[TaskSource]:
    """A task for each column of labels: several are as many yes-or-no questions, as in ogbn-proteins."""
    path = csv_file(folder, "node-label")
    if path is None:
        return
    columns = len(first_line(path))
    # Each column is gone through by itself, and the text only once.
    staged = staging.array(
        f"labels {node_type}",
        np.float64,
        (columns,),
        lambda: csv_numbers(path, np.float64, columns, staging),
    )
    for column in range(columns):

        def parts(column: int = column) -> Iterator[npt.NDArray[Any]]:
            step = staging.chunk_rows(8 * columns)
            for first in range(0, staged.shape[0], step):
                yield read_rows(staged, first, min(step, staged.shape[0] - first))[:, column]

        task = name if columns == 1 else f"{name}_{column}"
        yield task_of(task, node_type, count, str(path), parts, split=split)


def split(path: Path, node_type: str, staging: Staging) -> Split | None:
    """The split that came with the data; there is one rule a data set."""
    rules = sorted(each for each in (path / "split").glob("*") if each.is_dir())
    if not rules:
        return None
    if len(rules) > 1:
        raise DatasetError(str(path / "split"), "one rule", ", ".join(each.name for each in rules))
    folder = rules[0] / node_type
    if node_type and not folder.is_dir():
        return None
    saved = rules[0] / "split_dict.pt"
    if saved.is_file():
        return _saved_split(saved, node_type)
    return Split(
        *(csv_integers(require_csv(folder, part), 1, staging)[:, 0] for part in ("train", "valid", "test"))
    )


def _saved_split(path: Path, node_type: str) -> Split:
    found = load_torch(path)
    lists = []
    for part in ("train", "valid", "test"):
        value = found.get(part) if isinstance(found, Mapping) else None
        value = value.get(node_type) if node_type and isinstance(value, Mapping) else value
        array = as_array(value)
        if array is None:
            raise DatasetError(str(path), f"{part!r}: a list of node ids", type(value).__name__)
        lists.append(array)
    return Split(*lists)


def _only(path: Path, staging: Staging) -> int:
    """The one number of a file that has a line for each graph."""
    found = csv_integers(path, 1, staging)
    if found.shape != (1, 1) or found[0, 0] < 0:
        raise DatasetError(str(path), "one line, a count: data sets of one graph", f"{len(found)} lines")
    return int(found[0, 0])


def _node_counts(path: Path, staging: Staging) -> dict[str, int]:
    names = first_line(path)
    rows = list(csv_numbers(path, np.int64, max(1, len(names)), staging, header=True))
    counts = np.concatenate(rows) if rows else np.empty((0, len(names)), np.int64)
    if len(counts) != 1 or (counts < 0).any() or len(set(names)) != len(names):
        raise DatasetError(str(path), "names of node types and one line of counts", f"{len(counts)} lines")
    return {name: int(count) for name, count in zip(names, counts[0], strict=True)}


def _triplets(path: Path) -> list[EdgeType]:
    lines = first_lines(path, _MOST_RELATIONS)
    wrong = [line for line in lines if len(line) != 3]
    if wrong or not lines:
        raise DatasetError(str(path), "source, relation, destination a line", repr(wrong[:1] or "nothing"))
    return [EdgeType(*line) for line in lines]


def tell_left_out(where: Path, names: list[str]) -> None:
    """Log what a store has no place for."""
    left_out = [name for name in names if name not in ("node_feat", "edge_index")]
    if left_out:
        logger.warning("%s: left out, since a store has no place for it: %s", where, ", ".join(left_out))
