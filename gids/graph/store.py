"""A converted data set: a folder with a manifest. Opening checks sizes, verifying checks every byte."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.sources import ConcatenatedSource
from gids.errors import ChecksumError, DatasetError, GraphError
from gids.graph.checksums import find_damage
from gids.graph.csc import Csc
from gids.graph.dataset import Dataset, Features, Task
from gids.graph.graph import Graph
from gids.graph.manifest import (
    MANIFEST_NAME,
    FeatureRecord,
    Manifest,
    RelationRecord,
    TaskRecord,
    read_manifest,
)
from gids.graph.progress import Progress, no_progress
from gids.graph.schema import EdgeType, Schema
from gids.graph.splits import Split


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether the folder has a manifest."""
    return (Path(path) / MANIFEST_NAME).is_file()


def open_store(path: str | os.PathLike[str]) -> Dataset:
    """Open a store. Arrays are memory maps; nothing but headers is read.

    Raises
    ------
    DatasetError, bam.errors.SourceError
        A file is missing, is longer or shorter than the manifest says, or was made by another version.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    for record in manifest.files:
        _require_size(folder / record.path, record.bytes)
    edge_types = [record.edge_type for record in manifest.relations]
    schema = Schema(manifest.num_nodes, edge_types)
    relations = {record.edge_type: _open_relation(folder, record, schema) for record in manifest.relations}
    features = {
        record.node_type: _open_features(folder, record, manifest.num_nodes[record.node_type])
        for record in manifest.features
    }
    tasks = {
        record.name: _open_task(folder, record, manifest.num_nodes[record.node_type])
        for record in manifest.tasks
    }
    return Dataset(folder, Graph(schema, relations), features, tasks)


def verify_store(
    path: str | os.PathLike[str], *, workers: int | None = None, progress: Progress = no_progress
) -> list[ChecksumError | GraphError]:
    """Read everything; what is damaged. Empty: the store is as it was written.

    Raises
    ------
    DatasetError, bam.errors.SourceError
        As :func:`open_store`.
    """
    folder = Path(path)
    records = read_manifest(folder).files
    for record in records:
        _require_size(folder / record.path, record.bytes)
    damage: list[ChecksumError | GraphError] = []
    damage.extend(find_damage(folder, records, workers or len(os.sched_getaffinity(0)), progress))
    if not damage:
        try:
            open_store(folder).graph.verify()
        except GraphError as error:
            damage.append(error)
    return damage


def store_bytes(manifest: Manifest) -> int:
    """Bytes of all files but the manifest."""
    return sum(record.bytes for record in manifest.files)


def _require_size(path: Path, expected: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise DatasetError(str(path), f"a file of {expected} bytes", error.strerror or "none") from error
    if found != expected:
        raise DatasetError(str(path), f"{expected} bytes", f"{found}")


def _open_relation(folder: Path, record: RelationRecord, schema: Schema) -> Csc:
    n_src, n_dst = (schema.num_nodes[end] for end in (record.edge_type.src, record.edge_type.dst))
    indptr = _open_array(folder / record.indptr, (np.dtype(np.int64),), (n_dst + 1,))
    indices = _open_array(
        folder / record.indices, (np.dtype(np.int32), np.dtype(np.int64)), (record.n_edges,)
    )
    return Csc(indptr, indices, n_src, name=_relation_name(folder, record.edge_type))


def _relation_name(folder: Path, edge_type: EdgeType) -> str:
    return f"{folder}: {edge_type}"


def _open_array(path: Path, dtypes: tuple[np.dtype[Any], ...], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    array = _load(path)
    if array.dtype not in dtypes or array.shape != shape:
        expected = f"{' or '.join(str(dtype) for dtype in dtypes)} of shape {shape}"
        raise DatasetError(str(path), expected, f"{array.dtype} of shape {array.shape}")
    # A plain array over the same map: numpy's memmap class makes every slice slower.
    return np.asarray(array)


def _load(path: Path) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DatasetError(str(path), "an npy file", str(error)) from error
    return array


def _open_features(folder: Path, record: FeatureRecord, n_nodes: int) -> Features:
    paths = [folder / file for file in record.files]
    for at, (path, size) in enumerate(zip(paths, record.file_bytes, strict=True)):
        _require_size(path, size)
        if record.modified_ns and path.stat().st_mtime_ns != record.modified_ns[at]:
            raise DatasetError(
                str(path),
                "the file as it was when the graph was built",
                "a file changed since; build it again",
            )
    source = ConcatenatedSource(paths, record.dtype.stored, (-1, record.dim))
    description = source.describe()
    if description.shape[0] != n_nodes:
        raise DatasetError(str(paths[0]), f"{n_nodes} rows of {record.dim}", f"{description.shape[0]}")
    rank = levels = scale = None
    if record.rank:
        rank = _open_array(folder / record.rank, (np.dtype(np.int32), np.dtype(np.int64)), (n_nodes,))
    if record.levels:
        levels = np.array(_load(folder / record.levels))
    if record.scale:
        scale = np.array(_open_array(folder / record.scale, (np.dtype(np.float32),), (record.dim,)))
    return Features(record.node_type, record.dtype, record.dim, source, description, rank, levels, scale)


def _open_task(folder: Path, record: TaskRecord, n_nodes: int) -> Task:
    labels = _open_array(folder / record.labels, (np.dtype(np.int16),), (n_nodes,))
    given = None
    if record.split_files:
        given = Split(*(np.array(_load(folder / file)) for file in record.split_files))
    return Task(
        record.name,
        record.node_type,
        record.n_classes,
        labels,
        record.n_labelled,
        record.n_permuted,
        given,
    )
