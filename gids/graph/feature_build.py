"""Feature files of a store: rows converted, put in the wanted order, and checked on the way."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.errors import DatasetError
from gids.graph.chunked import ChunkedFile, run_in_order, write_chunks
from gids.graph.feature_kernels import encode_into, raise_largest
from gids.graph.feature_types import FeatureDtype, column_scale, is_non_finite
from gids.graph.igbh import read_into
from gids.graph.journal import Journal, Result
from gids.graph.progress import Progress
from gids.graph.row_files import gather_rows

CHUNK_BYTES = 4 * 2**20
#: Bytes of source rows that are converted at a time: they stay in the processor's cache.
PIECE_BYTES = 2**19
#: Memory that a worker takes: a chunk of output, a piece of input and what converting it needs.
WORKER_BYTES = CHUNK_BYTES + 8 * PIECE_BYTES


class NonFinite(Enum):
    """What to do with NaN and infinite features: refuse them, or keep and count them."""

    ERROR = "error"
    KEEP = "keep"


@dataclass(frozen=True)
class FeatureBuild:
    """How the features of one node type are written.

    Attributes
    ----------
    node_type : str
    source : ArrayDescription
        Floats of shape (nodes, dim), in one piece of one file.
    dtype : FeatureDtype
    path : Path
        The file to make: rows one after the other, from byte 0.
    order : Path or None
        File of int64: which node's row stands at each place; None: that of the place's number.
    non_finite : NonFinite
    """

    node_type: str
    source: ArrayDescription
    dtype: FeatureDtype
    path: Path
    order: Path | None
    non_finite: NonFinite

    @property
    def dim(self) -> int:
        """Elements of a row."""
        return self.source.shape[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self.dim * self.dtype.itemsize

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk."""
        return max(1, CHUNK_BYTES // self.row_bytes)

    def nodes(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Whose rows stand at the places ``first``, …."""
        if self.order is None:
            return np.arange(first, first + count)
        return np.fromfile(self.order, np.int64, count, offset=8 * first)

    @property
    def file(self) -> ChunkedFile:
        """The file to make and its chunks, each with a checksum."""
        return ChunkedFile(
            self.path, b"", self.source.shape[0] * self.row_bytes, self.chunk_rows * self.row_bytes
        )


@dataclass(frozen=True)
class BuiltFeatures:
    """What writing found out.

    Attributes
    ----------
    crc32 : tuple of int
        Checksum of each chunk.
    n_non_finite : int
        Elements that are NaN or infinite.
    """

    crc32: tuple[int, ...]
    n_non_finite: int


def workers_within(memory_bytes: int, wanted: int) -> int:
    """Threads whose buffers fit in `memory_bytes`; at least one."""
    return max(1, min(wanted, memory_bytes // WORKER_BYTES))


def write_features(
    journal: Journal,
    build: FeatureBuild,
    scale: npt.NDArray[np.float32] | None,
    *,
    workers: int,
    progress: Progress,
) -> BuiltFeatures:
    """Write the file, going on after the chunks that are finished.

    Raises
    ------
    DatasetError
        A value is not finite (or too large for the dtype) and `build` says that this is an error.
    """
    begin = _data_offset(build.source)
    with _SourceRows(build, begin) as rows:

        def make(chunk: int, write: Callable[[memoryview], None]) -> Result:
            first = chunk * build.chunk_rows
            count = min(build.chunk_rows, build.source.shape[0] - first)
            nodes = build.nodes(first, count)
            out = rows.buffer("out", (build.chunk_rows, build.dim), build.dtype.stored)[:count]
            wrong = 0
            for at in range(0, count, rows.piece_rows):
                piece = slice(at, min(at + rows.piece_rows, count))
                found = encode_into(rows.read(nodes[piece]), build.dtype, scale, out[piece])
                if found and build.non_finite is NonFinite.ERROR:
                    _refuse(build, is_non_finite(out[piece], build.dtype), nodes[piece])
                wrong += found
            data = out.reshape(-1).view(np.uint8).data
            write(data)
            return {"crc": zlib.crc32(data), "wrong": wrong}

        step = f"{build.node_type}: features"
        chunks = write_chunks(journal, step, build.file, make, workers=workers, progress=progress)
    return BuiltFeatures(tuple(chunk["crc"] for chunk in chunks), sum(chunk["wrong"] for chunk in chunks))


def find_scale(build: FeatureBuild, *, workers: int, progress: Progress) -> npt.NDArray[np.float32]:
    """int8 scale of each column: one pass over the source.

    Raises
    ------
    DatasetError
        A value is not finite: int8 has no way to say so.
    """
    n_rows = build.source.shape[0]
    largest = np.zeros(build.dim, np.float32)
    bar = progress(f"{build.node_type}: largest values", n_rows * build.source.row_bytes, 0)
    try:
        with _SourceRows(build, _data_offset(build.source)) as rows:
            step = rows.piece_rows * 16

            def make(number: int) -> Result:
                found = np.zeros(build.dim, np.float32)
                for first in range(number * step, min((number + 1) * step, n_rows), rows.piece_rows):
                    nodes = np.arange(first, min(first + rows.piece_rows, n_rows))
                    part = rows.read(nodes)
                    if not raise_largest(part, found):
                        _refuse(build, ~np.isfinite(np.asarray(part, np.float32)), nodes)
                return {"largest": found}

            for number, result in enumerate(run_in_order(make, 0, -(-n_rows // step), workers)):
                np.maximum(largest, result["largest"], out=largest)
                bar.update(min(step, n_rows - number * step) * build.source.row_bytes)
    finally:
        bar.close()
    return column_scale(largest)


class _SourceRows:
    """Reads pieces of the source into buffers, each thread into its own."""

    def __init__(self, build: FeatureBuild, begin: int) -> None:
        self._build, self._begin = build, begin
        self._path = build.source.files[0].path
        self._own = threading.local()
        self.piece_rows = max(1, PIECE_BYTES // build.source.row_bytes)

    def __enter__(self) -> _SourceRows:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        if self._build.order is not None:
            # Rows are announced one by one; read-ahead would fetch neighbours nobody wants yet.
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """This thread's buffer of a name."""
        if not hasattr(self._own, name):
            setattr(self._own, name, np.empty(shape, dtype))
        found: npt.NDArray[Any] = getattr(self._own, name)
        return found

    def read(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Rows of these nodes, valid until the thread's next call."""
        source = self._build.source
        part = self.buffer("part", (self.piece_rows, source.shape[1]), source.stored_dtype)[: len(nodes)]
        if self._build.order is None:
            place = self._begin + int(nodes[0]) * source.row_bytes
            read_into(self._descriptor, self._path, place, part.reshape(-1).view(np.uint8))
        else:
            gather_rows(self._descriptor, self._path, self._begin, nodes, part)
        return part


def _data_offset(source: ArrayDescription) -> int:
    return source.layout.extents[0].file_offset if source.layout.extents else 0


def _refuse(build: FeatureBuild, wrong: npt.NDArray[np.bool_], nodes: npt.NDArray[np.int64]) -> None:
    row, column = np.argwhere(wrong)[0]
    raise DatasetError(
        build.source.files[0].path,
        f"finite {build.dtype.value} features",
        f"NaN, or a number that is infinite or too large, in column {column} of row {nodes[row]}",
    )
