"""Rows through the native store: one C call per gather, the GIL free meanwhile."""

from __future__ import annotations

import ctypes
import errno as errno_codes
from ctypes import POINTER, byref, c_char, c_int, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from bam.array.reader import RowReader
from bam.cache.host import HostCache
from bam.config import StoreConfig
from bam.errors import (
    ClosedError,
    EngineUnavailable,
    FileChangedError,
    RowOutOfRange,
    StorageError,
    TruncatedFileError,
    WaitTimeout,
)
from bam.layout import Layout
from bam.native import function
from bam.native.structs import CLayout
from bam.stats import ReaderStats
from bam.storage.engine import EngineInfo
from bam.storage.leftovers import left_behind
from bam.storage.native import NativeEngine

_ERROR_BYTES = 512


class _Config(ctypes.Structure):
    _fields_ = [
        ("page_bytes", c_uint32),
        ("queue_depth", c_uint32),
        ("merge_bytes", c_uint32),
        ("bridge_bytes", c_uint32),
        ("timeout_ms", c_uint32),
        ("staging_bytes", c_uint64),
        ("first_page_id", c_uint64),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        ("ids", c_void_p),
        ("n_ids", c_uint64),
        ("next_use", c_void_p),
        ("out", c_void_p),
        ("row_bytes", c_uint64),
        ("out_rows", c_void_p),
    ]


class _Result(ctypes.Structure):
    _fields_ = [
        ("error", c_int32),
        ("file", c_uint32),
        ("file_offset", c_uint64),
        ("length", c_uint64),
        ("page_id", c_uint64),
        ("position", c_uint64),
    ]


#: `bam::StoreCounters`, in its order.
COUNTERS = [counter.name for counter in fields(ReaderStats) if counter.name != "info"]


class _Counters(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in COUNTERS]


@dataclass(frozen=True)
class ReadBuffers:
    """Reads that a thread has in flight, at most, and the bytes of the buffers they go to."""

    reads: int
    bytes: int


