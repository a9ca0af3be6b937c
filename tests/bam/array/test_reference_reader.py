from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from reader_contract import CONFIG, PAGE, ReaderContract, make_store, random_rows

from bam.array.range_reader import RangeReader
from bam.array.reference_reader import ReferenceReader
from bam.cache.page_cache import PageCache
from bam.cache.reference import ReferenceCache
from bam.config import StoreConfig
from bam.errors import StorageError, TruncatedFileError
from bam.layout import Layout
from bam.storage.enclosing_reads import MAX_STALLS, RangeCounters
from bam.storage.engine import ByteArray, Engine, ReadSpan
from bam.storage.fault import FaultEngine, FaultKind, FaultRule
from bam.storage.file import FileEngine
from bam.storage.memory import MemoryEngine


class TestReferenceReader(ReaderContract):
    def memory_engine(self, files: Sequence[bytes], alignment: int) -> Engine:
        return MemoryEngine(files, alignment)

    def file_engine(self, paths: Sequence[Path]) -> Engine:
        return FileEngine(paths)

    def cache(self, config: StoreConfig) -> PageCache:
        return ReferenceCache(config.cache_lines, config.page_bytes, config.policy)

    def reader(
        self, layout: Layout, engine: Engine, cache: PageCache, config: StoreConfig
    ) -> ReferenceReader:
        return ReferenceReader(layout, engine, cache, config)


class ScriptedEngine(MemoryEngine):
    """Asks `script` before each read: a negative answer is the result, another the most bytes to return."""

    def __init__(
        self, files: Sequence[bytes], script: Callable[[int, ReadSpan], int], alignment: int = 1
    ) -> None:
        super().__init__(files, alignment)
        self.script, self.reads = script, 0

    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        self.reads += 1
        answer = self.script(self.reads, span)
        if answer < 0:
            return answer
        scratch = np.empty_like(buffer) if self._files[0].memory_alignment == 1 else buffer
        found = super()._read_span(span, scratch)
        buffer[: min(found, answer)] = scratch[: min(found, answer)]
        return min(found, answer)


ROWS = random_rows(30, 300)
LAYOUT = Layout.single("file", 128, ROWS.nbytes)
FILES = make_store(ROWS, LAYOUT).files


def open_scripted(script: Callable[[int, ReadSpan], int], alignment: int = 1) -> ReferenceReader:
    engine = ScriptedEngine(FILES, script, alignment)
    return ReferenceReader(LAYOUT, engine, ReferenceCache(4, PAGE), CONFIG)


def gather_all(reader: ReferenceReader) -> None:
    out = np.zeros_like(ROWS)
    reader.gather(np.arange(len(ROWS)), out)
    np.testing.assert_array_equal(out, ROWS)


def error_of(reader: ReferenceReader) -> StorageError | None:
    try:
        gather_all(reader)
    except StorageError as error:
        return error
    return None


@pytest.mark.parametrize(("alignment", "most"), [(1, 1), (1, 7), (1, 511), (512, 7), (512, 511), (512, 513)])
def test_short_reads_are_continued(alignment: int, most: int) -> None:
    if most < alignment:
        # Direct reads go on at whole units: a short one now and then, or there is no progress.
        reader = open_scripted(lambda read, span: most if read % 2 else span.length, alignment)
    else:
        reader = open_scripted(lambda read, span: most, alignment)
    gather_all(reader)
    assert reader.stats().retries > 0


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interrupted_reads_are_asked_again(code: int) -> None:
    reader = open_scripted(lambda read, span: -code if read % 3 else span.length)
    gather_all(reader)
    assert reader.stats().retries > 0


@pytest.mark.parametrize(("answer", "code"), [(-errno.EINTR, errno.EINTR), (0, errno.EIO)])
def test_asking_again_is_bounded(answer: int, code: int) -> None:
    reader = open_scripted(lambda read, span: answer)
    with pytest.raises(StorageError) as caught:
        gather_all(reader)
    assert caught.value.errno == code
    # The page, and after it the row alone.
    assert reader.stats().reads == 2 * (MAX_STALLS + 1)


