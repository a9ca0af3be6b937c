"""Whole arrays, or some of their rows, into the host's or a GPU's memory by long reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from bam.array.open import AnySource
from bam.array.open_reader import open_engine_of
from bam.array.sources import as_source
from bam.config import DeviceKind, EngineKind, parse_kind
from bam.errors import ConfigError
from bam.storage.bulk.memory import BulkMemory, HostMemory, in_step
from bam.storage.bulk.open import open_bulk_reader
from bam.storage.bulk.reader import BulkRange, BulkReport
from bam.storage.bulk.settings import BulkSettings
from bam.storage.engine import Engine


@dataclass(frozen=True)
class LoadedArray:
    """Rows in memory.

    Attributes
    ----------
    rows : numpy or CuPy array
        The caller's.
    report : BulkReport
        How they were read: engine, path, threads.
    """

    rows: Any
    report: BulkReport


def load_array(
    source: AnySource,
    *,
    dtype: npt.DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    rows: slice | None = None,
    device: DeviceKind | str = DeviceKind.CPU,
    pinned: bool = False,
    bulk: BulkSettings | None = None,
    engine: EngineKind | str = EngineKind.AUTO,
    wrap: Callable[[Engine], Engine] | None = None,
) -> LoadedArray:
    """Read an array into memory, with long reads by several threads.

    Parameters
    ----------
    source, dtype, shape
        As of :func:`bam.open_array`.
    rows : slice, optional
        Which rows, without a step: ``slice(100)`` for the first 100. Default: all.
    device : str
        ``cpu``: a numpy array. ``cuda``: a CuPy array on the current GPU.
    pinned : bool
        Whether the host's memory is locked, so that a GPU can read it in place; needs a GPU.
    bulk : BulkSettings, optional
        Task size, threads, engine.
    engine : str
        Of this package, where one reads: ``auto``, ``uring``, ``file`` or ``memory``.
    wrap : callable, optional
        Takes that engine and returns the one to read through.

    Returns
    -------
    LoadedArray
        With this machine's byte order.

    Raises
    ------
    ConfigError, SourceError
        Before anything is read.
    EngineUnavailable
        There is no GPU, or what reads was named and cannot run here.
    StorageError
        Bytes could not be read: which file, where, and why.
    WaitTimeout
        No progress for so long as the settings say.
    """
    kind = parse_kind("device", device, DeviceKind)
    on_gpu = kind is DeviceKind.CUDA
    if on_gpu and pinned:
        raise ConfigError("pinned", pinned, "False with device 'cuda': it is about the host's memory")
    description = as_source(source, dtype, shape).describe()
    foreign = description.stored_dtype != description.dtype or description.dtype.kind not in "biufc"
    if on_gpu and foreign:
        raise ConfigError("dtype", description.stored_dtype, "numbers in this machine's byte order")
    first, n_rows = _row_range(rows, description.shape[0])
    result_shape = (n_rows, *description.row_shape)
    n_bytes = n_rows * description.row_bytes
    if on_gpu:
        from bam.cache.device.bulk_memory import GpuMemory

        on = GpuMemory.new(n_bytes)
        with RowLoader(description, bulk or BulkSettings(), engine=engine, wrap=wrap, to_gpu=True) as loader:
            report = loader.read(first, n_rows, on)
        return LoadedArray(on.array.view(description.dtype).reshape(result_shape), report)
    with RowLoader(description, bulk or BulkSettings(), engine=engine, wrap=wrap) as loader:
        memory = _host_bytes(n_bytes, loader.file_offset(first), pinned)
        report = loader.read(first, n_rows, HostMemory(memory))
    found = memory.view(description.stored_dtype).reshape(result_shape)
    if description.stored_dtype != description.dtype:
        found = found.byteswap(inplace=True).view(description.dtype)
    return LoadedArray(found, report)


class RowLoader:
    """Reads rows that follow each other, into memory that is there already. The caller closes it.

    Parameters
    ----------
    description : ArrayDescription
    settings : BulkSettings
    engine, wrap
        As of :func:`load_array`.
    to_gpu : bool
        Whether rows are for a GPU's memory.

    Raises
    ------
    EngineUnavailable, ConfigError, SourceError
    FileChangedError
        A file is not the one that was described.
    """

    def __init__(
        self,
        description: ArrayDescription,
        settings: BulkSettings,
        *,
        engine: EngineKind | str = EngineKind.AUTO,
        wrap: Callable[[Engine], Engine] | None = None,
        to_gpu: bool = False,
    ) -> None:
        self._description = description
        kind = parse_kind("engine", engine, EngineKind)
        self._reader = open_bulk_reader(
            description.layout,
            settings,
            paths=[file.path for file in description.files],
            opener=None if description.files else lambda: open_engine_of(description, kind),
            engine=kind,
            wrap=wrap,
            to_gpu=to_gpu,
        )
        try:
            # After the opening: so the files that are open are the ones described.
            description.check_files()
        except BaseException:
            self._reader.close()
            raise

    def file_offset(self, row: int) -> int:
        """Where a row begins in its file; 0 where there is no such row."""
        layout, begin = self._description.layout, row * self._description.row_bytes
        return layout.locate(begin, 1).file_offset if begin < layout.logical_bytes else 0

    def read(self, first: int, n_rows: int, memory: BulkMemory, begin: int = 0) -> BulkReport:
        """Rows from `first` on, as they are stored, into `memory` from byte `begin` on.

        Raises
        ------
        ConfigError, StorageError, WaitTimeout
        """
        row_bytes = self._description.row_bytes
        return self._reader.read([BulkRange(first * row_bytes, n_rows * row_bytes, begin)], memory)

    def close(self) -> None:
        """Release the files; calling it again does nothing."""
        self._reader.close()

    def __enter__(self) -> RowLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _row_range(rows: slice | None, n_rows: int) -> tuple[int, int]:
    """First row and number of rows."""
    if rows is None:
        return 0, n_rows
    if not isinstance(rows, slice) or rows.step not in (None, 1):
        raise ConfigError("rows", rows, "a slice without a step; bam.open_array reads any rows")
    begin, end, _ = rows.indices(n_rows)
    return begin, max(0, end - begin)


def _host_bytes(n_bytes: int, file_offset: int, pinned: bool) -> npt.NDArray[np.uint8]:
    if not pinned:
        return in_step(n_bytes, file_offset)
    from bam.cache.device.bulk_memory import pinned_memory

    host = pinned_memory(n_bytes, file_offset).host
    assert host is not None
    return host
