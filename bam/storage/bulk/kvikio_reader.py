"""Bulk reads through kvikio: its own threads, and GPUDirect Storage where the machine has it."""

from __future__ import annotations

import errno as errno_codes
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bam.errors import ClosedError, StorageError
from bam.layout import FileRun, Layout
from bam.storage.bulk.kvikio_library import KvikioLibrary
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.native import HOST_PATH
from bam.storage.bulk.numa import Placement, find_placement
from bam.storage.bulk.path import BulkPathKind, path_of_cufile
from bam.storage.bulk.reader import BulkRange, BulkReader, BulkReport, check_ranges
from bam.storage.bulk.settings import BulkSettings
from bam.storage.bulk.tasks import Task, TaskThreads, Worker, tasks_of
from bam.storage.enclosing_reads import AGAIN_WAIT_S, MAX_STALLS, run_failure
from bam.storage.file import FileEngine

#: One call of kvikio has as many tasks for each of its threads, so that they are seldom idle at its end.
_TASKS_PER_THREAD = 16
_LEAST_CALL_BYTES, _MOST_CALL_BYTES = 64 * 2**20, 2**30
_BY_TEXT = {os.strerror(code): code for code in errno_codes.errorcode}


@dataclass(frozen=True)
class _Identity:
    """Which file it is."""

    device: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Identity:
        return cls(status.st_dev, status.st_ino)


