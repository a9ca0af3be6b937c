"""What the read path asks of a GPU: memory, launches, events. `cupy_gpu` has it; tests emulate one."""

from __future__ import annotations

import ctypes
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from bam.storage.buffers import aligned_buffer
from bam.storage.bulk.memory import BulkMemory
from bam.storage.engine import ByteArray

#: A stream of CUDA by its address; 0 is the legacy default stream.
StreamPointer = int


@dataclass(frozen=True)
class DeviceMemory:
    """Memory that kernels use, valid as long as this object (it holds `owner`)."""

    address: int
    n_bytes: int
    owner: Any = None


@dataclass(frozen=True)
class PinnedMemory:
    """Host memory at the same address for kernels and for the host; `array` (uint8) views all of it."""

    address: int
    array: npt.NDArray[np.uint8]
    owner: Any = None


@dataclass(frozen=True)
class DeviceTensor:
    """An array in the GPU's memory, C-contiguous: an input or output of a gather. Holds `owner`."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any


@dataclass(frozen=True)
class Grid:
    """Blocks of a launch and threads of each."""

    blocks: int
    threads: int


class GpuEvent(ABC):
    """A point of the store's stream: all that was launched before it."""

    @abstractmethod
    def wait(self) -> None:
        """Have this thread wait for it; other threads run meanwhile."""

    @abstractmethod
    def done(self) -> bool:
        """Whether it has been reached."""

    @abstractmethod
    def before(self, stream: StreamPointer | None) -> None:
        """Have what is launched on `stream` from now on wait for it; None: the current one."""


class Gpu(ABC):
    """One GPU and one stream on it, on which everything here is launched."""

    #: Launch sizes by kernel, and of kernels that divide a list of any length.
    grids: dict[str, Grid]
    list_grid: Grid
    #: CUDA's number of the GPU, and the address of the stream.
    number: int
    stream_address: StreamPointer

    def current(self) -> AbstractContextManager[None]:
        """Makes the GPU the thread's own, once for all calls inside the block."""
        return nullcontext()

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that nobody has taken."""

    @abstractmethod
    def memory(self, n_bytes: int) -> DeviceMemory:
        """New memory, all zero."""

    @abstractmethod
    def pinned(self, n_bytes: int) -> PinnedMemory:
        """New pinned host memory, all zero, aligned to 4096 bytes."""

    @abstractmethod
    def register(self, address: int, n_bytes: int, *, registers: bool = False) -> int:
        """Let kernels use host memory of somebody else, whole pages, until :meth:`close`.

        Parameters
        ----------
        registers : bool
            It is a device's, mapped into this process: kernels write through to the device.

        Returns
        -------
        int
            Its address for kernels.
        """

    @abstractmethod
    def upload(self, data: npt.NDArray[np.uint8]) -> DeviceMemory:
        """New memory with these bytes, for later launches here; `data` may change afterwards.

        Kernels of other streams need :meth:`memory` and :meth:`write`, which waits.
        """

    @abstractmethod
    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        """Copy to the GPU's memory, and wait."""

    @abstractmethod
    def read(self, address: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Copy from the GPU's memory after all launches so far, and wait."""

    @abstractmethod
    def download(self, to: PinnedMemory, offset: int, address: int, n_bytes: int) -> None:
        """Copy from the GPU's memory to pinned memory after all launches so far; does not wait."""

    @abstractmethod
    def zero(self, address: int, n_bytes: int) -> None:
        """Fill the GPU's memory with zeros after all launches so far; does not wait."""

    @abstractmethod
    def add_kernels(self, source: Path, *, include: Sequence[Path] = (), options: Sequence[str] = ()) -> None:
        """Compile a `.cu` file, or find it compiled; :meth:`launch` then knows its kernels."""

    def bulk_memory(self, memory: DeviceMemory) -> BulkMemory:
        """Memory of :meth:`memory` as a destination of bulk reads."""
        return WrittenMemory(self, memory)

    @abstractmethod
    def launch(self, kernel: str, grid: Grid, arguments: Sequence[ctypes.Structure | Any]) -> None:
        """Launch a kernel of `read_path.cu`; arguments are ctypes objects, passed by value."""

    @abstractmethod
    def mark(self) -> GpuEvent:
        """An event after everything launched so far."""

    @abstractmethod
    def after(self, stream: StreamPointer | None) -> None:
        """Have what is launched from now on wait for what `stream` has now; None: the current one."""

    @abstractmethod
    def vector(self, values: object, dtype: npt.DTypeLike) -> DeviceTensor:
        """`values` as contiguous numbers in the GPU's memory: a list, or anything with DLPack.

        A DeviceTensor is taken as it is.
        """

    def joined(self, vectors: Sequence[DeviceTensor]) -> DeviceTensor:
        """Vectors of :meth:`vector`, one behind the other; parts of one array in order are not copied."""
        filled = [vector for vector in vectors if math.prod(vector.shape)] or list(vectors[:1])
        dtype, n_items = filled[0].dtype, sum(math.prod(vector.shape) for vector in filled)
        for before, after in itertools.pairwise(filled):
            if before.address + math.prod(before.shape) * dtype.itemsize != after.address:
                return self.concatenated(filled)
        return DeviceTensor(filled[0].address, (n_items,), dtype, vectors)

    @abstractmethod
    def concatenated(self, vectors: Sequence[DeviceTensor]) -> DeviceTensor:
        """A copy of vectors, one behind the other."""

    @abstractmethod
    def tensor(self, out: object) -> DeviceTensor:
        """The caller's memory, shared; :class:`ConfigError` unless it is contiguous and on this GPU.

        A DeviceTensor is taken as it is.
        """

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTensor:
        """New memory for a result; its owner is what the caller gets."""

    def shared(self, buffer: PinnedMemory, offset: int) -> DeviceTensor:
        """Pinned memory from `offset` on, as an output."""
        n_bytes = buffer.array.nbytes - offset
        return DeviceTensor(buffer.address + offset, (n_bytes,), np.dtype(np.uint8), buffer)

    @abstractmethod
    def close(self) -> None:
        """Wait for the stream and release what belongs to it; calling it again does nothing."""


class WrittenMemory(BulkMemory):
    """A GPU's memory, to which everything is copied by :meth:`Gpu.write`."""

    def __init__(self, gpu: Gpu, memory: DeviceMemory) -> None:
        self._gpu, self._memory, self.n_bytes = gpu, memory, memory.n_bytes

    @property
    def host(self) -> ByteArray | None:
        return None

    def part(self, begin: int, length: int) -> Any:
        raise ConfigError("engine", "kvikio", "'native' for this GPU's memory")

    def staging(self, n_bytes: int) -> ByteArray:
        return aligned_buffer(n_bytes)

    def put(self, begin: int, data: ByteArray) -> None:
        self._gpu.write(self._memory.address + begin, data)
