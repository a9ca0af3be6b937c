"""A GPU for tests: the kernels run on the host, each launch to its end (tests/native/emulated_gpu.h)."""

from __future__ import annotations

import ctypes
import functools
import math
import os
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Sequence
from ctypes import c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from bam.cache.device.gpu import DeviceMemory, DeviceTensor, Gpu, GpuEvent, Grid, PinnedMemory
from bam.cache.device.registrations import Registrations
from bam.errors import ConfigError

REPOSITORY = Path(__file__).resolve().parents[4]
READ_PATH = "emulated_kernels.cc"


#: Path of the kernels, where somebody has compiled them already.
KERNELS_VARIABLE = "BAM_TEST_KERNELS"


@functools.cache
def kernels(source: str = READ_PATH, include: tuple[Path, ...] = ()) -> ctypes.CDLL:
    """The kernels of a file in tests/native, compiled by g++; skips the test where there is none."""
    if source == READ_PATH and (made := os.environ.get(KERNELS_VARIABLE)):
        return ctypes.CDLL(made)
    if shutil.which("g++") is None:
        pytest.skip("no g++ to compile the kernels for the host")
    folder = tempfile.mkdtemp(prefix="bam-emulated-")
    library = Path(folder) / "kernels.so"
    compile_kernels(library, source, include)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded


