"""``graph.toml``: which tables hold the nodes and edges of a graph, and which columns mean what.

[nodes.paper]
file = "papers.parquet"        # CSV, Parquet or Arrow; a list of files is one table
id = "doi"                     # text or whole numbers; left out: the number of the row
features = ["embedding"]       # fixed-size lists and numbers, side by side
label = "topic"                # whole numbers, or text, whose classes are numbered in order
split = "part"                 # train, valid (or validation) and test; anything else: in no part

[nodes.author]                 # no file: the ids its edges have; with `count` the numbers below it

[[edges]]
type = ["author", "writes", "paper"]
file = "writes.csv"
src = "author"
dst = "doi"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gids.errors import DatasetError, did_you_mean
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE, EdgeType
from gids.graph.toml_text import read_toml

DESCRIPTION = "graph.toml"
_NODE_KEYS = ("file", "id", "features", "label", "split", "count")
_EDGE_KEYS = ("type", "file", "src", "dst")


@dataclass(frozen=True)
class NodeTable:
    """Nodes of one type.

    Attributes
    ----------
    files : tuple of Path
        One table; empty: none.
    id, label, split : str
        Columns; empty: none.
    features : tuple of str
        Columns.
    count : int
        Of nodes without a table whose ids are the numbers below it; -1: not given.
    """

    files: tuple[Path, ...] = ()
    id: str = ""
    features: tuple[str, ...] = ()
    label: str = ""
    split: str = ""
    count: int = -1

    @property
    def is_numbered(self) -> bool:
        """Whether ids are row numbers already."""
        return not self.id and (bool(self.files) or self.count >= 0)


@dataclass(frozen=True)
class EdgeTable:
    """Edges of one type: a table, and its columns with source and destination ids."""

    edge_type: EdgeType
    files: tuple[Path, ...]
    src: str
    dst: str


@dataclass(frozen=True)
class GraphDescription:
    """All tables of a graph.

    Attributes
    ----------
    where : str
        For messages.
    nodes : dict of str to NodeTable
    edges : tuple of EdgeTable
    """

    where: str
    nodes: dict[str, NodeTable]
    edges: tuple[EdgeTable, ...]

    @property
    def files(self) -> list[Path]:
        """Every file that is read."""
        found = [file for table in self.nodes.values() for file in table.files]
        return sorted({*found, *(file for table in self.edges for file in table.files)})


def one_table(path: Path, src: str, dst: str) -> GraphDescription:
    """A graph of one node and one edge type, whose edges are all there is."""
    edges = EdgeTable(HOMOGENEOUS_EDGE_TYPE, (path,), src, dst)
    return GraphDescription(str(path), {HOMOGENEOUS_NODE_TYPE: NodeTable()}, (edges,))


def read_description(folder: Path) -> GraphDescription:
    """What ``graph.toml`` says; files are relative to its folder.

    Raises
    ------
    DatasetError
        Naming the field.
    """
    path = folder / DESCRIPTION
    table = read_toml(path)
    _require_keys(path, "", table, ("nodes", "edges"))
    nodes, edges = table.get("nodes", {}), table.get("edges", [])
    if not isinstance(nodes, Mapping) or not all(isinstance(each, Mapping) for each in nodes.values()):
        raise DatasetError(f"{path}: nodes", "tables [nodes.<type>]", repr(nodes)[:80])
    if not isinstance(edges, list) or not edges or not all(isinstance(each, Mapping) for each in edges):
        raise DatasetError(f"{path}: edges", "at least one table [[edges]]", repr(edges)[:80])
    found = {name: _nodes(path, f"nodes.{name}", entry) for name, entry in nodes.items()}
    return GraphDescription(
        str(path), found, tuple(_edges(path, number, each, found) for number, each in enumerate(edges))
    )


def _nodes(path: Path, key: str, entry: Mapping[str, Any]) -> NodeTable:
    _require_keys(path, key, entry, _NODE_KEYS)
    files = _files(path, key, entry) if "file" in entry else ()
    texts = {name: _text(path, f"{key}.{name}", entry.get(name, "")) for name in ("id", "label", "split")}
    features = entry.get("features", [])
    features = [features] if isinstance(features, str) else features
    if not isinstance(features, list):
        raise DatasetError(f"{path}: {key}.features", "a list of columns", repr(features)[:80])
    count = entry.get("count", -1)
    if type(count) is not int or count < -1 or (files and count >= 0):
        raise DatasetError(f"{path}: {key}.count", "a count, of nodes without a file", repr(count)[:80])
    if not files and (features or any(texts.values())):
        raise DatasetError(f"{path}: {key}.file", "the file that the columns are in", "nothing")
    names = tuple(_text(path, f"{key}.features", each) for each in features)
    return NodeTable(files, texts["id"], names, texts["label"], texts["split"], count)


def _edges(path: Path, number: int, entry: Mapping[str, Any], nodes: Mapping[str, NodeTable]) -> EdgeTable:
    key = f"edges[{number}]"
    _require_keys(path, key, entry, _EDGE_KEYS)
    names = entry.get("type")
    if not isinstance(names, list) or len(names) != 3 or not all(isinstance(each, str) for each in names):
        raise DatasetError(f"{path}: {key}.type", "[source, relation, destination]", repr(names)[:80])
    edge_type = EdgeType(*names)
    for end in (edge_type.src, edge_type.dst):
        if end not in nodes:
            expected = f"a table [nodes.{end}]"
            raise DatasetError(f"{path}: {key}.type", expected, did_you_mean(end, nodes))
    src, dst = (_text(path, f"{key}.{name}", entry.get(name, name)) for name in ("src", "dst"))
    return EdgeTable(edge_type, _files(path, key, entry), src, dst)


def _files(path: Path, key: str, entry: Mapping[str, Any]) -> tuple[Path, ...]:
    names = entry.get("file")
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not names or not all(isinstance(each, str) for each in names):
        raise DatasetError(f"{path}: {key}.file", "a file or a list of files", repr(names)[:80])
    files = tuple(path.parent / name for name in names)
    for file in files:
        if not file.is_file():
            raise DatasetError(str(file), f"a file, as {key}.file says", "none")
    return files


def _text(path: Path, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise DatasetError(f"{path}: {key}", "the name of a column", repr(value)[:80])
    return value


def _require_keys(path: Path, key: str, entry: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in entry:
        if name not in known:
            where = f"{path}: {key}.{name}" if key else f"{path}: {name}"
            raise DatasetError(where, "a known key", f"{name!r}; {did_you_mean(name, known)}")
