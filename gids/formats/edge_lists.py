"""Graphs as tables: CSV, Parquet or Arrow files of nodes and edges, with ids of any kind.

A folder has a ``graph.toml`` (:mod:`gids.formats.graph_description`); a single file is the edges of a graph
of one node type, in its columns ``src`` and ``dst``. The graph is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError, TableError
from gids.formats.column_files import SUFFIXES, ColumnFiles
from gids.formats.format import Format, SourceGraph, check_graph
from gids.formats.graph_description import (
    DESCRIPTION,
    EdgeTable,
    GraphDescription,
    NodeTable,
    one_table,
    read_description,
)
from gids.formats.labels import MOST_CLASSES, task_of
from gids.formats.staging import Staging
from gids.formats.string_ids import StringIds
from gids.graph.edge_array import EdgeArray
from gids.graph.graph_source import TaskSource
from gids.graph.splits import Split

_PARTS = {"train": 0, "valid": 1, "val": 1, "validation": 1, "test": 2}


class EdgeListFormat(Format):
    """See the module.

    Parameters
    ----------
    src, dst : str
        Columns of a single file.
    """

    name = "edges"
    layout = f"{DESCRIPTION}, or one file of edges: {', '.join(SUFFIXES)}"

    def __init__(self, src: str = "src", dst: str = "dst") -> None:
        self._src, self._dst = src, dst

    def recognises(self, path: Path) -> bool:
        return (path / DESCRIPTION).is_file() or (path.is_file() and path.suffix.lower() in SUFFIXES)

    def files(self, path: Path) -> list[Path]:
        described = self._describe(path)
        return [*described.files, *([path / DESCRIPTION] if path.is_dir() else [])]

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        return _Tables(self._describe(path), staging).read()

    def _describe(self, path: Path) -> GraphDescription:
        return read_description(path) if path.is_dir() else one_table(path, self._src, self._dst)


class _Tables:
    """The tables of one description on their way into a graph."""

    def __init__(self, described: GraphDescription, staging: Staging) -> None:
        self._described, self._staging = described, staging
        self._ids: StringIds | None = None

    def read(self) -> SourceGraph:
        nodes = self._described.nodes
        try:
            counts = {name: self._count(name, table) for name, table in nodes.items()}
            edges = {each.edge_type: self._edges(each) for each in self._described.edges}
            for name, table in nodes.items():
                if not table.is_numbered:
                    self._keep_ids(name)
        finally:
            if self._ids is not None:
                self._ids.close()
        features = {name: self._features(name, table) for name, table in nodes.items() if table.features}
        labelled = [name for name, table in nodes.items() if table.label]
        tasks = tuple(self._task(name, nodes[name], counts[name], len(labelled) == 1) for name in labelled)
        return check_graph(self._described.where, SourceGraph(counts, edges, features, tasks))

    def _keep_ids(self, name: str) -> None:
        assert self._ids is not None
        ids = self._ids
        self._staging.keep(f"ids/{name}.arrow", lambda path: ids.write(name, path))

    def _count(self, name: str, table: NodeTable) -> int:
        if table.is_numbered:
            return table.count if table.count >= 0 else ColumnFiles(table.files).count()
        if self._ids is None:
            self._ids = StringIds(self._staging.folder, self._staging.memory_bytes)
        if table.files:
            files = ColumnFiles(table.files, [table.id])
            ids = (batch.column(0) for batch in files.batches([table.id]))
            return self._ids.add_nodes(name, f"{files.where}: column {table.id!r}", ids)
        return self._ids.add_seen(name, self._described.where, self._seen(name))

    def _seen(self, name: str) -> Iterator[Any]:
        """Ids of a type in every table of edges."""
        for edges in self._described.edges:
            for end, column in ((edges.edge_type.src, edges.src), (edges.edge_type.dst, edges.dst)):
                if end == name:
                    for batch in ColumnFiles(edges.files, [edges.src, edges.dst]).batches([column]):
                        yield batch.column(0)

    def _edges(self, table: EdgeTable) -> EdgeArray:
        src, dst = table.edge_type.src, table.edge_type.dst
        mapped = [not self._described.nodes[end].is_numbered for end in (src, dst)]
        names = [name for name, is_mapped in zip((table.src, table.dst), mapped, strict=True) if is_mapped]
        files = ColumnFiles(table.files, names)
        if not any(mapped):
            return self._staging.edges(table.edge_type, lambda: self._numbers(files, table))
        if not all(mapped):
            # One end needs numbering, so the other goes through it too: its ids are its numbers.
            for end, is_mapped in zip((src, dst), mapped, strict=True):
                if not is_mapped:
                    self._number_rows(end)
        assert self._ids is not None
        ids = self._ids
        pairs = ((batch.column(0), batch.column(1)) for batch in files.batches([table.src, table.dst]))
        return self._staging.edges(table.edge_type, lambda: ids.edges(files.where, src, dst, pairs))

    def _number_rows(self, name: str) -> None:
        assert self._ids is not None
        if not self._ids.has(name):
            table, pa = self._described.nodes[name], self._ids.pa
            count = table.count if table.count >= 0 else ColumnFiles(table.files).count()
            step = 2**16
            parts = (pa.array(np.arange(at, min(at + step, count))) for at in range(0, count, step))
            self._ids.add_nodes(name, self._described.where, parts)

    def _numbers(self, files: ColumnFiles, table: EdgeTable) -> Iterator[npt.NDArray[np.int64]]:
        for name in (table.src, table.dst):
            kind = files.kind(name)
            if not str(kind).startswith(("int", "uint")):
                expected = "whole numbers, since the nodes have no column of ids"
                raise TableError(files.where, expected, f"type {kind}", name)
        yield from files.rows([table.src, table.dst], np.int64)

    def _features(self, name: str, table: NodeTable) -> ArrayDescription:
        files = ColumnFiles(table.files, [table.id] if table.id else [])
        dim = sum(files.width(column) for column in table.features)
        # Of a list what its items are.
        kinds = {str(getattr(kind, "value_type", kind)) for kind in map(files.kind, table.features)}
        by_kind = {"halffloat": np.float16, "float": np.float32}
        dtype: np.dtype[Any] = np.dtype(np.float64)
        if len(kinds) == 1 and kinds <= by_kind.keys():
            dtype = np.dtype(by_kind[kinds.pop()])
        elif not kinds & {"halffloat", "float", "double"}:
            dtype = np.dtype(np.int64)
        return self._staging.features(
            name, files.where, dtype, dim, lambda: files.rows(table.features, dtype)
        )

    def _task(self, name: str, table: NodeTable, count: int, alone: bool) -> TaskSource:
        text = [each for each in (table.id, table.split) if each]
        files = ColumnFiles(table.files, text)
        where = f"{files.where}: column {table.label!r}"
        kind = str(files.kind(table.label))
        is_text = "string" in kind
        if not is_text and files.width(table.label) != 1:
            raise TableError(files.where, "one number or text a row", f"type {kind}", table.label)
        classes = self._classes(name, table, files) if is_text else {}

        def parts() -> Iterator[npt.NDArray[Any]]:
            for batch in files.batches([table.label]):
                values = batch.column(0)
                if is_text:
                    yield np.array([classes.get(each, -1) for each in values.to_pylist()], np.int64)
                else:
                    yield values.cast("float64").fill_null(float("nan")).to_numpy(zero_copy_only=False)

        split = self._split(files, table.split) if table.split else None
        task = table.label if alone else f"{name}_{table.label}"
        return task_of(task, name, count, where, parts, n_classes=len(classes) or None, split=split)

    def _classes(self, name: str, table: NodeTable, files: ColumnFiles) -> dict[str, int]:
        """Names of classes in order; kept beside the labels."""
        found: set[str] = set()
        for batch in files.batches([table.label]):
            found.update(each for each in batch.column(0).unique().to_pylist() if each)
            if len(found) > MOST_CLASSES:
                expected = f"at most {MOST_CLASSES} classes"
                raise TableError(files.where, expected, "more different texts", table.label)
        names = sorted(found)
        if any("\n" in each for each in names):
            raise TableError(files.where, "names of classes without line ends", "one with some", table.label)
        lines = "".join(f"{each}\n" for each in names)
        self._staging.keep(f"labels/{name}.classes.txt", lambda path: _write(path, lines))
        return {each: number for number, each in enumerate(names)}

    def _split(self, files: ColumnFiles, column: str) -> Split:
        lists: list[list[npt.NDArray[np.int64]]] = [[], [], []]
        first = 0
        for batch in files.batches([column]):
            values = batch.column(0)
            if not str(values.type).endswith("string"):
                raise DatasetError(
                    f"{files.where}: column {column!r}", "train, valid or test", f"type {values.type}"
                )
            parts = np.array([_PARTS.get(each or "", -1) for each in values.to_pylist()])
            for number, ids in enumerate(lists):
                ids.append(first + np.flatnonzero(parts == number))
            first += len(parts)
        return Split(*(np.concatenate(ids) if ids else np.empty(0, np.int64) for ids in lists))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
