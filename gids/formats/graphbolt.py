"""GraphBolt's data sets on disk: a folder with ``metadata.yaml``, as it is before GraphBolt prepares it.

    graph: nodes: [{type, num}], edges: [{type: "src:rel:dst", format: csv | numpy, path}]
    feature_data: [{domain: node, type, name, format: numpy | torch, path}]
    tasks: [{name, num_classes, train_set | validation_set | test_set:
             [{type, data: [{name, format, path}]}]}]

A ``preprocessed`` folder beside it holds the same graph in a class of GraphBolt's own and is not looked at.
The graph is taken as it is. Features are those named ``feat`` (or the like), labels the ``labels`` of a
task's sets.

Source: DGL's documentation, "Prepare Dataset" in the GraphBolt chapter of the user guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.formats.array_files import open_npy
from gids.formats.format import Format, SourceGraph
from gids.formats.labels import task_of
from gids.formats.node_arrays import FEATURE_NAMES, features_of, tell_left_out
from gids.formats.staging import Staging
from gids.formats.stored_edges import edges_of
from gids.formats.text_rows import csv_numbers
from gids.formats.torch_files import as_array, load_torch
from gids.formats.yaml_import import read_yaml
from gids.graph.edge_array import EdgeArray
from gids.graph.graph_source import TaskSource
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE, EdgeType
from gids.graph.splits import Split

METADATA = "metadata.yaml"
_SEEDS, _LABELS = ("seeds", "seed_nodes"), ("labels",)
_SETS = ("train_set", "validation_set", "test_set")

Entry = Mapping[str, Any]


class GraphBoltFormat(Format):
    """See the module."""

    name = "graphbolt"
    layout = f"{METADATA} with 'graph' in it"

    def recognises(self, path: Path) -> bool:
        return (path / METADATA).is_file()

    def files(self, path: Path) -> list[Path]:
        metadata = _Metadata(path)
        return [path / METADATA, *sorted(set(metadata.paths()))]

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        return _Metadata(path).read(staging)


class _Metadata:
    """What ``metadata.yaml`` says, each field checked as it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / METADATA
        content = read_yaml(self._file)
        self._content: Entry = content if isinstance(content, Mapping) else {}
        graph = self._content.get("graph")
        if not isinstance(graph, Mapping):
            found = "no such field; a prepared data set has it in the folder above"
            raise DatasetError(str(self._file), "graph: nodes and edges", found)
        self._nodes, self._edges = (self._entries(graph, key, "graph.") for key in ("nodes", "edges"))

    def paths(self) -> Iterator[Path]:
        """Files that it names."""
        entries = [*self._edges, *self._features()]
        for task in self._entries(self._content, "tasks"):
            for part in _SETS:
                for each in self._entries(task, part, "tasks."):
                    entries += self._entries(each, "data", f"tasks.{part}.")
        for entry in entries:
            yield self._path(entry)

    def read(self, staging: Staging) -> SourceGraph:
        counts = {self._node_type(each): self._count(each) for each in self._nodes}
        edges = {self._edge_type(each): self._read_edges(each, staging) for each in self._edges}
        features = self._read_features(counts, staging)
        tasks = [
            task
            for number, each in enumerate(self._entries(self._content, "tasks"))
            for task in self._read_task(number, each, counts)
        ]
        return SourceGraph(counts, edges, features, tuple(tasks))

    def _read_edges(self, entry: Entry, staging: Staging) -> EdgeArray:
        path, kind = self._path(entry), entry.get("format")
        edge_type = self._edge_type(entry)
        if kind == "numpy":
            return edges_of(open_npy(path), staging, f"edges {edge_type}")
        if kind == "csv":
            return staging.edges(edge_type, lambda: csv_numbers(path, np.int64, 2, staging))
        raise self._error("graph.edges.format", "csv or numpy", kind)

    def _features(self) -> list[Entry]:
        entries = self._entries(self._content, "feature_data")
        return [each for each in entries if each.get("domain") == "node"]

    def _read_features(self, counts: Mapping[str, int], staging: Staging) -> dict[str, ArrayDescription]:
        found: dict[str, ArrayDescription] = {}
        for node_type in counts:
            entries = {
                str(each.get("name")): each for each in self._features() if self._node_type(each) == node_type
            }
            name = next((name for name in FEATURE_NAMES if name in entries), None)
            tell_left_out(str(self._file), node_type, list(entries))
            if name is None:
                continue
            path, kind = self._path(entries[name]), entries[name].get("format")
            if kind == "numpy":
                stored = open_npy(path)
                if stored.dtype.kind == "f" and not stored.fortran and len(stored.shape) == 2:
                    found[node_type] = stored.describe(staging, node_type)
                    continue
            array = self._array(entries[name])
            described = features_of(str(path), node_type, {name: array}, staging)
            if described is not None:
                found[node_type] = described
        return found

    def _read_task(self, number: int, task: Entry, counts: Mapping[str, int]) -> Iterator[TaskSource]:
        name = str(task.get("name", f"task_{number}"))
        n_classes = task.get("num_classes")
        if n_classes is not None and (type(n_classes) is not int or n_classes < 1):
            raise self._error("tasks.num_classes", "a count", n_classes)
        types = {
            self._node_type(each) for part in _SETS for each in self._entries(task, part, f"tasks.{name}.")
        }
        for node_type in sorted(types):
            if node_type not in counts:
                raise self._error(f"tasks.{name}.type", f"one of {', '.join(counts)}", node_type)
            labels = np.full(counts[node_type], -1, np.int64)
            parts = [self._read_set(task, part, node_type, labels) for part in _SETS]
            where = f"{self._file}: task {name}"

            def chunks(labels: npt.NDArray[np.int64] = labels) -> Iterator[npt.NDArray[Any]]:
                yield labels

            yield task_of(
                name if len(types) == 1 else f"{node_type}_{name}",
                node_type,
                counts[node_type],
                where,
                chunks,
                n_classes=n_classes,
                split=Split(*parts),
            )

    def _read_set(
        self, task: Entry, part: str, node_type: str, labels: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Seeds of one set; their labels are put in their places."""
        ids = [np.empty(0, np.int64)]
        for entry in self._entries(task, part, "tasks."):
            if self._node_type(entry) != node_type:
                continue
            data = {str(each.get("name")): each for each in self._entries(entry, "data", f"tasks.{part}.")}
            seeds, classes = (self._numbers(data, names, f"tasks.{part}.data") for names in (_SEEDS, _LABELS))
            if len(seeds) != len(classes):
                raise self._error(f"tasks.{part}.data", f"{len(seeds)} labels, one a seed", len(classes))
            if len(seeds) and not 0 <= int(seeds.min()) <= int(seeds.max()) < len(labels):
                found = f"{seeds.min()} to {seeds.max()}"
                raise self._error(f"tasks.{part}.data", f"{node_type} ids from 0 to {len(labels) - 1}", found)
            labels[seeds] = classes
            ids.append(seeds)
        return np.concatenate(ids)

    def _numbers(self, data: Mapping[str, Entry], names: tuple[str, ...], key: str) -> npt.NDArray[np.int64]:
        name = next((name for name in names if name in data), None)
        if name is None:
            raise self._error(key, f"an entry of name {' or '.join(names)}", ", ".join(data) or None)
        array = self._array(data[name]).reshape(-1)
        if array.dtype.kind == "f" and np.array_equal(array, np.floor(array)):
            array = array.astype(np.int64)
        if array.dtype.kind not in "iu":
            raise self._error(f"{key}.{name}", "whole numbers", array.dtype)
        return array.astype(np.int64)

    def _array(self, entry: Entry) -> npt.NDArray[Any]:
        path, kind = self._path(entry), entry.get("format")
        if kind == "numpy":
            stored = open_npy(path)
            if stored.fortran or not stored.size:
                return stored.whole()
            return np.memmap(path, stored.dtype, "r", stored.offset, stored.shape)
        if kind == "torch":
            found = as_array(load_torch(path))
            if found is not None:
                return found
            raise DatasetError(str(path), "a tensor", "something else")
        raise self._error("format", "numpy or torch", kind)

    def _entries(self, table: Entry, key: str, above: str = "") -> list[Entry]:
        found = table.get(key) or []
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            raise self._error(above + key, "a list of entries", found)
        return found

    def _node_type(self, entry: Entry) -> str:
        return str(entry.get("type") or HOMOGENEOUS_NODE_TYPE)

    def _edge_type(self, entry: Entry) -> EdgeType:
        name = entry.get("type")
        if name is None:
            return HOMOGENEOUS_EDGE_TYPE
        parts = str(name).split(":")
        if len(parts) != 3:
            raise self._error("graph.edges.type", "source:relation:destination", name)
        return EdgeType(*parts)

    def _count(self, entry: Entry) -> int:
        count = entry.get("num")
        if type(count) is not int or count < 0:
            raise self._error("graph.nodes.num", "a count", count)
        return int(count)

    def _path(self, entry: Entry) -> Path:
        name = entry.get("path")
        if not isinstance(name, str) or not name:
            raise self._error("path", "a file", name)
        path = self._folder / name
        if not path.is_file():
            raise DatasetError(str(path), f"a file, as {METADATA} says", "none")
        return path

    def _error(self, key: str, expected: str, found: object) -> DatasetError:
        return DatasetError(
            f"{self._file}: {key}", expected, "nothing" if found is None else repr(found)[:80]
        )