def test_the_end_of_a_direct_file_in_the_middle_of_a_unit() -> None:
    class Cut(ScriptedEngine):
        def bytes_now(self, file: int) -> int:
            return 1000

    engine = Cut(FILES, lambda read, span: max(0, 1000 - span.offset), alignment=512)
    reader = ReferenceReader(LAYOUT, engine, ReferenceCache(4, PAGE), CONFIG)
    with pytest.raises(TruncatedFileError) as caught:
        gather_all(reader)
    assert caught.value.page_id == (1000 - 128) // PAGE
    assert reader.stats().reads < 12  # it is not asked again and again


def test_more_bytes_than_asked_for() -> None:
    class Liar(MemoryEngine):
        def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
            return span.length + 1

    reader = ReferenceReader(LAYOUT, Liar(FILES), ReferenceCache(4, PAGE), CONFIG)
    with pytest.raises(StorageError) as caught:
        gather_all(reader)
    assert caught.value.errno == errno.EIO


def test_an_error_on_each_read_until_success() -> None:
    failures = 0
    while True:
        # The row alone fails as well, or the caller would not notice.
        bad = failures + 1
        reader = open_scripted(
            lambda read, span, bad=bad: -errno.EIO if read in (bad, bad + 1) else span.length
        )
        error = error_of(reader)
        if error is None:
            break
        failures += 1
        assert (error.file, error.errno) == ("file", errno.EIO)
        assert error.page_id is not None
        assert error.page_id * PAGE <= error.offset - 128 < (error.page_id + 1) * PAGE
        gather_all(reader)  # the array stays usable
        assert reader.stats().failures == 2
    pages = -(-ROWS.nbytes // PAGE)
    assert failures >= pages - 1


def test_a_bad_part_of_a_page_fails_only_the_rows_in_it() -> None:
    bad = range(128 + 650, 128 + 660)  # row 2, page 1

    def script(read: int, span: ReadSpan) -> int:
        hit = span.offset < bad.stop and span.offset + span.length > bad.start
        return -errno.EIO if hit else span.length

    reader = open_scripted(script)
    out = np.zeros((1, 300), np.uint8)
    for row_id in range(30):
        if row_id == 2:
            with pytest.raises(StorageError) as caught:
                reader.gather(np.array([row_id]), out)
            assert caught.value.page_id == 1
        else:
            reader.gather(np.array([row_id]), out)
            np.testing.assert_array_equal(out[0], ROWS[row_id])


def test_who_waits_for_a_read_that_fails_reads_for_himself() -> None:
    started, release = threading.Event(), threading.Event()

    def script(read: int, span: ReadSpan) -> int:
        if read > 1:
            return span.length
        started.set()
        assert release.wait(30)
        return -errno.EIO

    cache = ReferenceCache(4, PAGE)
    reader = ReferenceReader(LAYOUT, ScriptedEngine(FILES, script), cache, CONFIG)
    out = np.zeros((2, 300), np.uint8)
    threads = [
        threading.Thread(target=lambda number=number: reader.gather(np.array([0]), out[number : number + 1]))
        for number in range(2)
    ]
    threads[0].start()
    assert started.wait(30)
    threads[1].start()
    while max(cache.pins(line_id) for line_id in range(4)) < 2:
        time.sleep(0.001)
    release.set()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(out, ROWS[[0, 0]])


def test_progress_renews_patience() -> None:
    """More interruptions than are borne in a row, but after each one some bytes come."""
    content = np.random.default_rng(0).integers(0, 256, 512 * 200, np.uint8)
    rules = [
        FaultRule(FaultKind.ERROR, every=2, errno=errno.EINTR),
        FaultRule(FaultKind.SHORT_READ, every=1, n_bytes=512),
    ]
    layout = Layout.single("memory:0", 0, len(content))
    with FaultEngine(MemoryEngine([content], alignment=512), rules) as engine:
        out, counters = np.zeros_like(content), RangeCounters()
        RangeReader(layout, engine).read(0, len(content), out, 0, counters)
    np.testing.assert_array_equal(out, content)
    assert counters.retries > 300
