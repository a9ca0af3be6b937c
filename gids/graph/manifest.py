"""``dataset.toml``, the manifest of a store: what is in the folder and how it is read (docs/store.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.graph.checksums import FileRecord
from gids.graph.feature_types import FeatureDtype
from gids.graph.schema import EdgeType
from gids.graph.toml_text import read_toml, toml_text

MANIFEST_NAME = "dataset.toml"
FORMAT = "gids-store"
VERSION = 1


@dataclass(frozen=True)
class FeatureRecord:
    """Features of one node type.

    Attributes
    ----------
    node_type : str
    dtype : FeatureDtype
    dim : int
    files : tuple of str
        Rows one after the other; each file holds whole rows, with an npy header or without. Relative to the
        store, or absolute for features that stay in the data set they came from.
    file_bytes, modified_ns : tuple of int
        Size of each file; modification time of each of the absolute ones.
    rank : str
        npy file: the row of each node; empty when node v's row is v.
    levels : str
        npy file: falling degrees and how many rows have each; empty when rows are not hot-first.
    scale : str
        npy file: int8 scale of each column; else empty.
    n_non_finite : int
        Elements that are NaN or infinite.
    """

    node_type: str
    dtype: FeatureDtype
    dim: int
    files: tuple[str, ...]
    file_bytes: tuple[int, ...]
    modified_ns: tuple[int, ...] = ()
    rank: str = ""
    levels: str = ""
    scale: str = ""
    n_non_finite: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.dtype.itemsize


@dataclass(frozen=True)
class RelationRecord:
    """CSC arrays of one edge type: two npy files, paths relative to the store."""

    edge_type: EdgeType
    n_edges: int
    indptr: str
    indices: str


@dataclass(frozen=True)
class TaskRecord:
    """Labels of one node type.

    Attributes
    ----------
    name, node_type : str
    n_classes : int
    labels : str
        npy file, int16, shape (nodes,): -1 where there is no label.
    n_labelled : int
        Nodes 0 … n-1 have labels; the 60 / 20 / 20 split is made of them.
    n_permuted : int
        Nodes that MLPerf's split permutes; 0: no such split.
    split_files : tuple of str
        npy files of node ids that train, validate and test; empty: split by rule.
    """

    name: str
    node_type: str
    n_classes: int
    labels: str
    n_labelled: int
    n_permuted: int = 0
    split_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """All that ``dataset.toml`` says.

    Attributes
    ----------
    source : str
        What the store was made from.
    settings : dict
        How: as given to the conversion.
    identity : str
        Digest of the source files' sizes and times and of the settings.
    num_nodes : dict of str to int
    features, relations, tasks, files
        Records; `files` has every file of the store but the manifest.
    """

    source: str
    settings: dict[str, Any]
    identity: str
    num_nodes: dict[str, int]
    features: tuple[FeatureRecord, ...]
    relations: tuple[RelationRecord, ...]
    tasks: tuple[TaskRecord, ...]
    files: tuple[FileRecord, ...]

    def text(self) -> str:
        """As TOML."""
        head = {"format": FORMAT, "version": VERSION, "n_files": len(self.files)}
        head |= {"source": self.source, "identity": self.identity}
        tables = {
            "settings": self.settings,
            "num_nodes": self.num_nodes,
            "features": [_plain(record) for record in self.features],
            "relations": [_plain(record) for record in self.relations],
            "tasks": [_plain(record) for record in self.tasks],
            "files": [_plain(record) for record in self.files],
        }
        return toml_text(head | tables)


def read_manifest(folder: str | os.PathLike[str]) -> Manifest:
    """The manifest of a store.

    Raises
    ------
    DatasetError
        There is none, it is of another format or version, or something in it is missing or wrong.
    """
    path = Path(folder) / MANIFEST_NAME
    if not path.is_file():
        raise DatasetError(str(folder), f"a store, with {MANIFEST_NAME} in it", "none")
    table = read_toml(path)
    if (table.get("format"), table.get("version")) != (FORMAT, VERSION):
        found = f"format {table.get('format')!r}, version {table.get('version')!r}"
        raise DatasetError(str(path), f"format {FORMAT!r}, version {VERSION}", found)
    if len(table.get("files", [])) != table.get("n_files"):
        expected = f"{table.get('n_files')} entries [[files]]"
        raise DatasetError(str(path), expected, f"{len(table.get('files', []))}: the manifest was cut short")
    try:
        return Manifest(
            table["source"],
            table["settings"],
            table["identity"],
            {name: int(count) for name, count in table["num_nodes"].items()},
            tuple(_feature(entry) for entry in table["features"]),
            tuple(_relation(entry) for entry in table["relations"]),
            tuple(TaskRecord(**_tuples(entry)) for entry in table["tasks"]),
            tuple(_file(entry) for entry in table["files"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, (DatasetError, ConfigError)):
            raise
        raise DatasetError(str(path), "a whole manifest", f"{type(error).__name__}: {error}") from error


def _plain(record: FeatureRecord | RelationRecord | TaskRecord | FileRecord) -> dict[str, Any]:
    entry = dict(vars(record))
    if isinstance(record, FeatureRecord):
        entry["dtype"] = record.dtype.value
    if isinstance(record, FileRecord):
        entry["crc32"] = "".join(f"{crc:08x}" for crc in record.crc32)
    return entry


def _feature(entry: Mapping[str, Any]) -> FeatureRecord:
    return FeatureRecord(**_tuples(entry) | {"dtype": FeatureDtype(entry["dtype"])})


def _relation(entry: Mapping[str, Any]) -> RelationRecord:
    return RelationRecord(**dict(entry) | {"edge_type": EdgeType(*entry["edge_type"])})


def _file(entry: Mapping[str, Any]) -> FileRecord:
    digits = entry["crc32"]
    crcs = tuple(int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
    return FileRecord(**dict(entry) | {"crc32": crcs})


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
