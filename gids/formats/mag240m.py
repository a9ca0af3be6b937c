"""MAG240M of OGB's large-scale challenge, as it is downloaded.

    meta.pt                                                        counts of nodes, and num_classes
    split_dict.pt                                                  train, valid, test: ids of papers
    processed/paper/node_feat.npy                                  float16, (papers, 768)
    processed/paper/node_label.npy                                 float, (papers,), NaN where there is none
    processed/<src>___<rel>___<dst>/edge_index.npy                 int64, (2, edges)

Papers alone have features. As in the challenge's own examples citations go both ways and every other
relation gets its reverse. Labels of the test papers are not published, so these papers are in no part of
the split.

Source: Hu et al., "OGB-LSC: A Large-Scale Challenge for Machine Learning on Graphs", 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gids.errors import DatasetError
from gids.formats.array_files import open_npy
from gids.formats.format import Format, RelationOptions, SourceGraph
from gids.formats.labels import task_of
from gids.formats.staging import Staging
from gids.formats.stored_edges import edges_of
from gids.formats.torch_files import as_array, load_torch
from gids.graph.schema import EdgeType
from gids.graph.splits import Split

FOLDER = "mag240m_kddcup2021"
RELATIONS = (
    EdgeType("author", "affiliated_with", "institution"),
    EdgeType("author", "writes", "paper"),
    EdgeType("paper", "cites", "paper"),
)
_PARTS = ("train", "valid", "test")


class Mag240mFormat(Format):
    """See the module."""

    name = "mag240m"
    layout = "meta.pt and processed/paper/node_feat.npy, or a folder mag240m_kddcup2021 with them"
    relations = RelationOptions(reverse=True, symmetric=("cites",))

    def recognises(self, path: Path) -> bool:
        root = _root(path)
        return (root / "meta.pt").is_file() and (root / "processed" / "paper").is_dir()

    def files(self, path: Path) -> list[Path]:
        root = _root(path)
        used = [root / "meta.pt", root / "split_dict.pt"]
        used += [root / "processed" / "paper" / name for name in ("node_feat.npy", "node_label.npy")]
        used += [_edge_file(root, relation) for relation in RELATIONS]
        for each in used:
            if not each.is_file():
                raise DatasetError(str(each), "a file of MAG240M", "none")
        return used

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        root = _root(path)
        counts, n_classes = _meta(root / "meta.pt")
        papers = root / "processed" / "paper"
        rows, labels = open_npy(papers / "node_feat.npy"), open_npy(papers / "node_label.npy")
        if len(rows.shape) != 2 or rows.dtype.kind != "f" or rows.fortran:
            raise DatasetError(rows.where, "float rows of shape (papers, dim)", f"{rows.dtype} {rows.shape}")
        edges = {}
        for relation in RELATIONS:
            edges[relation] = edges_of(open_npy(_edge_file(root, relation)), staging, str(relation))
        task = task_of(
            "label",
            "paper",
            counts["paper"],
            labels.where,
            lambda: labels.rows(staging),
            n_classes=n_classes,
            split=_split(root / "split_dict.pt"),
        )
        return SourceGraph(counts, edges, {"paper": rows.describe(staging, "paper")}, (task,))


def _root(path: Path) -> Path:
    return path / FOLDER if (path / FOLDER).is_dir() else path


def _edge_file(root: Path, relation: EdgeType) -> Path:
    return root / "processed" / "___".join(relation) / "edge_index.npy"


def _meta(path: Path) -> tuple[dict[str, int], int]:
    found = load_torch(path)
    names = ("author", "institution", "paper", "num_classes")
    for name in names:
        value: Any = found.get(name) if isinstance(found, Mapping) else None
        if type(value) is not int or value < 0:
            raise DatasetError(str(path), f"{name!r}: a count", repr(value)[:80])
    return {name: found[name] for name in names[:3]}, found["num_classes"]


def _split(path: Path) -> Split:
    found = load_torch(path)
    lists = []
    for part in _PARTS:
        array = as_array(found.get(part) if isinstance(found, Mapping) else None)
        if array is None:
            raise DatasetError(str(path), f"{part!r}: ids of papers", repr(found)[:80])
        lists.append(array)
    return Split(*lists)
