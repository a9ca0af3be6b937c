"""Engines over bytes in memory: for tests, and for data that fits."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from ctypes import c_int32, c_uint32, c_uint64, c_void_p

import numpy as np

from bam.errors import ConfigError
from bam.storage.engine import ByteArray, EngineInfo, FileInfo, ReadSpan
from bam.storage.native import NativeEngine, create
from bam.storage.python_engine import PythonEngine

Buffer = ByteArray | bytes | bytearray | memoryview


class MemoryEngine(PythonEngine):
    """Serves buffers as files 0, 1, ... in plain Python.

    Parameters
    ----------
    buffers : sequence of bytes-like
        Read in place, not copied; must not change while the engine is open.
    alignment : int
        A power of two. Reads that do not keep to it fail with EINVAL, as direct reads of a file do.
    """

    def __init__(self, buffers: Sequence[Buffer], alignment: int = 1) -> None:
        self._buffers = _as_bytes(buffers, alignment)
        super().__init__("memory", _describe_files(self._buffers, alignment))

    def info(self) -> EngineInfo:
        return EngineInfo("memory", "python", direct=False, features={"copied": False})

    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        if span.file >= len(self._files):
            return -errno.EBADF
        misfit = span.offset | span.length | buffer.ctypes.data
        if misfit & (self._files[span.file].offset_alignment - 1):
            return -errno.EINVAL
        found = self._buffers[span.file][span.offset : span.offset + span.length]
        buffer[: len(found)] = found
        return len(found)

    def _release(self) -> None:
        self._buffers = []


class NativeMemoryEngine(NativeEngine):
    """The same in C++.

    Parameters
    ----------
    buffers, alignment
        As of :class:`MemoryEngine`. This object keeps the buffers; wrappers and readers keep this object.
    copy : bool
        Whether the engine reads a copy of its own.
    """

    def __init__(self, buffers: Sequence[Buffer], alignment: int = 1, *, copy: bool = False) -> None:
        arrays = _as_bytes(buffers, alignment)
        # Not dropped by close(): wrappers may still read.
        self._buffers = [] if copy else arrays
        addresses = (c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
        sizes = (c_uint64 * len(arrays))(*[array.nbytes for array in arrays])
        types = [c_void_p, c_void_p, c_uint32, c_int32, c_uint32]
        handle = create("bam_memory_engine_create", types, addresses, sizes, len(arrays), copy, alignment)
        super().__init__(handle)


def _as_bytes(buffers: Sequence[Buffer], alignment: int) -> list[ByteArray]:
    if not len(buffers):
        raise ConfigError("buffers", buffers, "at least one")
    if alignment < 1 or alignment & (alignment - 1):
        raise ConfigError("alignment", alignment, "a power of two")
    return [np.ascontiguousarray(np.frombuffer(buffer, dtype=np.uint8)) for buffer in buffers]


def _describe_files(buffers: Sequence[ByteArray], alignment: int) -> list[FileInfo]:
    return [FileInfo(f"memory:{i}", buffer.nbytes, alignment, alignment) for i, buffer in enumerate(buffers)]
