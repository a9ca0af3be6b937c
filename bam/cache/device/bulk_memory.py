"""A GPU's memory, and pinned host memory, as destinations of bulk reads; through CuPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from bam.errors import EngineUnavailable
from bam.storage.bulk.memory import BulkMemory, HostMemory, skipped_bytes
from bam.storage.engine import ByteArray

_PAGE_BYTES = 4096


class GpuMemory(BulkMemory):
    """Memory of the current GPU, new and undefined.

    Parameters
    ----------
    n_bytes : int

    Attributes
    ----------
    array : cupy array of uint8, shape (n_bytes,)

    Raises
    ------
    EngineUnavailable
        No CuPy, no GPU, or not so much memory of it.
    """

    def __init__(self, n_bytes: int) -> None:
        self._cupy = _cupy()
        try:
            self._device = self._cupy.cuda.Device()
            self.array: Any = self._cupy.empty(n_bytes, np.uint8)
            # What was freed may still be in use by what was launched before on this stream.
            self._cupy.cuda.get_current_stream().synchronize()
            self.gpu = str(self._cupy.cuda.runtime.deviceGetPCIBusId(self._device.id)).lower()
        except Exception as error:
            raise _unavailable(error) from error
        self.n_bytes = n_bytes
        self._of_thread = threading.local()

    @property
    def host(self) -> ByteArray | None:
        return None

    def part(self, begin: int, length: int) -> Any:
        return self.array[begin : begin + length]

    def staging(self, n_bytes: int) -> ByteArray:
        with self._device:
            return _pinned(self._cupy, n_bytes, 0)

    def put(self, begin: int, data: ByteArray) -> None:
        runtime = self._cupy.cuda.runtime
        with self._device:
            stream = self._stream()
            runtime.memcpyAsync(
                self.array.data.ptr + begin,
                data.ctypes.data,
                data.nbytes,
                runtime.memcpyHostToDevice,
                stream.ptr,
            )
            stream.synchronize()

    def _stream(self) -> Any:
        """One for each thread, so that copies of several overlap."""
        if not hasattr(self._of_thread, "stream"):
            self._of_thread.stream = self._cupy.cuda.Stream(non_blocking=True)
        return self._of_thread.stream


def pinned_memory(n_bytes: int, file_offset: int = 0) -> HostMemory:
    """New pinned host memory, in step with its bytes' place in a file, as by
    :func:`bam.storage.bulk.memory.in_step`.

    Raises
    ------
    EngineUnavailable
        No CuPy, no GPU, or not so much memory that can be pinned.
    """
    cupy = _cupy()
    try:
        return HostMemory(_pinned(cupy, n_bytes, skipped_bytes(file_offset)))
    except Exception as error:
        raise _unavailable(error) from error


def _pinned(cupy: Any, n_bytes: int, skipped: int) -> ByteArray:
    """Pinned memory that begins `skipped` bytes behind a page; the array holds it."""
    owner = cupy.cuda.alloc_pinned_memory(n_bytes + 2 * _PAGE_BYTES)
    whole: ByteArray = np.frombuffer(owner, np.uint8, n_bytes + 2 * _PAGE_BYTES)
    first = -whole.ctypes.data % _PAGE_BYTES + skipped
    return whole[first : first + n_bytes]


def _cupy() -> Any:
    try:
        import cupy
    except Exception as error:  # a missing library of CUDA is not an ImportError
        raise _unavailable(error) from error
    return cupy


def _unavailable(error: Exception) -> EngineUnavailable:
    remedy = "Use device='cpu', or install the extra cuda13 or cuda12 and a driver that sees a GPU"
    return EngineUnavailable("cuda", f"{type(error).__name__}: {error}", remedy)
