"""Bulk reads through an engine of this package: one long read at a time of each thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np

from bam.errors import ClosedError
from bam.layout import FileRun, Layout
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.numa import Placement, find_placement
from bam.storage.bulk.path import BulkPath, BulkPathKind
from bam.storage.bulk.reader import BulkRange, BulkReader, BulkReport, check_ranges
from bam.storage.bulk.settings import BulkSettings
from bam.storage.bulk.tasks import Task, TaskThreads, Worker, tasks_of
from bam.storage.enclosing_reads import Enclosure, RangeCounters, read_enclosing
from bam.storage.engine import ByteArray, Engine, FileInfo

HOST_PATH = BulkPath(BulkPathKind.POSIX, "the destination is host memory")
_GPU_PATH = BulkPath(BulkPathKind.BOUNCE, "engine 'native' reads into pinned memory and copies to the GPU")
_NOTHING: ByteArray = np.empty(0, np.uint8)


class NativeBulkReader(BulkReader):
    """Reads through an engine, straight into the host's memory where that is aligned as the file is.

    Parameters
    ----------
    engine : Engine
        Closed with this object.
    layout : Layout
        Its file numbers are the engine's.
    settings : BulkSettings
    notes : tuple of str
        For the report.
    inner : Engine, optional
        What `engine` wraps; closed after it.
    """

    def __init__(
        self,
        engine: Engine,
        layout: Layout,
        settings: BulkSettings,
        notes: tuple[str, ...] = (),
        inner: Engine | None = None,
    ) -> None:
        self._engine, self._layout, self._settings, self._notes = engine, layout, settings, notes
        self._inner = inner
        self._closed = False

    def read(self, ranges: Sequence[BulkRange], memory: BulkMemory) -> BulkReport:
        if self._closed:
            raise ClosedError("bulk reader")
        check_ranges(self._layout, ranges, memory)
        settings, names = self._settings, [file.path for file in self._engine.files]
        placement = find_placement(names, memory.gpu) if settings.numa else Placement()
        n_bytes = sum(each.length for each in ranges)
        n_threads = min(settings.threads, -(-n_bytes // settings.bytes_of_task) + 1)
        work = _Work(self._engine, self._layout.files, memory, settings.bytes_of_task, placement)
        begin = time.perf_counter()
        tasks = tasks_of(self._layout, ranges, settings.bytes_of_task)
        TaskThreads(tasks, work.new_worker, n_threads, names).run(settings.timeout_s)
        info = self._engine.info()
        return BulkReport(
            engine=f"native ({info.engine})",
            path=_GPU_PATH if memory.gpu else HOST_PATH,
            direct=info.direct,
            settings=settings,
            placement=placement.note,
            n_bytes=n_bytes,
            reads=work.reads(),
            seconds=time.perf_counter() - begin,
            notes=(*self._notes, *info.notes),
        )

    def close(self) -> None:
        self._closed = True
        self._engine.close()
        if self._inner is not None:
            self._inner.close()


class _Work:
    """What the threads of one bulk read share."""

    def __init__(
        self,
        engine: Engine,
        names: tuple[str, ...],
        memory: BulkMemory,
        task_bytes: int,
        placement: Placement,
    ) -> None:
        self.engine, self.names, self.memory = engine, names, memory
        self.task_bytes, self.placement = task_bytes, placement
        self._counters: list[RangeCounters] = []
        self._lock = threading.Lock()

    def new_worker(self) -> Worker:
        self.placement.pin_this_thread()
        self.memory.enter_thread()
        counters = RangeCounters()
        with self._lock:
            self._counters.append(counters)
        return _ReadingThread(self, counters).do

    def reads(self) -> int:
        return sum(counters.reads for counters in self._counters)


class _ReadingThread:
    """One thread's buffer."""

    def __init__(self, work: _Work, counters: RangeCounters) -> None:
        self._work, self._counters = work, counters
        self._buffer: ByteArray | None = None

    def do(self, task: Task) -> None:
        """Read a task's bytes into the memory."""
        run, begin = task.run, task.begin
        file = self._work.engine.files[run.file]
        straight = self._straight(file, task)
        if len(straight):
            self._read(FileRun(run.file, run.file_offset, len(straight)), straight)
            run = FileRun(run.file, run.file_offset + len(straight), run.length - len(straight))
            begin += len(straight)
        if run.length:
            buffer = self._own_buffer(Enclosure.of(run, file).length)
            lead = self._read(run, buffer).lead
            self._work.memory.put(begin, buffer[lead : lead + run.length])

    def _straight(self, file: FileInfo, task: Task) -> ByteArray:
        """The part of the memory that the engine can read to without a copy; may be empty."""
        host = self._work.memory.host
        if host is None:
            return _NOTHING
        part = host[task.begin : task.begin + task.run.length]
        if task.run.file_offset % file.offset_alignment or part.ctypes.data % file.memory_alignment:
            return _NOTHING
        return part[: len(part) // file.offset_alignment * file.offset_alignment]

    def _read(self, run: FileRun, buffer: ByteArray) -> Enclosure:
        return read_enclosing(self._work.engine, run, buffer, self._counters, name=self._work.names[run.file])

    def _own_buffer(self, n_bytes: int) -> ByteArray:
        if self._buffer is None or len(self._buffer) < n_bytes:
            self._buffer = self._work.memory.staging(max(n_bytes, self._work.task_bytes))
        return self._buffer
