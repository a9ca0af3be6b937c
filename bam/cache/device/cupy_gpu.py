"""A GPU through CuPy (memory, streams, events) and the CUDA driver (kernels)."""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import byref, c_char_p, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bam.cache.device.bulk_memory import GpuMemory
from bam.cache.device.gpu import (
    DeviceMemory,
    DeviceTensor,
    Gpu,
    GpuEvent,
    Grid,
    PinnedMemory,
    StreamPointer,
)
from bam.cache.device.registrations import Registrations
from bam.errors import ConfigError, EngineUnavailable
from bam.native import nvrtc
from bam.storage.bulk.memory import BulkMemory

_PINNED_ALIGNMENT = 4096
# CU_MEMHOSTREGISTER_* of cuda.h
_PORTABLE, _DEVICE_MAPPED, _IO_MEMORY = 1, 2, 4
_MEMORY_TYPE, _HOST_MEMORY = 2, 1  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST
_ALREADY_REGISTERED = 712  # CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
Method = TypeVar("Method", bound=Callable[..., Any])


def _on_device(method: Method) -> Method:
    """Run a method inside :meth:`CupyGpu.current`."""

    @functools.wraps(method)
    def called(self: CupyGpu, *arguments: Any, **named: Any) -> Any:
        if self.inside():
            return method(self, *arguments, **named)
        with self.current():
            return method(self, *arguments, **named)

    return cast(Method, called)


class CupyEvent(GpuEvent):
    """A CUDA event; waiting for it blocks the thread without spinning."""

    def __init__(self, gpu: CupyGpu) -> None:
        self._gpu = gpu
        self._event = gpu.cupy.cuda.Event(block=True, disable_timing=True)
        self._event.record(gpu.stream)

    def wait(self) -> None:
        with self._gpu.current():
            self._event.synchronize()

    def done(self) -> bool:
        return bool(self._event.done)

    def before(self, stream: StreamPointer | None) -> None:
        stream = self._gpu.stream_or_current(stream)
        with self._gpu.current():
            self._gpu.cupy.cuda.runtime.streamWaitEvent(stream, self._event.ptr)


