"""Logical ranges through any engine: aligned reads, bounded retries, clear failures. C++: span_reader.h."""

from __future__ import annotations

from bam.errors import StorageError
from bam.layout import FileRun, Layout
from bam.storage.buffers import aligned_buffer
from bam.storage.enclosing_reads import Enclosure, RangeCounters, read_enclosing
from bam.storage.engine import ByteArray, Engine

_REMEDY = "the array stays usable"


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
        scratch = aligned_buffer(Enclosure.of(run, file).length, file.memory_alignment)
        name = self.layout.files[run.file]
        found = read_enclosing(
            self.engine, run, scratch, counters, name=name, page_id=page_id, remedy=_REMEDY
        )
        destination[:] = scratch[found.lead : found.lead + run.length]