class KvikioBulkReader(BulkReader):
    """Reads files with kvikio.

    Its settings (threads, task size, direct reads) are the process's: they hold while a read is under way,
    come back after it, and reads of several readers take turns.

    Parameters
    ----------
    paths : sequence of str
        The layout's files, by number.
    layout : Layout
    settings : BulkSettings
    library : KvikioLibrary, optional
        By default the one that is installed.

    Raises
    ------
    EngineUnavailable
        kvikio cannot work here.
    SourceError
        A file cannot be read.
    """

    def __init__(
        self,
        paths: Sequence[str],
        layout: Layout,
        settings: BulkSettings,
        library: KvikioLibrary | None = None,
    ) -> None:
        self._library = KvikioLibrary() if library is None else library
        self._layout, self._settings = layout, settings
        # Knows whether the files are still what they were, and whether they can be read directly.
        self._watch = FileEngine(paths, direct=settings.direct)
        self._identities = [_Identity.of(os.stat(path)) for path in paths]
        self._closed = False

    def read(self, ranges: Sequence[BulkRange], memory: BulkMemory) -> BulkReport:
        if self._closed:
            raise ClosedError("bulk reader")
        check_ranges(self._layout, ranges, memory)
        settings, names = self._settings, [file.path for file in self._watch.files]
        placement = find_placement(names, memory.gpu) if settings.numa else Placement()
        call_bytes = settings.bytes_of_task * settings.threads * _TASKS_PER_THREAD
        call_bytes = min(max(call_bytes, _LEAST_CALL_BYTES), _MOST_CALL_BYTES)
        call_bytes = max(call_bytes // settings.bytes_of_task, 1) * settings.bytes_of_task
        compat, begin = self._library.compat_mode(), time.perf_counter()
        calls = _Calls(self._watch, self._layout, self._identities, memory, settings.bytes_of_task)
        tasks = TaskThreads(tasks_of(self._layout, ranges, call_bytes), calls.new_worker, 1, names)
        try:
            with self._library.configured(settings, to_gpu=bool(memory.gpu), pin=placement.pin_this_thread):
                calls.open(self._library)
                tasks.run(settings.timeout_s)
        except StorageError:  # and after no other error: a call that was left behind may read from the files
            calls.close()
            raise
        calls.close()
        info, path = self._watch.info(), HOST_PATH
        if memory.gpu:
            path = path_of_cufile(compat=compat, direct=_takes_direct(names), gpu=memory.gpu)
        return BulkReport(
            engine="kvikio",
            path=path,
            direct=info.direct or path.kind in (BulkPathKind.GDS, BulkPathKind.P2P),
            settings=settings,
            placement=placement.note,
            n_bytes=sum(each.length for each in ranges),
            reads=calls.n_calls,
            seconds=time.perf_counter() - begin,
            notes=info.notes,
        )

    def close(self) -> None:
        self._closed = True
        self._watch.close()


class _Calls:
    """The calls of one bulk read."""

    def __init__(
        self,
        watch: FileEngine,
        layout: Layout,
        identities: Sequence[_Identity],
        memory: BulkMemory,
        task_bytes: int,
    ) -> None:
        self._watch, self._names, self._identities = watch, layout.files, identities
        self._memory, self._task_bytes = memory, task_bytes
        self._files: list[Any] = []
        self._closing = ExitStack()
        self.n_calls = 0

    def open(self, library: KvikioLibrary) -> None:
        """Open the files with kvikio, which must be those that are watched.

        Raises
        ------
        StorageError, FileChangedError
        """
        for number, name in enumerate(self._names):
            path = self._watch.files[number].path
            whole = FileRun(number, 0, self._watch.files[number].bytes)
            try:
                file = library.open(path)
            except Exception as error:  # RuntimeError, or what else the library thinks of
                raise run_failure(name, whole, errno_of(error), f"kvikio says: {error}") from error
            self._closing.callback(file.close)
            self._files.append(file)
            if _Identity.of(os.fstat(file.fileno())) != self._identities[number]:
                raise run_failure(name, whole, errno_codes.ESTALE, "")

    def close(self) -> None:
        """Close kvikio's files, which no thread of its reads from any more."""
        self._closing.close()

    def new_worker(self) -> Worker:
        self._memory.enter_thread()
        return self._do

    def _do(self, task: Task) -> None:
        run, done, stalls = task.run, 0, 0
        while done < run.length:
            rest = FileRun(run.file, run.file_offset + done, run.length - done)
            try:
                got = self._call(rest, task.begin + done)
            except Exception as error:
                code = errno_of(error)
                if code not in (errno_codes.EINTR, errno_codes.EAGAIN) or stalls >= MAX_STALLS:
                    raise self._failure(rest, code, f"kvikio says: {error}") from error
                got = 0
                time.sleep(AGAIN_WAIT_S)
            if not 0 <= got <= rest.length:
                raise self._failure(rest, errno_codes.EIO, f"kvikio says {got} bytes were read")
            stalls = 0 if got else stalls + 1
            if stalls and run.file_offset + run.length > self._watch.bytes_now(run.file):
                raise self._failure(rest, errno_codes.ENODATA, "")
            if stalls > MAX_STALLS:
                raise self._failure(rest, errno_codes.EIO, "kvikio reads nothing; check the disk")
            done += got
        # Every byte arrived before this look.
        if changed := self._watch.check_file(run.file, run.file_offset + run.length):
            raise self._failure(run, changed, "check the disk")

    def _call(self, run: FileRun, begin: int) -> int:
        self.n_calls += 1
        part = self._memory.part(begin, run.length)
        future = self._files[run.file].pread(part, run.length, run.file_offset, self._task_bytes)
        return int(future.get())

    def _failure(self, run: FileRun, code: int, note: str) -> StorageError:
        if code == errno_codes.EIO and run.file_offset + run.length > self._watch.bytes_now(run.file):
            code = errno_codes.ENODATA  # it says so in words of its own
        return run_failure(self._names[run.file], run, code, note)


def errno_of(error: Exception) -> int:
    """What the system said, which kvikio passes on as an exception's text; EIO where that is not known."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    for said in reversed(re.split(r":\s*|\n", str(error))):
        if said.strip() in _BY_TEXT:
            return _BY_TEXT[said.strip()]
    return errno_codes.EIO


def _takes_direct(paths: Sequence[str]) -> bool:
    """Whether all files can be opened with O_DIRECT."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
        except OSError:
            return False
    return True
