"""Launches of the sampler's kernels on a GPU; the only module here that needs CuPy."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bam.errors import ConfigError

NATIVE_FOLDER = Path(__file__).parent.parent / "native"

#: Kernels that are the work of one thread block; all others divide theirs among any number of blocks.
ONE_TEAM = frozenset({"start", "plan_edges", "plan_nodes"})
KERNELS = ONE_TEAM | {"prepare", "insert_seeds", "count", "place", "resolve", "flag", "number", "pack"}

_THREADS = 256
_TEAM_THREADS = 1024
_BLOCKS_PER_MULTIPROCESSOR = 8


_PORTABLE, _MAPPED = 1, 2  # flags of cudaHostRegister: for every GPU, and at the same address there

# Parts of torch.cuda have no annotations.
_cuda: Any = torch.cuda


Launch = tuple[str, tuple[ctypes.Structure | int, ...]]
"""A kernel and its arguments."""


class PinnedArray(Protocol):
    """Host memory that kernels read and write in place, at `address`; it lives as long as this object."""

    array: npt.NDArray[Any]
    address: int


class Kernels(Protocol):
    """Where the sampler's steps run.

    Attributes
    ----------
    device : torch.device
        Of the tensors they work on.
    """

    device: torch.device

    def free_bytes(self) -> int:
        """Memory of the device that is free."""

    def pinned(self, shape: int, dtype: npt.DTypeLike) -> PinnedArray:
        """An array in host memory."""

    def current(self) -> AbstractContextManager[object]:
        """Within it, all calls mean the stream that is torch's current one at its start."""

    def launch(self, name: str, *arguments: ctypes.Structure | int) -> None:
        """Queue a kernel. Structures are passed by value."""

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        """A function that queues these kernels again, all at once."""

    def record(self) -> object:
        """A mark for `follow`, after what is queued now."""

    def follow(self, mark: object) -> None:
        """What is queued from now on runs after the mark."""

    def wait(self) -> None:
        """Return when all that is queued has run."""


class CudaPinnedArray:
    """Page-locked host memory (`cudaHostRegister`), of exactly the size asked for."""

    def __init__(self, shape: int, dtype: npt.DTypeLike) -> None:
        n_bytes = max(1, shape * np.dtype(dtype).itemsize)
        # A mapping of its own, because pages are locked as a whole.
        self.array = np.frombuffer(mmap.mmap(-1, n_bytes), dtype, shape)
        self.address = self.array.ctypes.data
        status = _cuda.cudart().cudaHostRegister(self.address, n_bytes, _PORTABLE | _MAPPED)
        self._is_registered = int(status) == 0
        if not self._is_registered:
            raise MemoryError(f"{n_bytes:,} bytes of host memory cannot be pinned ({status})")

    def __del__(self) -> None:
        if getattr(self, "_is_registered", False):
            _cuda.cudart().cudaHostUnregister(self.address)


class CudaKernels:
    """`Kernels` of one GPU.

    Parameters
    ----------
    device : torch.device or str

    Raises
    ------
    ConfigError
        There is no such GPU.
    bam.errors.EngineUnavailable
        CuPy, NVRTC or its headers are missing.
    """

    def __init__(self, device: torch.device | str = "cuda") -> None:
        chosen = torch.device(device)
        if chosen.type != "cuda" or not torch.cuda.is_available():
            raise ConfigError("device", str(device), "a GPU that torch can use ('cuda' or 'cuda:0')")
        self.device = torch.device(
            "cuda", torch.cuda.current_device() if chosen.index is None else chosen.index
        )
        from bam.native import nvrtc

        with torch.cuda.device(self.device):
            _cuda.init()
            import cupy

            with cupy.cuda.Device(self.device.index):
                module = nvrtc.load(NATIVE_FOLDER / "sampler.cu", include=[NATIVE_FOLDER])
                self._functions = {name: module.get_function(name) for name in sorted(KERNELS)}
        self._cupy_cuda: Any = cupy.cuda
        self._streams: dict[int, Any] = {}
        multiprocessors = torch.cuda.get_device_properties(self.device).multi_processor_count
        self._grid = (_BLOCKS_PER_MULTIPROCESSOR * multiprocessors,)

    def free_bytes(self) -> int:
        """Memory of the GPU that is free, as far as the driver knows."""
        return torch.cuda.mem_get_info(self.device)[0]

    def pinned(self, shape: int, dtype: npt.DTypeLike) -> CudaPinnedArray:
        """Page-locked."""
        return CudaPinnedArray(shape, dtype)

    def current(self) -> AbstractContextManager[object]:
        """torch's current stream of the device, for CuPy too."""
        stack = ExitStack()
        stack.enter_context(torch.cuda.device(self.device))
        address = torch.cuda.current_stream(self.device).cuda_stream
        if address not in self._streams:
            self._streams[address] = self._cupy_cuda.ExternalStream(address, self.device.index)
        stack.enter_context(self._streams[address])
        stack.enter_context(_cuda.nvtx.range("gids sample"))
        return stack

    def launch(self, name: str, *arguments: ctypes.Structure | int) -> None:
        """Queue a kernel on the current stream."""
        is_team = name in ONE_TEAM
        # CuPy passes an array of one element by value.
        values = tuple(
            np.int64(each)
            if isinstance(each, int)
            else np.frombuffer(memoryview(each), _bytes_dtype(type(each)))
            for each in arguments
        )
        grid, threads = ((1,), _TEAM_THREADS) if is_team else (self._grid, _THREADS)
        self._functions[name](grid, (threads,), values)

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        """A CUDA graph: one call instead of one for each kernel, which takes the host longer than the GPU."""
        stream = self._cupy_cuda.Stream(non_blocking=True)  # the default stream cannot be recorded
        with stream:
            stream.begin_capture()
            for name, arguments in launches:
                self.launch(name, *arguments)
            graph = stream.end_capture()

        def replay() -> None:
            graph.launch()

        return replay

    def record(self) -> object:
        """An event on the current stream."""
        return torch.cuda.current_stream(self.device).record_event()

    def follow(self, mark: object) -> None:
        """The current stream waits for the event; the host does not."""
        assert isinstance(mark, torch.cuda.Event)
        torch.cuda.current_stream(self.device).wait_event(mark)

    def wait(self) -> None:
        """Wait for the current stream, and for no other."""
        torch.cuda.current_stream(self.device).synchronize()


@cache
def _bytes_dtype(struct: type[ctypes.Structure]) -> np.dtype[np.void]:
    return np.dtype((np.void, ctypes.sizeof(struct)))