def compile_kernels(target: Path, source: str = READ_PATH, include: tuple[Path, ...] = ()) -> None:
    """Compile the kernels for the host."""
    native = REPOSITORY / "tests" / "native"
    flags = [
        "-std=c++20",
        "-O1",
        "-g",
        "-ffp-contract=off",
        "-U_FORTIFY_SOURCE",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    folders = [REPOSITORY / "bam/native/include", native, *include]
    searched = [part for folder in folders for part in ("-I", str(folder))]
    command = ["g++", *flags, *searched, str(native / source), "-o", str(target)]
    subprocess.run(command, check=True, timeout=300)


#: The fibers of one launch know each other by variables of the whole process.
_one_launch = threading.Lock()
_registrations = Registrations()
_known: set[tuple[int, int]] = set()


def _register(address: int, n_bytes: int) -> int:
    """As CUDA: memory is registered once."""
    for other, length in _known:
        assert address + n_bytes <= other or other + length <= address, "registered already"
    _known.add((address, n_bytes))
    return address


class DoneEvent(GpuEvent):
    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu

    def wait(self) -> None:
        self._gpu.unwaited.clear()

    def done(self) -> bool:
        return True

    def before(self, stream: int | None) -> None: ...


class EmulatedGpu(Gpu):
    """Threads of a launch take turns: in the order of their numbers, or as `turn_seed` draws it."""

    def __init__(self, turn_seed: int = 0) -> None:
        self._libraries = [kernels()]
        self._turn_seed = turn_seed
        self.number, self.stream_address, self.list_grid = 0, 0, Grid(1, 32)
        self.launches: list[str] = []
        self.sizes: list[tuple[str, Grid]] = []
        #: Memory that was uploaded and not waited for: on a GPU other streams may find other bytes there.
        self.unwaited: set[int] = set()
        self.registered: list[tuple[int, int, bool]] = []
        self.closed = 0
        self._allocated: list[weakref.ref[npt.NDArray[np.uint8]]] = []
        self.grids = {
            "bam_submit_rows": Grid(3, 64),
            "bam_drain_flight": Grid(1, 64),
            "bam_fill_lines": Grid(2, 32),
            "bam_gather_rows": Grid(2, 64),
            "bam_count_rows": Grid(2, 64),
            "bam_note_uses": Grid(2, 32),
            "bam_forget_uses": Grid(2, 32),
        }

    def free_bytes(self) -> int:
        return 8 * 2**30

    def memory(self, n_bytes: int) -> DeviceMemory:
        pinned = self.pinned(n_bytes)
        return DeviceMemory(pinned.address, n_bytes, pinned)

    def pinned(self, n_bytes: int) -> PinnedMemory:
        whole = np.zeros(n_bytes + 4096, np.uint8)
        self._allocated.append(weakref.ref(whole))
        skipped = -whole.ctypes.data % 4096
        array = whole[skipped : skipped + n_bytes]
        return PinnedMemory(whole.ctypes.data + skipped, array, whole)

    def register(self, address: int, n_bytes: int, *, registers: bool = False) -> int:
        if n_bytes == 0:
            return address
        _registrations.take(address, n_bytes, lambda: _register(address, n_bytes))
        self.registered.append((address, n_bytes, registers))
        return address

    def upload(self, data: npt.NDArray[np.uint8]) -> DeviceMemory:
        memory = self.memory(data.nbytes)
        ctypes.memmove(memory.address, data.ctypes.data, data.nbytes)
        self.unwaited.add(memory.address)
        return memory

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)
        self.unwaited.clear()

    def read(self, address: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        self.unwaited.clear()
        return np.frombuffer(ctypes.string_at(address, n_bytes), np.uint8)

    def download(self, to: PinnedMemory, offset: int, address: int, n_bytes: int) -> None:
        ctypes.memmove(to.address + offset, address, n_bytes)

    def zero(self, address: int, n_bytes: int) -> None:
        ctypes.memset(address, 0, n_bytes)

    def add_kernels(self, source: Path, *, include: Sequence[Path] = (), options: Sequence[str] = ()) -> None:
        emulation = f"emulated_{source.stem}.cc"
        if not (REPOSITORY / "tests" / "native" / emulation).is_file():
            return  # they are among those that are always there
        library = kernels(emulation, (source.parent,))
        if library not in self._libraries:
            self._libraries.append(library)

    def launch(self, kernel: str, grid: Grid, arguments: Sequence[Any]) -> None:
        self.launches.append(kernel)
        self.sizes.append((kernel, grid))
        pointers = [c_void_p(ctypes.addressof(argument)) for argument in arguments]
        library = next(each for each in self._libraries if hasattr(each, kernel))
        with _one_launch:
            self._libraries[0].bam_draw_turns(c_uint64(self._turn_seed))
            getattr(library, kernel)(c_uint64(grid.blocks), c_uint64(grid.threads), *pointers)

    def mark(self) -> GpuEvent:
        return DoneEvent(self)

    def after(self, stream: int | None) -> None: ...

    def vector(self, values: object, dtype: npt.DTypeLike) -> DeviceTensor:
        if isinstance(values, DeviceTensor):
            return values
        found = np.asarray(values)
        if found.size and found.dtype.kind not in "iu":
            raise ConfigError("ids", found.dtype, "integers")
        flat = np.ascontiguousarray(found.reshape(-1), dtype)
        return DeviceTensor(flat.ctypes.data, found.shape, flat.dtype, flat)

    def concatenated(self, vectors: Sequence[DeviceTensor]) -> DeviceTensor:
        parts = [
            ctypes.string_at(each.address, math.prod(each.shape) * each.dtype.itemsize) for each in vectors
        ]
        whole = np.frombuffer(b"".join(parts), vectors[0].dtype)
        return DeviceTensor(whole.ctypes.data, whole.shape, whole.dtype, whole)

    def tensor(self, out: object) -> DeviceTensor:
        if isinstance(out, DeviceTensor):
            return out
        assert isinstance(out, np.ndarray)
        return DeviceTensor(out.ctypes.data, out.shape, out.dtype, out)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTensor:
        memory = self.memory(math.prod(shape) * dtype.itemsize)
        assert isinstance(memory.owner, PinnedMemory)
        array = memory.owner.array.view(dtype).reshape(shape)
        array.view(np.uint8)[...] = 0xEE
        return DeviceTensor(memory.address, shape, dtype, array)

    def bytes_in_use(self) -> int:
        """Of what was allocated here, pinned or not."""
        found = [each() for each in self._allocated]
        return sum(memory.nbytes for memory in found if memory is not None)

    def close(self) -> None:
        self.closed += 1
        while self.registered:
            memory = self.registered.pop()[:2]
            _registrations.give_back(*memory, functools.partial(_known.discard, memory))


def few_threads(gpu: EmulatedGpu) -> EmulatedGpu:
    """With a warp for each kernel but the one that looks pages up: emulated threads take time."""
    gpu.grids = {
        kernel: grid if kernel == "bam_submit_rows" else Grid(1, 32) for kernel, grid in gpu.grids.items()
    }
    return gpu