class NativeReader(RowReader):
    """Gathers rows through the C++ store. Thread-safe; keeps engine and cache alive.

    Parameters
    ----------
    layout : Layout
        Where the logical bytes lie; its file numbers are the engine's.
    engine : NativeEngine
    cache : HostCache
        Its `page_bytes` is the store's.
    config : StoreConfig
        Of which `queue_depth`, `merge_bytes`, `bridge_bytes`, `staging_bytes` and the time-outs are used.
    first_page_id : int
        What the cache calls page 0 of this layout; arrays that share a cache have disjoint page ids.
    """

    def __init__(
        self,
        layout: Layout,
        engine: NativeEngine,
        cache: HostCache,
        config: StoreConfig,
        first_page_id: int = 0,
    ) -> None:
        self._layout, self._engine, self._cache, self._config = layout, engine, cache, config
        create = function(
            "bam_store_create", c_void_p, [c_void_p, c_void_p, POINTER(CLayout), POINTER(_Config)]
        )
        settings = _Config(
            cache.page_bytes,
            config.queue_depth,
            config.merge_bytes,
            config.bridge_bytes,
            max(1, int(config.timeout_s * 1000)),
            config.staging_bytes,
            first_page_id,
        )
        handle = create(engine.handle, cache.handle, byref(CLayout.from_layout(layout)), byref(settings))
        if not handle:
            raise MemoryError("no memory for a store")
        self._handle: int | None = handle
        self._gather = function(
            "bam_store_gather",
            c_int,
            [c_void_p, POINTER(_Request), POINTER(_Result), POINTER(c_char), c_uint64],
        )

    def gather(
        self,
        ids: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        next_use: npt.NDArray[np.uint64] | None = None,
        out_rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if self._handle is None:
            raise ClosedError("reader")
        if len(ids) == 0 or out.shape[1] == 0:
            return
        request = _Request(
            ids.ctypes.data,
            len(ids),
            None if next_use is None else next_use.ctypes.data,
            out.ctypes.data,
            out.shape[1],
            None if out_rows is None else out_rows.ctypes.data,
        )
        result = _Result()
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        status = self._gather(self._handle, byref(request), byref(result), text, _ERROR_BYTES)
        if status != 0:
            reason = text.value.decode(errors="replace")
            raise EngineUnavailable(
                self._engine.info().engine,
                f"a thread that reads needs buffers and a queue of its own: {reason}",
                "Lower staging_bytes or queue_depth, or let fewer threads read at once",
            )
        if result.error != 0:
            raise self._error(result, ids, out.shape[1])

    def _error(self, result: _Result, ids: npt.NDArray[np.int64], row_bytes: int) -> Exception:
        if result.error == errno_codes.ERANGE:
            return RowOutOfRange(
                int(ids[result.position]), self._layout.logical_bytes // row_bytes, result.position
            )
        path = self._engine.files[result.file].path
        where = (path, result.file_offset, result.length, result.error, result.page_id)
        said = self._engine.explain(result.file, result.file_offset)
        if result.error == errno_codes.ETIMEDOUT and not said:
            return WaitTimeout(
                f"{result.length} bytes at offset {result.file_offset} of {path}, page {result.page_id}",
                self._config.timeout_s,
                "The disk or the engine does not answer; the array stays usable",
                file=path,
                offset=result.file_offset,
                length=result.length,
                page_id=result.page_id,
            )
        if result.error == errno_codes.ENODATA:
            return TruncatedFileError(*where, note="the file ends before these bytes; restore it")
        if result.error == errno_codes.ESTALE:
            return FileChangedError(*where, note="the file was rewritten since it was opened; open it again")
        return StorageError(*where, note=f"{said or 'check the disk'}; the array stays usable")

    def note_next_use(
        self, ids: npt.NDArray[np.int64], row_bytes: int, next_use: npt.NDArray[np.uint64]
    ) -> None:
        if self._handle is None:
            raise ClosedError("reader")
        note = function("bam_store_note_uses", None, [c_void_p, c_void_p, c_void_p, c_uint64, c_uint64])
        note(self._handle, ids.ctypes.data, next_use.ctypes.data, len(ids), row_bytes)

    def forget_next_uses(self, horizon: int, instead: int) -> None:
        if self._handle is None:
            raise ClosedError("reader")
        function("bam_store_forget_uses", None, [c_void_p, c_uint64, c_uint64])(
            self._handle, horizon, instead
        )

    def read_buffers(self) -> ReadBuffers:
        """What a thread that reads takes."""
        if self._handle is None:
            raise ClosedError("reader")
        reads, n_bytes = c_uint32(), c_uint64()
        ask = function("bam_store_read_buffers", None, [c_void_p, POINTER(c_uint32), POINTER(c_uint64)])
        ask(self._handle, byref(reads), byref(n_bytes))
        return ReadBuffers(reads.value, n_bytes.value)

    def notes(self) -> tuple[str, ...]:
        buffers, wanted = self.read_buffers(), self._config.queue_depth
        if buffers.reads >= wanted:
            return ()
        limit = f"staging_bytes={self._config.staging_bytes}"
        return (f"a thread has {buffers.reads} reads in flight, not {wanted}, so that they fit {limit}",)

    def stats(self) -> ReaderStats:
        if self._handle is None:
            raise ClosedError("reader")
        counters = _Counters()
        function("bam_store_counters", None, [c_void_p, POINTER(_Counters)])(self._handle, byref(counters))
        counts = {name: getattr(counters, name) for name in COUNTERS}
        return ReaderStats(**counts)

    def info(self) -> EngineInfo:
        return self._engine.info()

    def close(self) -> None:
        """Release it; calling it again does nothing.

        Raises
        ------
        WaitTimeout
            Reads that calls gave up have not ended in `close_timeout_s`. They are left behind: the memory
            they may still be written to, and their files, stay in use until the process ends. The reader is
            closed.
        """
        handle, self._handle = self._handle, None
        if handle is None:
            return
        timeout_s = self._config.close_timeout_s
        destroy = function("bam_store_destroy", c_uint32, [c_void_p, c_uint32])
        n_reads = destroy(handle, int(timeout_s * 1000))
        if n_reads:
            raise left_behind(n_reads, self._engine.files, timeout_s)
