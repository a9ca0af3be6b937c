"""Sources that bring an engine of their own: files of an engine, files of a store on NVMe drives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription, check_dtype, check_shape
from bam.array.npy_header import parse_header
from bam.array.sources import Source
from bam.errors import ConfigError, SourceError
from bam.layout import Layout
from bam.storage.engine import Engine
from bam.storage.nvme.drive_run import DriveRun
from bam.storage.nvme.store import NvmeStore


@dataclass(frozen=True)
class EngineSource(Source):
    """Rows without a header in the files of an engine.

    Attributes
    ----------
    open_engine : callable
        Opens the engine; the array closes it. Called again when the array is opened again.
    layout : Layout
        Where the rows are in the engine's files.
    dtype : dtype
    shape : tuple of int
        All of the layout's bytes.
    run : DriveRun, optional
        Where they lie on an NVMe drive, if they begin with a block and follow each other there.
    """

    open_engine: Callable[[], Engine]
    layout: Layout
    dtype: npt.DTypeLike
    shape: Sequence[int]
    run: DriveRun | None = None

    def describe(self) -> ArrayDescription:
        where = self.layout.files[0]
        dtype, shape = check_dtype(where, self.dtype), tuple(self.shape)
        length = check_shape(where, shape, dtype)
        if length != self.layout.logical_bytes:
            expected = f"{length} bytes for shape {shape} of {dtype}"
            raise SourceError(where, expected, f"{self.layout.logical_bytes} bytes")
        return ArrayDescription(shape, dtype, self.layout, opener=self.open_engine, run=self.run)


@dataclass(frozen=True)
class NvmeSource(Source):
    """A file of a store on NVMe drives: `.npy`, or without a header.

    Attributes
    ----------
    store : bam.storage.nvme.NvmeStore
        Open as long as the array is.
    name : str
        As in ``store.members``.
    dtype, shape : optional
        Of a file without a header.
    """

    store: NvmeStore
    name: str
    dtype: npt.DTypeLike | None = None
    shape: Sequence[int] | None = None

    def describe(self) -> ArrayDescription:
        member = self.store.member(self.name)
        where = f"{self.store.name}/{member.name}"
        if (self.dtype is None) != (self.shape is None):
            raise ConfigError("dtype, shape", (self.dtype, self.shape), "both, or neither")
        if self.dtype is not None and self.shape is not None:
            return self._rows(where, 0, np.dtype(self.dtype), self.shape)

        def read(n_bytes: int, offset: int) -> bytes:
            return self.store.read(member.offset + offset, max(0, min(n_bytes, member.n_bytes - offset)))

        header = parse_header(read, where, member.n_bytes)
        return self._rows(where, header.data_offset, header.dtype, header.shape)

    def _rows(
        self, where: str, header_bytes: int, dtype: np.dtype[np.generic], shape: Sequence[int]
    ) -> ArrayDescription:
        member = self.store.member(self.name)
        offset = member.offset + header_bytes
        layout = Layout.single(where, offset, member.n_bytes - header_bytes)
        return EngineSource(
            self.store.open_engine, layout, dtype, shape, self.store.run_at(offset)
        ).describe()
