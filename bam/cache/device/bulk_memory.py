"""A GPU's memory, and pinned host memory, as destinations of bulk reads; through CuPy."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from bam.errors import EngineUnavailable
from bam.storage.bulk.memory import BulkMemory, HostMemory, skipped_bytes
from bam.storage.engine import ByteArray

_PAGE_BYTES = 4096


class GpuMemory(BulkMemory):
    """Memory of the current GPU.

    Parameters
    ----------
    array : cupy array of uint8, shape (n_bytes,)
        Contiguous; nothing that was launched may still use it.

    Attributes
    ----------
    array : cupy array
    """

    def __init__(self, array: Any) -> None:
        self._cupy = _cupy()
        self._device = self._cupy.cuda.Device()
        self.gpu = str(self._cupy.cuda.runtime.deviceGetPCIBusId(self._device.id)).lower()
        self.array, self.n_bytes = array, int(array.shape[0])
        self._of_thread = threading.local()

    def enter_thread(self) -> None:
        self._device.use()  # kvikio asks the driver about the memory in this thread

    @classmethod
    def new(cls, n_bytes: int) -> GpuMemory:
        """New memory, undefined.

        Raises
        ------
        EngineUnavailable
            No CuPy, no GPU, or not so much memory of it.
        """
        cupy = _cupy()
        try:
            array = cupy.empty(n_bytes, np.uint8)
            # What was freed may still be in use by what was launched before on this stream.
            cupy.cuda.get_current_stream().synchronize()
            return cls(array)
        except Exception as error:
            raise _unavailable(error) from error

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


def gpu_name() -> str:
    """What the driver calls the current GPU."""
    runtime = _cupy().cuda.runtime
    return str(runtime.getDeviceProperties(runtime.getDevice())["name"].decode())


def copy_bytes_per_s(memory: BulkMemory) -> float:
    """How fast pinned host memory is copied to a GPU's: the ceiling of what goes that way."""
    staged = memory.staging(min(memory.n_bytes, 64 * 2**20))
    memory.put(0, staged)
    begin, copies = time.perf_counter(), 8
    for _ in range(copies):
        memory.put(0, staged)
    return copies * len(staged) / (time.perf_counter() - begin)


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