class CupyGpu(Gpu):
    """The GPU with number `device`; by default the one that is current.

    Raises
    ------
    EngineUnavailable
        No CuPy, no NVRTC, or no GPU.
    """

    def __init__(self, device: int | None = None) -> None:
        try:
            import cupy

            self.cupy = cupy
            self.device = cupy.cuda.Device() if device is None else cupy.cuda.Device(device)
            n_processors = int(self.device.attributes["MultiProcessorCount"])
        except Exception as error:
            remedy = "Use device='cpu', or install the extra cuda13 or cuda12 and a driver that sees a GPU"
            raise EngineUnavailable("cuda", f"{type(error).__name__}: {error}", remedy) from error
        self._inside = threading.local()
        self._registered: list[tuple[int, int]] = []
        self._sources: set[tuple[Path, tuple[str, ...]]] = set()
        with self.device:
            self.stream: Any = cupy.cuda.Stream(non_blocking=True)
            cupy.cuda.runtime.free(0)  # makes the context, which the driver's calls need
            self._kernels = _Kernels()
        self.number, self.stream_address = int(self.device.id), int(self.stream.ptr)
        self.add_kernels(nvrtc.KERNEL_FOLDER / "read_path.cu")
        self.list_grid = Grid(4 * n_processors, 256)
        self.grids = {
            "bam_submit_rows": Grid(n_processors, 512),  # a block each: one drains, the others look up
            "bam_drain_flight": Grid(1, 1024),
            "bam_fill_lines": Grid(4 * n_processors, 256),
            "bam_gather_rows": Grid(2 * n_processors, 256),
            "bam_count_rows": Grid(2 * n_processors, 256),
            "bam_note_uses": Grid(4 * n_processors, 256),
            "bam_forget_uses": Grid(4 * n_processors, 256),
        }

    def inside(self) -> bool:
        """Whether this thread is in a block of :meth:`current` already."""
        return getattr(self._inside, "value", False)

    def current(self) -> AbstractContextManager[None]:
        return nullcontext() if self.inside() else self._entered()

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self.device, self.stream:
            self._inside.value = True
            try:
                yield
            finally:
                self._inside.value = False

    @_on_device
    def free_bytes(self) -> int:
        return int(self.cupy.cuda.runtime.memGetInfo()[0])

    @_on_device
    def memory(self, n_bytes: int) -> DeviceMemory:
        # Not of CuPy's pool, which would keep it from others after we have dropped it.
        owner = self.cupy.cuda.MemoryPointer(self._allocate(max(1, n_bytes)), 0)
        owner.memset_async(0, max(1, n_bytes), self.stream)
        return DeviceMemory(owner.ptr, n_bytes, owner)

    def _allocate(self, n_bytes: int) -> Any:
        cuda = self.cupy.cuda
        try:
            return cuda.Memory(n_bytes)
        except cuda.runtime.CUDARuntimeError:
            self.cupy.get_default_memory_pool().free_all_blocks()  # what CuPy only keeps for later
        try:
            return cuda.Memory(n_bytes)
        except cuda.runtime.CUDARuntimeError as error:
            remedy = "Ask for a smaller cache, or free memory of the GPU"
            raise EngineUnavailable("cuda", f"no {n_bytes} bytes of memory: {error}", remedy) from error

    @_on_device
    def pinned(self, n_bytes: int) -> PinnedMemory:
        cuda = self.cupy.cuda  # not its pool, as in memory()
        try:
            memory = cuda.PinnedMemory(n_bytes + _PINNED_ALIGNMENT, cuda.runtime.hostAllocPortable)
        except cuda.runtime.CUDARuntimeError as error:
            remedy = "Ask for a smaller staging or constant buffer"
            raise EngineUnavailable(
                "cuda", f"no {n_bytes} bytes of pinned memory: {error}", remedy
            ) from error
        owner = cuda.PinnedMemoryPointer(memory, 0)
        whole = np.frombuffer(owner, np.uint8, n_bytes + _PINNED_ALIGNMENT)
        skipped = -whole.ctypes.data % _PINNED_ALIGNMENT
        array = whole[skipped : skipped + n_bytes]
        array[:] = 0
        return PinnedMemory(array.ctypes.data, array, owner)

    @_on_device
    def register(self, address: int, n_bytes: int, *, registers: bool = False) -> int:
        if n_bytes == 0:
            return address
        found = _registrations.take(
            address, n_bytes, lambda: self._kernels.register(address, n_bytes, registers)
        )
        self._registered.append((address, n_bytes))
        return found

    @_on_device
    def upload(self, data: npt.NDArray[np.uint8]) -> DeviceMemory:
        owner = self.cupy.asarray(data)
        return DeviceMemory(owner.data.ptr, data.nbytes, owner)

    @_on_device
    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            address, data.ctypes.data, data.nbytes, runtime.memcpyHostToDevice, self.stream.ptr
        )
        self.stream.synchronize()

    @_on_device
    def read(self, address: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        runtime, found = self.cupy.cuda.runtime, np.empty(n_bytes, np.uint8)
        runtime.memcpyAsync(found.ctypes.data, address, n_bytes, runtime.memcpyDeviceToHost, self.stream.ptr)
        self.stream.synchronize()
        return found

    @_on_device
    def download(self, to: PinnedMemory, offset: int, address: int, n_bytes: int) -> None:
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            to.address + offset, address, n_bytes, runtime.memcpyDeviceToHost, self.stream.ptr
        )

    @_on_device
    def zero(self, address: int, n_bytes: int) -> None:
        self.cupy.cuda.runtime.memsetAsync(address, 0, n_bytes, self.stream.ptr)

    @_on_device
    def bulk_memory(self, memory: DeviceMemory) -> BulkMemory:
        self.stream.synchronize()  # it is still being zeroed there
        return GpuMemory(self.cupy.ndarray((memory.n_bytes,), np.uint8, memory.owner))

    @_on_device
    def launch(self, kernel: str, grid: Grid, arguments: Sequence[Any]) -> None:
        self._kernels.launch(kernel, grid, arguments, self.stream.ptr)

    @_on_device
    def add_kernels(self, source: Path, *, include: Sequence[Path] = (), options: Sequence[str] = ()) -> None:
        if (source, tuple(options)) in self._sources:
            return
        self._sources.add((source, tuple(options)))
        arch, salt = f"sm_{self.device.compute_capability}", f"cupy {self.cupy.__version__}"
        cubin = nvrtc.compiled(source.read_text(), source.name, arch, options, include, salt)
        self._kernels.add(cubin)

    def name(self) -> str:
        """What the driver calls the GPU."""
        return str(self.cupy.cuda.runtime.getDeviceProperties(self.device.id)["name"].decode())

    @_on_device
    def seconds(self, work: Callable[[], object]) -> float:
        """Time on the store's stream that `work` takes there, by events."""
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        self.stream.synchronize()
        begin.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(begin, end)) / 1000

    @_on_device
    def mark(self) -> GpuEvent:
        return CupyEvent(self)

    def stream_or_current(self, stream: StreamPointer | None) -> StreamPointer:
        """`stream`, or CuPy's current one, which inside :meth:`current` would be the store's."""
        return int(self.cupy.cuda.get_current_stream().ptr) if stream is None else stream

    def after(self, stream: StreamPointer | None) -> None:
        stream = self.stream_or_current(stream)
        if stream == self.stream_address:
            return
        with self.current():
            event = self.cupy.cuda.Event(disable_timing=True)
            self.cupy.cuda.runtime.eventRecord(event.ptr, stream)
            self.stream.wait_event(event)

    @_on_device
    def vector(self, values: object, dtype: npt.DTypeLike) -> DeviceTensor:
        if isinstance(values, DeviceTensor):
            return values
        if isinstance(values, self.cupy.ndarray) and values.dtype == dtype and values.flags.c_contiguous:
            return DeviceTensor(values.data.ptr, values.shape, values.dtype, (values,))
        array: Any = values if hasattr(values, "__dlpack__") else np.asarray(values)
        if isinstance(array, np.ndarray) or _on_host(array):
            found = self.cupy.asarray(np.asarray(array))
        else:
            found = self.cupy.from_dlpack(array)
        if found.size and found.dtype.kind not in "iu":
            raise ConfigError("ids", f"{type(values).__name__} of {found.dtype}", "integers")
        flat = self.cupy.ascontiguousarray(found.reshape(-1), dtype)
        return DeviceTensor(flat.data.ptr, tuple(found.shape), flat.dtype, (flat, values))

    @_on_device
    def concatenated(self, vectors: Sequence[DeviceTensor]) -> DeviceTensor:
        n_items = sum(math.prod(vector.shape) for vector in vectors)
        whole, runtime = self.cupy.empty(n_items, vectors[0].dtype), self.cupy.cuda.runtime
        position = whole.data.ptr
        for vector in vectors:
            n_bytes = math.prod(vector.shape) * vector.dtype.itemsize
            runtime.memcpyAsync(
                position, vector.address, n_bytes, runtime.memcpyDeviceToDevice, self.stream.ptr
            )
            position += n_bytes
        return DeviceTensor(whole.data.ptr, (n_items,), whole.dtype, (whole, vectors))

    @_on_device
    def tensor(self, out: object) -> DeviceTensor:
        if isinstance(out, DeviceTensor):
            return out
        try:
            array = out if isinstance(out, self.cupy.ndarray) else self.cupy.from_dlpack(out)
        except Exception as error:
            expected = "a CuPy array or a tensor on this GPU that DLPack can share"
            raise ConfigError("out", f"{type(out).__name__} ({error})", expected) from error
        if array.device.id != self.device.id:
            raise ConfigError("out", f"a tensor on GPU {array.device.id}", f"one on GPU {self.device.id}")
        if not array.flags.c_contiguous:
            raise ConfigError("out", f"strides {array.strides}", "rows one after the other (C-contiguous)")
        return DeviceTensor(array.data.ptr, tuple(array.shape), array.dtype, (array, out))

    @_on_device
    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceTensor:
        array = self.cupy.empty(shape, dtype)
        return DeviceTensor(array.data.ptr, shape, array.dtype, array)

    def close(self) -> None:
        with self.current():
            self.stream.synchronize()
            while self._registered:
                address, n_bytes = self._registered.pop()
                _registrations.give_back(
                    address, n_bytes, functools.partial(self._kernels.unregister, address)
                )
            self._kernels.unload()


