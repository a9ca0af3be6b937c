"""A store on a GPU: its memory, the controller's threads that answer its queues, and its gathers."""

from __future__ import annotations

import ctypes
import errno as errno_codes
import weakref
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bam.cache.device.drive import DriveServer, make_drive_memory
from bam.cache.device.gpu import DeviceMemory, Gpu, PinnedMemory
from bam.cache.device.memory import CacheMemory, StoreMemory
from bam.cache.device.reads import Failure, Reads, RowPart, RowRequest, RunningGather
from bam.cache.device.settings import GpuSettings
from bam.cache.device.structs import CArrayView, CDeviceStore
from bam.cache.settings import CacheSettings
from bam.config import parse_bytes
from bam.errors import (
    ClosedError,
    FileChangedError,
    RowOutOfRange,
    StorageError,
    TruncatedFileError,
    WaitTimeout,
)
from bam.layout import Layout
from bam.storage.native import NativeEngine
from bam.storage.nvme.drive_run import DriveRun
from bam.storage.queue_server import ControllerSettings, ControllerStats, QueueServer

_ERRORS = {errno_codes.ENODATA: TruncatedFileError, errno_codes.ESTALE: FileChangedError}


@dataclass(frozen=True)
class DeviceStats:
    """Counters since the store was opened, of gathers that were waited for or found to be done.

    Attributes
    ----------
    gathers, rows : int
    constant_rows : int
        Of `rows`: from the constant buffer.
    pages, hits, joins, misses, bypasses : int
        Look-ups: one for each page of each row; `bypasses` of the misses were not cached.
    reads, bytes_read : int
        Of the engine, retries included.
    failures : int
        Parts of gathers in which a read failed.
    """

    gathers: int
    rows: int
    constant_rows: int
    pages: int
    hits: int
    joins: int
    misses: int
    bypasses: int
    reads: int
    bytes_read: int
    failures: int

    @property
    def page_hit_rate(self) -> float:
        """Share of look-ups for which nothing had to be read; 0 without look-ups."""
        return (self.hits + self.joins) / self.pages if self.pages else 0.0


