"""Reader of the IGB heterogeneous data sets (IGBH), exactly as published.

    processed/<node type>/node_feat.npy                     (nodes, dim) float32, with or without npy header
    processed/paper/node_label_19.npy, node_label_2K.npy    (papers,), whole numbers, any numeric dtype
    processed/<source>__<relation>__<destination>/edge_index.npy    (edges, 2) int64: source, destination

Opening a folder reads headers and sizes only; whoever reads the contents checks them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription, open_regular
from bam.array.npy_header import has_magic
from bam.array.sources import FileSource, RawSource
from bam.errors import SourceError
from gids.errors import DatasetError
from gids.graph.igbh_facts import (
    EDGE_FILE,
    FEATURE_FILE,
    LABEL_FILES,
    LABELLED_TYPE,
    OPTIONAL_RELATIONS,
    PROCESSED,
    PUBLISHED,
    PUBLISHED_DIM,
    REQUIRED_RELATIONS,
    IgbhSize,
    labelled_papers,
)
from gids.graph.schema import EdgeType
from gids.graph.toml_text import read_toml

#: What `gids synth` writes beside ``processed``: counts that no published size has.
RECORD_NAME = "synthetic.toml"
FEATURE_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64))
LABEL_CHUNK = 2**20


@dataclass(frozen=True)
class IgbhFolder:
    """An IGBH folder, its headers and sizes checked.

    Attributes
    ----------
    processed : Path
        The folder that holds the node and edge folders.
    size : IgbhSize or None
        Which published size it is; None for others.
    num_nodes : dict of str to int
    features : dict of str to ArrayDescription
        (nodes, dim) by node type.
    edges : dict of EdgeType to ArrayDescription
        (edges, 2) int64 by relation, as stored: no loops added, none reversed.
    labels : dict of int to ArrayDescription
        (n,) or (n, 1) by number of classes; n may differ from the number of papers.
    """

    processed: Path
    size: IgbhSize | None
    num_nodes: dict[str, int]
    features: dict[str, ArrayDescription]
    edges: dict[EdgeType, ArrayDescription]
    labels: dict[int, ArrayDescription]


def is_igbh(path: str | os.PathLike[str]) -> bool:
    """Whether the folder looks like IGBH: it has a citation folder where one belongs."""
    return (_processed(Path(path)) / str(REQUIRED_RELATIONS[0])).is_dir()


def open_igbh(path: str | os.PathLike[str]) -> IgbhFolder:
    """Open an IGBH folder in place.

    Parameters
    ----------
    path : path
        The folder that holds ``processed``, or ``processed`` itself.

    Raises
    ------
    DatasetError, bam.errors.SourceError
        Naming the file, what was expected and what was found.
    """
    processed = _processed(Path(path))
    relations = _relations(processed)
    node_types = sorted({end for relation in relations for end in (relation.src, relation.dst)})
    files = {name: processed / name / FEATURE_FILE for name in node_types}
    with_header = {name: _describe_headed(file) for name, file in files.items()}
    size, expected = _expected_counts(processed, with_header)
    dims = {each.shape[1] for each in with_header.values() if each is not None}
    raw_dim = dims.pop() if len(dims) == 1 else PUBLISHED_DIM
    features = {}
    for name, file in files.items():
        described = with_header[name] or _describe_raw(file, expected.get(name, -1), raw_dim)
        count = expected.get(name, described.shape[0])
        if described.shape[0] != count:
            raise DatasetError(str(file), f"{count} rows, one for each {name}", f"shape {described.shape}")
        features[name] = described
    num_nodes = {name: described.shape[0] for name, described in features.items()}
    edges = {relation: _describe_edges(processed / str(relation) / EDGE_FILE) for relation in relations}
    labels = _describe_labels(processed / LABELLED_TYPE, num_nodes[LABELLED_TYPE])
    return IgbhFolder(processed, size, num_nodes, features, edges, labels)


def label_chunks(folder: IgbhFolder, n_classes: int) -> Iterator[npt.NDArray[np.int16]]:
    """Labels of all papers in order, a few million at a time; -1 where there is none.

    What a label file holds beyond the labelled papers is padding and is not looked at.

    Raises
    ------
    DatasetError
        No file for so many classes, or a value that is not a class.
    """
    if n_classes not in folder.labels:
        known = " or ".join(map(str, sorted(folder.labels)))
        raise DatasetError(str(folder.processed), f"labels of {known} classes", f"{n_classes} asked for")
    described, n_papers = folder.labels[n_classes], folder.num_nodes[LABELLED_TYPE]
    path, n_labelled = described.files[0].path, labelled_papers(n_papers, n_classes)
    highest = -1
    for first in range(0, n_papers, LABEL_CHUNK):
        labels = np.full(min(LABEL_CHUNK, n_papers - first), -1, np.int16)
        part = read_rows(described, first, max(0, min(len(labels), n_labelled - first))).reshape(-1)
        with np.errstate(invalid="ignore"):
            labels[: len(part)] = part
        classes = labels[: len(part)]
        wrong = (classes < 0) | (classes >= n_classes) | (classes != part)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise DatasetError(
                path, f"labels from 0 to {n_classes - 1}", f"{part[at]} for paper {first + at}"
            )
        highest = max(highest, int(classes.max(initial=-1)))
        yield labels
    fewer = [n for n in LABEL_FILES if highest < n < n_classes]
    if fewer and n_labelled >= 10 * n_classes:
        found = f"none above {highest}, as if it were {LABEL_FILES[fewer[0]]}"
        raise DatasetError(path, f"labels up to {n_classes - 1}", found)


def read_labels(folder: IgbhFolder, n_classes: int) -> npt.NDArray[np.int16]:
    """Labels of all papers, shape (papers,); see :func:`label_chunks`."""
    return np.concatenate(list(label_chunks(folder, n_classes)))


def read_rows(described: ArrayDescription, first: int, count: int) -> npt.NDArray[Any]:
    """Rows ``first``, … of an array that lies in one piece of one file.

    Raises
    ------
    DatasetError
        The file has become shorter.
    """
    rows = np.empty((count, *described.row_shape), described.stored_dtype)
    if not rows.nbytes:
        return rows
    path, begin = described.files[0].path, described.layout.extents[0].file_offset
    with open(path, "rb", buffering=0) as stream:
        read_into(stream.fileno(), path, begin + first * described.row_bytes, rows.reshape(-1).view(np.uint8))
    return rows


def read_into(descriptor: int, path: str, offset: int, out: npt.NDArray[np.uint8]) -> None:
    """Fill `out` from the file.

    Raises
    ------
    DatasetError
        It ends before.
    """
    view = out.data
    while view:
        got = os.preadv(descriptor, [view], offset)
        if not got:
            raise DatasetError(path, f"{len(view)} more bytes from byte {offset} on", "the end of the file")
        view, offset = view[got:], offset + got


def _processed(path: Path) -> Path:
    return path / PROCESSED if (path / PROCESSED).is_dir() else path


def _relations(processed: Path) -> list[EdgeType]:
    for relation in REQUIRED_RELATIONS:
        if not (processed / str(relation)).is_dir():
            expected = f"a folder {relation}, with {EDGE_FILE} in it"
            found = "no such folder" if processed.is_dir() else "no such data set"
            raise DatasetError(str(processed), expected, found)
    optional = [relation for relation in OPTIONAL_RELATIONS if (processed / str(relation)).is_dir()]
    return [*REQUIRED_RELATIONS, *optional]


def _describe_headed(file: Path) -> ArrayDescription | None:
    """What an npy header says; None for a file without one."""
    with open_regular(str(file)) as (descriptor, _):
        if not has_magic(descriptor):
            return None
    return _require_features(file, FileSource(file).describe())


def _describe_raw(file: Path, count: int, dim: int) -> ArrayDescription:
    """A file without header: float32, of the published dim or that of the other types."""
    try:
        return RawSource(file, np.float32, (count, dim)).describe()
    except SourceError as error:
        rows = f"{count} rows" if count >= 0 else "whole rows"
        expected = f"an npy header, or {rows} of {dim} float32 without one ({error.expected})"
        raise DatasetError(str(file), expected, error.found) from error


def _require_features(file: Path, described: ArrayDescription) -> ArrayDescription:
    if len(described.shape) != 2 or described.stored_dtype not in FEATURE_DTYPES:
        found = f"{described.stored_dtype} of shape {described.shape}"
        raise DatasetError(str(file), "float32 (or float16, float64) of shape (nodes, dim)", found)
    return described


def _expected_counts(
    processed: Path, with_header: Mapping[str, ArrayDescription | None]
) -> tuple[IgbhSize | None, dict[str, int]]:
    """The published size, and the node counts the folder must have, as far as they are known.

    A synthetic folder's record knows; else the name of the folder above ``processed``; else all counts that
    headers tell, when they are those of a published size.
    """
    record = processed.parent / RECORD_NAME
    if record.is_file():
        nodes = read_toml(record)["nodes"]
        found = [size for size, facts in PUBLISHED.items() if facts.nodes.items() >= nodes.items()]
        return (found[0] if found else None), nodes
    told = {name: described.shape[0] for name, described in with_header.items() if described is not None}
    for size, facts in PUBLISHED.items():
        if processed.resolve().parent.name == size.value or (told and told.items() <= facts.nodes.items()):
            return size, facts.nodes
    return None, {}


def _describe_edges(file: Path) -> ArrayDescription:
    with open_regular(str(file)) as (descriptor, identity):
        headed = has_magic(descriptor)
    if not headed and identity.bytes % 16 == 0:
        return RawSource(file, np.int64, (-1, 2)).describe()
    described = FileSource(file).describe()
    if described.stored_dtype != np.int64 or len(described.shape) != 2 or described.shape[1] != 2:
        found = f"{described.stored_dtype} of shape {described.shape}"
        raise DatasetError(str(file), "int64 of shape (edges, 2): source and destination ids", found)
    return described


def _describe_labels(folder: Path, n_papers: int) -> dict[int, ArrayDescription]:
    labels = {}
    for n_classes, name in LABEL_FILES.items():
        file = folder / name
        if not file.exists():
            continue
        with open_regular(str(file)) as (descriptor, _):
            headed = has_magic(descriptor)
        described = (FileSource(file) if headed else RawSource(file, np.float32, (-1,))).describe()
        numeric = np.issubdtype(described.stored_dtype, np.integer) or described.stored_dtype.kind == "f"
        if described.shape[1:] not in ((), (1,)) or not numeric:
            found = f"{described.stored_dtype} of shape {described.shape}"
            raise DatasetError(str(file), "numbers of shape (papers,) or (papers, 1)", found)
        needed = labelled_papers(n_papers, n_classes)
        if not needed <= described.shape[0] <= n_papers:
            expected = f"{needed} labels" if needed == n_papers else f"{needed} to {n_papers} labels"
            raise DatasetError(str(file), f"{expected}, for {n_papers} papers", f"shape {described.shape}")
        labels[n_classes] = described
    if not labels:
        raise DatasetError(str(folder), " or ".join(LABEL_FILES.values()), "neither")
    return labels