def _on_host(tensor: Any) -> bool:
    """Whether a DLPack tensor is in the host's memory (kDLCPU)."""
    return bool(tensor.__dlpack_device__()[0] == 1)


_registrations = Registrations()


class _Kernels:
    """Functions of cubins in the current context; the driver takes structures by value."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._modules: list[c_void_p] = []
        self._functions: dict[str, c_void_p] = {}
        self._ours: set[int] = set()  # memory that was registered here

    def add(self, cubin: bytes) -> None:
        """Load a cubin."""
        module = c_void_p()
        self._check(self._driver.cuModuleLoadData(byref(module), c_char_p(cubin)))
        self._modules.append(module)
        self._functions |= self._functions_of(module)

    def _functions_of(self, module: c_void_p) -> dict[str, c_void_p]:
        """All kernels of a module by name; none where the driver cannot list them (before CUDA 12.4)."""
        if not hasattr(self._driver, "cuModuleEnumerateFunctions"):
            return {}
        count = c_uint()
        self._check(self._driver.cuModuleGetFunctionCount(byref(count), module))
        listed = (c_void_p * count.value)()
        self._check(self._driver.cuModuleEnumerateFunctions(listed, count, module))
        found = {}
        for function in listed:
            name = c_char_p()
            self._check(self._driver.cuFuncGetName(byref(name), c_void_p(function)))
            found[(name.value or b"").decode()] = c_void_p(function)
        return found

    def unload(self) -> None:
        """Unload all of them; no kernel may run any more."""
        self._functions.clear()
        while self._modules:
            self._check(self._driver.cuModuleUnload(self._modules.pop()))

    def launch(self, name: str, grid: Grid, arguments: Sequence[Any], stream: int) -> None:
        """Launch on `stream`."""
        if name not in self._functions:
            self._functions[name] = self._find(name)
        pointers = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        blocks, threads = (grid.blocks, 1, 1), (grid.threads, 1, 1)
        self._check(
            self._driver.cuLaunchKernel(
                self._functions[name], *blocks, *threads, 0, c_void_p(stream), pointers, None
            )
        )

    def _find(self, name: str) -> c_void_p:
        found, status = c_void_p(), 0
        for module in reversed(self._modules):
            status = self._driver.cuModuleGetFunction(byref(found), module, name.encode())
            if status == 0:
                break
        self._check(status)
        return found

    def register(self, address: int, n_bytes: int, registers: bool) -> int:
        """Pin host memory for the GPU, or map a device's registers; its address for kernels."""
        flags = _PORTABLE | _DEVICE_MAPPED | (_IO_MEMORY if registers else 0)
        status = self._driver.cuMemHostRegister_v2(c_void_p(address), c_size_t(n_bytes), flags)
        # By its owner: registered like this, or, as by torch's pin_memory(), allocated that way.
        pinned_already = status == _ALREADY_REGISTERED or (
            status != 0 and self._is_pinned(address) and self._is_pinned(address + n_bytes - 1)
        )
        if status and not pinned_already:
            raise ConfigError(
                "in_place",
                f"{n_bytes:,} bytes that CUDA cannot pin (error {status})",
                "writable memory, not a map of a file: copy it (numpy.array, torch.clone) first",
            )
        found = c_void_p()
        status = self._driver.cuMemHostGetDevicePointer_v2(byref(found), c_void_p(address), 0)
        if not pinned_already:
            self._ours.add(address)
        if status:
            self.unregister(address)
        self._check(status)
        return int(found.value or 0)

    def _is_pinned(self, address: int) -> bool:
        kind = c_uint(0)
        status = self._driver.cuPointerGetAttribute(byref(kind), _MEMORY_TYPE, c_void_p(address))
        return bool(status == 0 and kind.value == _HOST_MEMORY)

    def unregister(self, address: int) -> None:
        """Undo :meth:`register`; no kernel may use it any more."""
        if address in self._ours:
            self._ours.discard(address)
            self._check(self._driver.cuMemHostUnregister(c_void_p(address)))

    def _check(self, status: int) -> None:
        if status == 0:
            return
        text = c_char_p()
        self._driver.cuGetErrorString(status, byref(text))
        reason = (text.value or b"unknown error").decode()
        raise EngineUnavailable("cuda", f"the driver says: {reason}", "Check the GPU with nvidia-smi")
