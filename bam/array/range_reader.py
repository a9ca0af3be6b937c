"""Logical ranges through any engine: aligned reads, bounded retries, clear failures. C++: span_reader.h."""

from __future__ import annotations

import errno as errno_codes
import time
from dataclasses import dataclass

from bam.errors import FileChangedError, StorageError, TruncatedFileError
from bam.layout import FileRun, Layout
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import ByteArray, Engine, ReadSpan

#: Reads in a row that brought nothing before a range is given up.
MAX_STALLS = 64
#: A file system that says EAGAIN is asked again after this long, so 64 times are a fifth of a second.
AGAIN_WAIT_S = 0.003


@dataclass
class RangeCounters:
    """What was read since it was made."""

    reads: int = 0
    bytes_read: int = 0
    retries: int = 0
    failures: int = 0


class RangeReader:
    """Reads logical ranges, one after the other. Safe to use from several threads.

    Parameters
    ----------
    layout : Layout
        Its file numbers are the engine's.
    engine : Engine
    """

    def __init__(self, layout: Layout, engine: Engine) -> None:
        self.layout, self.engine = layout, engine
        self._files = engine.files

    def read(
        self, offset: int, length: int, destination: ByteArray, page_id: int, counters: RangeCounters
    ) -> None:
        """Copy `length` logical bytes from `offset` on to the beginning of `destination`.

        Raises
        ------
        StorageError
            Of the first run of file bytes that could not be read, with `page_id`.
        """
        done = 0
        for run in self.layout.runs(offset, length):
            try:
                self._read_run(run, destination[done : done + run.length], page_id, counters)
            except StorageError:
                counters.failures += 1
                raise
            done += run.length

    def _read_run(self, run: FileRun, destination: ByteArray, page_id: int, counters: RangeCounters) -> None:
        file = self._files[run.file]
        unit = file.offset_alignment
        begin = run.file_offset // unit * unit
        lead = run.file_offset - begin
        needed = lead + run.length
        scratch = aligned_buffer(-(-needed // unit) * unit, file.memory_alignment)
        got = stalls = 0
        while got < needed:
            # After a short read a direct one goes on at the last whole unit.
            position = got // unit * unit
            span = ReadSpan(run.file, begin + position, len(scratch) - position)
            (result,) = self.engine.read([span], [scratch[position:]])
            counters.reads += 1
            counters.bytes_read += max(result, 0)
            if result > span.length:
                raise self._failure(run, errno_codes.EIO, page_id)
            reached = max(got, position + max(result, 0))
            stalls = stalls + 1 if reached == got else 0
            if result < 0 and (result not in _ASK_AGAIN or stalls > MAX_STALLS):
                raise self._failure(run, -result, page_id)
            if stalls and result >= 0 and begin + needed > self.engine.bytes_now(run.file):
                raise self._failure(run, errno_codes.ENODATA, page_id)
            if stalls > MAX_STALLS:
                raise self._failure(run, errno_codes.EIO, page_id)
            if reached < needed:
                counters.retries += 1
            if result == -errno_codes.EAGAIN:
                time.sleep(AGAIN_WAIT_S)
            got = reached
        # Every byte arrived before this look.
        if changed := self.engine.check_file(run.file, run.file_offset + run.length):
            raise self._failure(run, changed, page_id)
        destination[:] = scratch[lead:needed]

    def _failure(self, run: FileRun, code: int, page_id: int) -> StorageError:
        where = (self.layout.files[run.file], run.file_offset, run.length, code, page_id)
        if code == errno_codes.ENODATA:
            return TruncatedFileError(*where, note="the file ends before these bytes; restore it")
        if code == errno_codes.ESTALE:
            return FileChangedError(*where, note="the file was rewritten since it was opened; open it again")
        said = self.engine.explain(run.file, run.file_offset)
        return StorageError(*where, note=f"{said or 'check the disk'}; the array stays usable")


_ASK_AGAIN = (-errno_codes.EINTR, -errno_codes.EAGAIN)
