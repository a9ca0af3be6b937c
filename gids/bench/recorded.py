"""Mini-batches on disk, so that every loader can be given the same ones without sampling again.

A folder with `recorded.json` and a file for each mini-batch: one vector, int32 where every number fits, of

    epoch, batch, resampled, layers,
    nodes of each type that are seeds, within one hop, ...      (layers + 1) x node types
    edges                                                        layers x edge types
    node ids of each type,
    for each block and edge type: in-degree of each destination node, then local source ids.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.csc import Int64Array
from gids.graph.schema import Schema
from gids.sampling.block import Block, BlockEdges, SampledBatch

INDEX_NAME = "recorded.json"
VERSION = 1
_HEADER = 4


@dataclass(frozen=True)
class RecordedBatches:
    """Mini-batches of a folder, read one at a time.

    Attributes
    ----------
    folder : Path
    schema : Schema
    n_batches : int
    """

    folder: Path
    schema: Schema
    n_batches: int

    def __len__(self) -> int:
        return self.n_batches

    def __getitem__(self, number: int) -> SampledBatch:
        """Mini-batch `number` of the recording."""
        if not 0 <= number < self.n_batches:
            raise IndexError(f"mini-batch {number} of {self.n_batches} recorded ones")
        flat = np.load(_batch_file(self.folder, number)).astype(np.int64)
        return _unflatten(flat, self.schema)


def record(
    folder: str | os.PathLike[str], schema: Schema, batches: Iterable[SampledBatch]
) -> RecordedBatches:
    """Write mini-batches; the index comes last, so that a recording that was cut short does not open."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    count = 0
    for count, batch in enumerate(batches, 1):
        flat = _flatten(batch)
        fits = flat.max(initial=0) <= np.iinfo(np.int32).max
        np.save(_batch_file(path, count - 1), flat.astype(np.int32) if fits else flat)
    index = {
        "version": VERSION,
        "n_batches": count,
        "num_nodes": dict(schema.num_nodes),
        "edge_types": [list(each) for each in schema.edge_types],
    }
    (path / INDEX_NAME).write_text(json.dumps(index))
    return RecordedBatches(path, schema, count)


def open_recorded(folder: str | os.PathLike[str]) -> RecordedBatches:
    """Open a recording.

    Raises
    ------
    DatasetError
        It is none, or of another version.
    """
    path = Path(folder)
    try:
        index: dict[str, Any] = json.loads((path / INDEX_NAME).read_text())
    except (OSError, ValueError) as error:
        raise DatasetError(str(path / INDEX_NAME), "a finished recording", str(error)) from error
    if index.get("version") != VERSION:
        raise DatasetError(str(path / INDEX_NAME), f"version {VERSION}", str(index.get("version")))
    schema = Schema(index["num_nodes"], [(src, rel, dst) for src, rel, dst in index["edge_types"]])
    return RecordedBatches(path, schema, index["n_batches"])


def _batch_file(folder: Path, number: int) -> Path:
    return folder / f"batch-{number:06}.npy"


def _flatten(batch: SampledBatch) -> Int64Array:
    types, edge_types = batch.schema.node_types, batch.schema.edge_types
    header = [batch.epoch, batch.batch, int(batch.resampled), len(batch.blocks)]
    header += [counts[name] for counts in batch.node_counts for name in types]
    header += [block.edges[each].num_edges for block in batch.blocks for each in edge_types]
    parts: list[npt.NDArray[Any]] = [np.array(header, np.int64)]
    parts += [batch.nodes[name] for name in types]
    for block in batch.blocks:
        for each in edge_types:
            parts += [np.diff(block.edges[each].indptr), block.edges[each].indices]
    return np.concatenate(parts, dtype=np.int64)


class _Parts:
    """Takes one part after the other from a vector."""

    def __init__(self, flat: Int64Array, begin: int) -> None:
        self._flat, self._begin = flat, begin

    def take(self, count: int) -> Int64Array:
        begin, self._begin = self._begin, self._begin + count
        return self._flat[begin : self._begin]


def _unflatten(flat: Int64Array, schema: Schema) -> SampledBatch:
    types, edge_types = schema.node_types, schema.edge_types
    epoch, batch, resampled, n_layers = flat[:_HEADER].tolist()
    parts = _Parts(flat, _HEADER)
    table = parts.take((n_layers + 1) * len(types)).reshape(n_layers + 1, len(types))
    counts = tuple(dict(zip(types, row, strict=True)) for row in table.tolist())
    n_edges = parts.take(n_layers * len(edge_types)).reshape(n_layers, len(edge_types)).tolist()
    nodes = {name: parts.take(counts[-1][name]) for name in types}
    blocks = []
    for layer in range(n_layers):
        num_src, num_dst = counts[n_layers - layer], counts[n_layers - layer - 1]
        edges = {}
        for each, count in zip(edge_types, n_edges[layer], strict=True):
            indptr = np.zeros(num_dst[each.dst] + 1, np.int64)
            np.cumsum(parts.take(num_dst[each.dst]), out=indptr[1:])
            edges[each] = BlockEdges(indptr, parts.take(count))
        blocks.append(Block(num_src, num_dst, edges))
    return SampledBatch(schema, nodes, counts, tuple(blocks), epoch, batch, bool(resampled))