class DeviceStore:
    """Pages of one layout on a GPU. Thread-safe.

    Parameters
    ----------
    gpu : Gpu
        Owned by the store from now on.
    engine : NativeEngine
        Owned by somebody else, who closes it after the store.
    layout : Layout
    cache : CacheSettings or None
        None: every page is read for its request alone.
    page_bytes : int
    settings : GpuSettings
    timeout_s : float
        Reads that make no progress for so long are given up.
    run : DriveRun, optional
        All of the layout's bytes on an NVMe drive: kernels read it themselves, without the engine.
    close_timeout_s : float
        How long closing waits for reads under way.

    Raises
    ------
    ConfigError, EngineUnavailable
    """

    def __init__(
        self,
        gpu: Gpu,
        engine: NativeEngine,
        layout: Layout,
        cache: CacheSettings | None,
        page_bytes: int,
        settings: GpuSettings,
        timeout_s: float,
        run: DriveRun | None = None,
        close_timeout_s: float = 10.0,
    ) -> None:
        self.gpu, self.layout, self.timeout_s, self.page_bytes = gpu, layout, timeout_s, page_bytes
        self._paths = tuple(file.path for file in engine.files)
        self._timed_out = False
        self.merge_bytes = parse_bytes(settings.merge_bytes)  # longest read of neighbouring pages
        self._memory: StoreMemory | None = None
        self._server: QueueServer | DriveServer
        with ExitStack() as opened:
            opened.callback(gpu.close)
            lines = None if cache is None else CacheMemory.create(gpu, cache)
            on_drive = None
            if run is not None:
                on_drive = make_drive_memory(gpu, run, page_bytes, settings)
                self._server = DriveServer(run, on_drive, page_bytes)
                opened.callback(self._server.close)
            memory = self._memory = StoreMemory.create(
                gpu, page_bytes, layout.logical_bytes, lines, settings, timeout_s, on_drive
            )
            if run is None:
                controller = ControllerSettings(
                    settings.host_threads,
                    settings.read_depth,
                    max(512, page_bytes),
                    settings.cores,
                    close_timeout_s,
                    parse_bytes(settings.merge_bytes),
                    parse_bytes(settings.bridge_bytes),
                )
                self._server = QueueServer(
                    engine, layout, memory.queues.pairs, controller, memory.staging.array
                )
                opened.callback(self._server.close)
            self._reads = Reads(gpu, memory)
            opened.callback(self._reads.close)
            # Dropped without close(): the controller's threads must end before the memory they use goes.
            self._finalizer = weakref.finalize(self, opened.pop_all().close)

    @property
    def memory(self) -> StoreMemory:
        """What it has on the GPU and in pinned memory.

        Raises
        ------
        ClosedError
        """
        if self._memory is None:
            raise ClosedError("device array")
        return self._memory

    @property
    def cache(self) -> CacheMemory | None:
        """Its lines and their state."""
        return self.memory.cache

    @property
    def structure(self) -> CDeviceStore:
        """What kernels are given."""
        return self.memory.store

    def begin(self, request: RowRequest) -> RunningGather:
        """Start a gather on the store's stream; see :class:`Reads`.

        Raises
        ------
        WaitTimeout
            Reads that timed out before are still outstanding.
        """
        if self._timed_out:
            if self._reads.stuck():
                raise self._timeout()
            self._timed_out = False
        return self._reads.begin(request)

    def finish(self, gather: RunningGather) -> None:
        """Launch all of it, without waiting."""
        self._reads.finish(gather)

    def before(self, gather: RunningGather, stream: int) -> None:
        """Have `stream` wait until the gather's output is written; launches what is left of it."""
        self._reads.finish(gather).before(stream)

    def wait(self, gather: RunningGather) -> None:
        """Wait until the output is written.

        Raises
        ------
        RowOutOfRange, StorageError, WaitTimeout
            Of the first row whose bytes are not there; the others are.
        """
        failure = self._reads.wait(gather)
        if failure is not None:
            raise self.error(failure, gather.request)

    def note_uses(self, request: RowRequest, next_use: int) -> None:
        """Pages of these rows will be used at `next_use`, if they are cached and it is sooner than known."""
        self._reads.note_uses(request, next_use)

    def forget_uses(self, horizon: int, instead: int) -> None:
        """Uses that were foreseen before `horizon` become `instead`."""
        self._reads.forget_uses(horizon, instead)

    def constant_buffer(self, part: RowPart, row_bytes: int, n_rows: int) -> PinnedMemory:
        """The first rows of an array in pinned memory."""
        buffer = self.gpu.pinned(max(1, n_rows * row_bytes))
        per_gather = max(1, (64 << 20) // row_bytes)
        for first in range(0, n_rows, per_gather):
            ids = self.gpu.vector(range(first, min(n_rows, first + per_gather)), "int64")
            out = self.gpu.shared(buffer, first * row_bytes)
            whole = RowPart(0, part.n_rows, part.first_byte, out)
            self.wait(self.begin(RowRequest(ids, row_bytes, (whole,))))
        return buffer

    def view(self, first_byte: int, n_items: int) -> DeviceMemory:
        """A `bam::ArrayView` in the GPU's memory."""
        view = CArrayView(self.memory.store, first_byte, n_items)
        memory = self.gpu.memory(ctypes.sizeof(view))
        # Waits: kernels of other streams may read it at once.
        self.gpu.write(memory.address, np.frombuffer(bytes(view), np.uint8))
        return memory

    def before_kernel(self, stream: int | None = None) -> None:
        """Launch what is left of all gathers, and have `stream` (None: the current one) wait for them."""
        self._reads.finish_all().before(stream)

    def check_views(self) -> None:
        """Raise what a read of a kernel failed with since the last call, if any did; waits for nothing else.

        Raises
        ------
        StorageError, WaitTimeout
        """
        address = self.memory.store.failure
        result, page_id = (int(word) for word in self.gpu.read(address, 16).view(np.uint64))
        if result == 0:
            return
        self.gpu.write(address, np.zeros(2, np.uint64))
        errno, number = result & 0xFFFFFFFF, result >> 32
        if errno == errno_codes.ETIMEDOUT:
            raise self._timeout()
        raise self.error(Failure(errno, number, page_id, 0))

    def stats(self) -> DeviceStats:
        """Counters now."""
        counts, server = self._reads.counts, self._server.stats()
        misses = counts.claims + counts.bypasses
        return DeviceStats(
            gathers=counts.gathers,
            rows=counts.rows,
            constant_rows=counts.constant_rows,
            pages=counts.hits + counts.joins + misses,
            hits=counts.hits,
            joins=counts.joins,
            misses=misses,
            bypasses=counts.bypasses,
            reads=server.reads,
            bytes_read=server.bytes_read,
            failures=counts.failures,
        )

    def controller_stats(self) -> ControllerStats:
        """Counters of the controller's threads."""
        return self._server.stats()

    def stop_controller(self) -> None:
        """Stop answering: commands in the queues end as aborted, later ones not at all."""
        self._server.stop()

    def close(self) -> None:
        """Finish gathers, stop the controller, release everything; calling it again does nothing."""
        try:
            self._finalizer()
        finally:
            self._memory = None  # now, not when the last gather or array is dropped

    def error(self, failure: Failure, request: RowRequest | None = None) -> Exception:
        """The exception for a failure that kernels found."""
        if failure.errno == errno_codes.ERANGE and request is not None:
            address = request.ids.address + 8 * failure.position
            row_id = int(self.gpu.read(address, 8).view("int64")[0])
            part = [part for part in request.parts if part.first_row <= failure.position][-1]
            return RowOutOfRange(row_id, part.n_rows, failure.position - part.first_row)
        if failure.errno == errno_codes.ETIMEDOUT:
            self._timed_out = True
            return self._timeout()
        record = None
        if isinstance(self._server, DriveServer):
            if said := self._server.error(failure.errno, failure.page_id):
                return said
        elif failure.error_number:
            record = self._server.error(failure.error_number)
        if record is not None:
            where = (self._paths[record.file], record.file_offset, record.n_blocks * 512)
        else:
            run = self.layout.locate(failure.page_id * self.page_bytes, self.page_bytes)
            where = (self._paths[run.file], run.file_offset, run.length)
        kind = _ERRORS.get(failure.errno, StorageError)
        return kind(*where, failure.errno, failure.page_id, note="the array stays usable")

    def _timeout(self) -> WaitTimeout:
        return WaitTimeout(
            "reads that a GPU asked for",
            self.timeout_s,
            "Check the device the files are on; the array is usable again once they have come back",
        )
