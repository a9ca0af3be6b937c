"""Virtual arrays on a GPU: it looks rows up, asks for the pages it misses, and gathers them in its memory."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from bam.array.description import ArrayDescription
from bam.cache.device.gpu import DeviceMemory, DeviceTensor
from bam.cache.device.reads import ConstantRows, RowPart, RowRequest, RunningGather
from bam.cache.device.settings import GpuSettings
from bam.cache.device.store import DeviceStats, DeviceStore
from bam.config import StoreConfig
from bam.errors import ClosedError, ConfigError
from bam.storage.engine import Engine, EngineInfo
from bam.storage.native import NativeEngine


@dataclass(frozen=True)
class DeviceArrayInfo:
    """Which path really runs under an array on a GPU.

    Attributes
    ----------
    policy : str
    page_bytes, cache_lines : int
    cache_state_bytes : int
        The GPU's memory beside the lines.
    staging_bytes : int
        Pinned host memory.
    settings : GpuSettings
    engine : EngineInfo
    """

    policy: str
    page_bytes: int
    cache_lines: int
    cache_state_bytes: int
    staging_bytes: int
    settings: GpuSettings
    engine: EngineInfo


class DeviceGather:
    """Rows on their way, from :meth:`DeviceArray.begin`. Keeps ids and output alive."""

    def __init__(self, store: DeviceStore, running: RunningGather, out: Any) -> None:
        self._store, self._running, self._out = store, running, out

    def launch(self) -> None:
        """Put all that is left on the array's stream; never waits. Gathers begun later come after it.

        An array with `lone_pages` does that in :meth:`DeviceArray.begin`.
        """
        self._store.finish(self._running)

    def before(self, stream: int) -> Any:
        """Have `stream` (a CUDA stream's address) wait for the rows; returns the output.

        Errors show in :meth:`wait` alone, so call that too before the rows are trusted.
        """
        self._store.before(self._running, stream)
        return self._out

    def wait(self) -> Any:
        """Wait until the rows are in the output, and return it.

        Raises
        ------
        RowOutOfRange, StorageError, WaitTimeout
        """
        self._store.wait(self._running)
        return self._out


class DeviceView:
    """An array as CUDA kernels see it: items by index, read when they are asked for (`bam/array.cuh`).

    Pass :attr:`address` for a parameter ``const bam::ArrayView*``; compile with
    :func:`bam.native.nvrtc.user_options`. The array must stay open while kernels run. Where rows of the array
    are gathered as well, call :meth:`before_kernel` before each launch.
    """

    def __init__(self, store: DeviceStore, memory: DeviceMemory) -> None:
        self._store, self._memory = store, memory

    @property
    def address(self) -> int:
        """Of the `bam::ArrayView` in the GPU's memory; valid as long as this object."""
        return self._memory.address

    def before_kernel(self, stream: int | None = None) -> None:
        """Have a stream wait for all gathers begun so far.

        A kernel's thread that wants a page which a gather is reading waits until the gather has filled the
        line. If the kernel keeps the whole GPU busy meanwhile, the gather's own kernels cannot start, and the
        thread waits until it times out. So order the kernel behind them; and begin no gather while a kernel
        runs that leaves no room for others.

        Parameters
        ----------
        stream : int, optional
            The kernel's stream, by its address; default: CuPy's current one.
        """
        self._store.before_kernel(stream)

    def check(self) -> None:
        """Raise what a kernel's read failed with since the last call; after the kernel has been waited for.

        Raises
        ------
        StorageError, WaitTimeout
        """
        self._store.check_views()


def check_for_gpu(description: ArrayDescription, engine: Engine) -> NativeEngine:
    """The engine, if a GPU can be served from it.

    Raises
    ------
    ConfigError
        Wrappers in Python, another byte order, or rows that are too long or empty.
    """
    if not isinstance(engine, NativeEngine):
        raise ConfigError("engine", engine.info().engine, "an engine in C++, without wrappers in Python")
    check_rows(description)
    return engine


def check_rows(description: ArrayDescription) -> None:
    """Raise :class:`ConfigError` for another byte order, or rows that are too long or empty."""
    if description.stored_dtype != description.dtype:
        raise ConfigError("dtype", description.stored_dtype, "numbers in this machine's byte order")
    if not 0 < description.row_bytes < 2**31:
        raise ConfigError("shape", description.shape, "rows of 1 byte to 2 GiB")


class DeviceArray:
    """Rows of an array on a GPU. Made by ``bam.open_array(..., device="cuda")``; the caller closes it.

    Safe to use from several threads. All work is on a stream of the array's own, ordered by events with the
    streams of the caller.
    """

    def __init__(
        self,
        description: ArrayDescription,
        config: StoreConfig,
        settings: GpuSettings,
        store: DeviceStore,
        engine: NativeEngine,
        closing: ExitStack,
    ) -> None:
        self._description, self._config, self._settings = description, config, settings
        self._store, self._engine, self._closing = store, engine, closing
        self._closed = False
        self._info = self._describe()
        self._n_constant = min(settings.constant_rows, len(self))
        self._constant = None
        if self._n_constant:
            part = self._part(DeviceTensor(0, (), self.dtype, None))
            self._constant = store.constant_buffer(part, self.row_bytes, self._n_constant)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        return self._description.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the rows."""
        return self._description.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self._description.row_bytes

    @property
    def store(self) -> DeviceStore:
        """The pages below: what `bam/array.cuh` and loaders of several arrays use."""
        return self._store

    def __len__(self) -> int:
        return self.shape[0]

    def gather(
        self, ids: object, out: Any = None, *, next_use: object = None, stream: int | None = None
    ) -> Any:
        """Rows by id, in the GPU's memory: :meth:`begin` and :meth:`DeviceGather.wait`.

        Only this gather is waited for, by an event; other streams and threads go on.
        """
        return self.begin(ids, out, next_use=next_use, stream=stream).wait()

    def begin(
        self, ids: object, out: Any = None, *, next_use: object = None, stream: int | None = None
    ) -> DeviceGather:
        """Start to gather rows and return at once.

        Parameters
        ----------
        ids : integers of any shape
            A CuPy array, a torch tensor, a numpy array or a list. Negative ones count from the end. They are
            checked on the GPU.
        out : CuPy array or tensor on the GPU, optional
            Shape (*ids.shape, *row_shape) and this array's dtype, or the same bytes as uint8; C-contiguous.
            After an error its contents are undefined. One made here is memory of CuPy's pool for the array's
            stream: once it is dropped a later gather may be written there, after what is on that gather's
            `stream`. So hold it until work on any other stream has read it.
        next_use : unsigned integers, optional
            One for each id; as in :meth:`VirtualArray.gather`.
        stream : int, optional
            CUDA stream on which `ids` and `out` are made, by its address, such as
            ``torch.cuda.current_stream().cuda_stream``; default: CuPy's current one.

        Raises
        ------
        ConfigError
            An `out` that does not fit.
        WaitTimeout
            Reads that timed out before are still outstanding.
        ClosedError
        """
        if self._closed:
            raise ClosedError("device array")
        gpu = self._store.gpu
        gpu.after(stream)
        with gpu.current():
            row_ids = gpu.vector(ids, np.dtype(np.int64))
            n_ids = math.prod(row_ids.shape)
            shape = (*row_ids.shape, *self.shape[1:])
            output = gpu.empty(shape, self.dtype) if out is None else self._checked(gpu.tensor(out), shape)
            uses = None if next_use is None else gpu.vector(next_use, np.dtype(np.uint64))
            if uses is not None and math.prod(uses.shape) != n_ids:
                raise ConfigError("next_use", uses.shape, f"{n_ids} numbers, one for each id")
            flat = DeviceTensor(row_ids.address, (n_ids,), row_ids.dtype, row_ids.owner)
            running = self._store.begin(RowRequest(flat, self.row_bytes, (self._part(output),), uses))
        return DeviceGather(self._store, running, output.owner if out is None else out)

    def view(self) -> DeviceView:
        """The array for kernels of your own; see :class:`DeviceView`.

        Raises
        ------
        ConfigError
            The array was opened without `lone_pages`, or its items can straddle pages.
        ClosedError
        """
        if self._closed:
            raise ClosedError("device array")
        if not self._settings.lone_pages:
            raise ConfigError("lone_pages", 0, "at least 1, for kernels that read by themselves")
        size = self.dtype.itemsize
        if size > 16 or size & (size - 1):
            raise ConfigError("dtype", self.dtype, "items of 1, 2, 4, 8 or 16 bytes")
        return DeviceView(self._store, self._store.view(0, math.prod(self.shape)))

    def stats(self) -> DeviceStats:
        """Counters of gathers that were waited for."""
        return self._store.stats()

    def info(self) -> DeviceArrayInfo:
        """Which path really runs."""
        return self._info

    def _describe(self) -> DeviceArrayInfo:
        cache = self._store.memory.cache
        assert cache is not None
        return DeviceArrayInfo(
            policy=self._config.policy.value,
            page_bytes=self._config.page_bytes,
            cache_lines=cache.n_pages,
            cache_state_bytes=cache.state_bytes,
            staging_bytes=self._store.memory.staging.array.nbytes,
            settings=self._settings,
            engine=self._engine.info(),
        )

    def close(self) -> None:
        """Finish what was begun and release everything; calling it again does nothing."""
        self._closed = True
        self._constant = None
        self._closing.close()

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bam.DeviceArray {self.shape} {self.dtype} in {self._description.layout.files[0]}>"

    def _part(self, output: DeviceTensor) -> RowPart:
        if self._constant is None:
            return RowPart(0, len(self), 0, output)
        return RowPart(
            0, len(self), 0, output, constant=ConstantRows(self._constant.address, self._n_constant)
        )

    def _checked(self, output: DeviceTensor, shape: tuple[int, ...]) -> DeviceTensor:
        n_bytes = math.prod(shape) * self.dtype.itemsize
        same = output.shape == shape and output.dtype == self.dtype
        raw = output.dtype == np.uint8 and math.prod(output.shape) == n_bytes
        if not same and not raw:
            expected = f"{self.dtype} of shape {shape}, or uint8 of {n_bytes} bytes"
            raise ConfigError("out", f"{output.dtype} of shape {output.shape}", expected)
        return output
