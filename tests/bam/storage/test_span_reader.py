"""The C++ span reader: right bytes, one read a run, faults survived or reported, nothing hangs."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from engine_contract import random_bytes, write_files
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.errors import ClosedError, ConfigError, FileChangedError, StorageError, TruncatedFileError
from bam.layout import Layout
from bam.native import available
from bam.storage import (
    FaultKind,
    FaultRule,
    MonitoredEngine,
    NativeEngine,
    NativeFaultEngine,
    NativeFileEngine,
    NativeMemoryEngine,
    RangeReads,
    UringEngine,
    read_ranges,
)
from bam.storage.engine import ByteArray

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")

#: Attempts without progress that the reader makes (`kMaxStalls`), and the first one.
MOST_ATTEMPTS = 65
quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def flatten(layout: Layout, contents: Sequence[ByteArray]) -> ByteArray:
    """The logical bytes of `layout`, the slow way."""
    pieces = [
        contents[run.file][run.file_offset : run.file_offset + run.length]
        for run in layout.runs(0, layout.logical_bytes)
    ]
    return np.concatenate([np.empty(0, np.uint8), *pieces])


@dataclass(frozen=True)
class Ranges:
    offsets: list[int]
    lengths: list[int]

    @classmethod
    def drawn(cls, n_bytes: int, count: int, longest: int, seed: int = 0) -> Ranges:
        random = np.random.default_rng(seed)
        lengths = random.integers(0, longest + 1, count)
        return cls(
            [int(random.integers(0, n_bytes - length + 1)) for length in lengths], list(map(int, lengths))
        )

    def read(self, engine: NativeEngine, layout: Layout, depth: int = 16) -> RangeReads:
        return read_ranges(engine, layout, self.offsets, self.lengths, depth=depth)


def check(ranges: Ranges, reads: RangeReads, flat: ByteArray) -> None:
    """Every range that did not fail has its bytes; every one that failed says file, offset and errno."""
    for offset, length, found, error in zip(
        ranges.offsets, ranges.lengths, reads.bytes, reads.errors, strict=True
    ):
        if error is None:
            assert (found == flat[offset : offset + length]).all()
        else:
            assert error.filename
            assert error.errno
            assert error.offset >= 0
    assert reads.failures == sum(error is not None for error in reads.errors)


@given(data=st.data())
@quick
def test_any_range_of_any_layout(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 9000), min_size=1, max_size=4), "file sizes")
    contents = [random_bytes(n_bytes, seed) for seed, n_bytes in enumerate(sizes)]
    if data.draw(st.booleans(), "striped"):
        stripe = data.draw(st.integers(1, min(sizes)), "stripe bytes")
        usable = min(sizes) // stripe * stripe * len(sizes)
        layout = Layout.striped(
            ["f"] * len(sizes), stripe, data.draw(st.integers(1, usable), "logical bytes")
        )
    else:
        heads = [data.draw(st.integers(0, n_bytes), "header") for n_bytes in sizes]
        layout = Layout.concatenated(
            [("f", head, size - head) for head, size in zip(heads, sizes, strict=True)]
        )
    flat = flatten(layout, contents)
    alignment = data.draw(st.sampled_from([1, 512, 4096]), "alignment")
    longest = data.draw(st.integers(0, min(len(flat), 3000)), "longest range")
    ranges = Ranges.drawn(len(flat), 30, longest, data.draw(st.integers(0, 99), "seed"))
    with NativeMemoryEngine(contents, alignment) as engine:
        reads = ranges.read(engine, layout, depth=data.draw(st.integers(1, 40), "depth"))
    check(ranges, reads, flat)
    assert not any(reads.errors)
    assert reads.retries == 0
    runs = zip(ranges.offsets, ranges.lengths, strict=True)
    assert reads.reads == sum(len(list(layout.runs(offset, length))) for offset, length in runs)


@pytest.fixture(params=[UringEngine, NativeFileEngine])
def kind(request: pytest.FixtureRequest) -> type[NativeEngine]:
    found: type[NativeEngine] = request.param
    return found


@dataclass(frozen=True)
class Store:
    paths: list[str]
    contents: list[ByteArray]
    layout: Layout
    flat: ByteArray


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three files with headers, whose sizes are no multiples of anything."""
    contents = [random_bytes(40_000 + 777 * seed, seed) for seed in range(3)]
    paths = write_files(tmp_path, contents)
    pieces = [(path, 128 + i, 39_000) for i, path in enumerate(paths)]
    layout = Layout.concatenated(pieces)
    return Store(paths, contents, layout, flatten(layout, contents))


def test_a_row_anywhere_is_one_read_of_the_enclosing_span(kind: type[NativeEngine], store: Store) -> None:
    with kind(store.paths) as engine:
        unit = engine.files[0].offset_alignment
        ranges = Ranges([0, 383, 5000], [4096, 1, 100])
        reads = ranges.read(engine, store.layout)
    check(ranges, reads, store.flat)
    spans = [
        -(-(128 + offset + length) // unit) * unit - (128 + offset) // unit * unit
        for offset, length in zip(ranges.offsets, ranges.lengths, strict=True)
    ]
    assert (reads.reads, reads.bytes_read) == (3, sum(spans))


def test_runs_of_files_with_different_alignment(kind: type[NativeEngine], store: Store) -> None:
    """The second run's place in the slot fits direct reads, though the first run ends anywhere."""
    if not os.path.exists("/proc/version"):
        pytest.skip("there is no /proc, whose files are never read directly")
    version = np.fromfile("/proc/version", np.uint8, 21)
    layout = Layout.concatenated([("/proc/version", 0, 21), (store.paths[0], 100, 5000)])
    with kind(["/proc/version", store.paths[0]]) as engine:
        reads = read_ranges(engine, layout, [5], [4000])
    assert not any(reads.errors)
    assert (reads.bytes[0] == np.concatenate([version[5:], store.contents[0][100 : 100 + 3984]])).all()


@pytest.mark.parametrize("reorder_window", [0, 7])
@pytest.mark.parametrize("code", [errno.EIO, errno.EINTR, errno.EAGAIN, errno.ENXIO])
def test_error_on_the_nth_read_each_n_until_success(
    kind: type[NativeEngine], store: Store, code: int, reorder_window: int
) -> None:
    ranges = Ranges.drawn(len(store.flat), 9, 30_000)
    with kind(store.paths) as engine:
        for n in range(1, 100):
            rule = FaultRule(FaultKind.ERROR, nth=n, errno=code)
            with NativeFaultEngine(engine, [rule], reorder_window=reorder_window) as faulty:
                reads = ranges.read(faulty, store.layout, depth=4)
                (count,) = faulty.counts()
            check(ranges, reads, store.flat)
            failed = [error for error in reads.errors if error is not None]
            if code in (errno.EINTR, errno.EAGAIN) or not count.injected:
                assert not failed
                assert reads.retries == count.injected
            else:
                assert [error.errno for error in failed] == [code]
                assert failed[0].filename in store.paths
            if not count.injected:
                break
    assert n > 9


@given(data=st.data())
@quick
def test_short_reads_are_continued(data: st.DataObject) -> None:
    contents = [random_bytes(20_001, 1)]
    layout = Layout.single("f", 77, 19_000)
    flat = flatten(layout, contents)
    alignment = data.draw(st.sampled_from([1, 512]), "alignment")
    n_bytes = data.draw(st.integers(alignment, 5000), "bytes of a short read")
    every = data.draw(st.integers(1, 3), "every")
    ranges = Ranges.drawn(len(flat), 12, 9000, data.draw(st.integers(0, 99), "seed"))
    rules = [FaultRule(FaultKind.SHORT_READ, every=every, n_bytes=n_bytes)]
    with NativeMemoryEngine(contents, alignment) as inner, NativeFaultEngine(inner, rules) as engine:
        reads = ranges.read(engine, layout)
    check(ranges, reads, flat)
    assert not any(reads.errors)


@given(data=st.data())
@quick
def test_any_mix_of_faults(data: st.DataObject) -> None:
    contents = [random_bytes(20_001, 1), random_bytes(30_000, 2)]
    layout = Layout.striped(["a", "b"], 1536, 36_000)
    flat = flatten(layout, contents)
    codes = [errno.EINTR, errno.EAGAIN, errno.EIO]
    rules = [
        FaultRule(
            kind,
            probability=data.draw(st.sampled_from([0.02, 0.3]), "probability"),
            errno=data.draw(st.sampled_from(codes), "errno"),
            n_bytes=data.draw(st.integers(0, 3000), "bytes"),
            delay_us=data.draw(st.integers(0, 300), "delay"),
            file=data.draw(st.sampled_from([None, 0, 1]), "file"),
            seed=data.draw(st.integers(0, 99), "seed"),
        )
        for kind in (FaultKind.ERROR, FaultKind.SHORT_READ, FaultKind.DELAY)
    ]
    window = data.draw(st.sampled_from([0, 3, 50]), "window")
    ranges = Ranges.drawn(len(flat), 12, 6000, data.draw(st.integers(0, 99), "seed"))
    with (
        NativeMemoryEngine(contents, 512) as inner,
        NativeFaultEngine(inner, rules, reorder_window=window) as engine,
    ):
        reads = ranges.read(engine, layout, depth=data.draw(st.integers(1, 20), "depth"))
    check(ranges, reads, flat)
    assert {error.errno for error in reads.errors if error is not None} <= {errno.EIO}


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_a_file_system_that_never_answers_is_given_up(code: int) -> None:
    contents = [random_bytes(8192, 1)]
    ranges = Ranges([0, 4096], [100, 100])
    for attempts, succeeds in ((MOST_ATTEMPTS - 1, True), (MOST_ATTEMPTS, False)):
        rule = FaultRule(FaultKind.ERROR, every=1, errno=code, max_injections=attempts)
        with NativeMemoryEngine(contents) as inner, NativeFaultEngine(inner, [rule]) as engine:
            reads = ranges.read(engine, Layout.single("f", 0, 8192), depth=1)
        check(ranges, reads, contents[0])
        assert [error is None for error in reads.errors] == [succeeds, True]


def test_reads_that_bring_nothing_are_given_up() -> None:
    """The bytes are there, so it is not the end of the file."""
    rule = FaultRule(FaultKind.SHORT_READ, every=1, n_bytes=0)
    with NativeMemoryEngine([random_bytes(8192, 1)]) as inner, NativeFaultEngine(inner, [rule]) as engine:
        reads = Ranges([5], [100]).read(engine, Layout.single("f", 0, 8192))
    (error,) = reads.errors
    assert isinstance(error, StorageError)
    assert (error.errno, error.offset, reads.reads) == (errno.EIO, 5, MOST_ATTEMPTS)


def test_one_failure_harms_nobody_else(store: Store) -> None:
    """Every read of one file fails; ranges in the other two, and their neighbours in flight, do not."""
    rule = FaultRule(FaultKind.ERROR, every=1, errno=errno.EIO, file=1)
    ranges = Ranges.drawn(len(store.flat), 200, 3000)
    with NativeMemoryEngine(store.contents) as inner, NativeFaultEngine(inner, [rule]) as engine:
        reads = ranges.read(engine, store.layout, depth=8)
    check(ranges, reads, store.flat)
    for offset, length, error in zip(ranges.offsets, ranges.lengths, reads.errors, strict=True):
        touches = any(run.file == 1 for run in store.layout.runs(offset, length))
        assert (error is not None) == touches
        if error is not None:
            assert error.filename == "memory:1"


class TestChangedFiles:
    """What the engine opened is no longer what lies there."""

    @pytest.fixture
    def engine(self, kind: type[NativeEngine], store: Store) -> Iterator[NativeEngine]:
        with kind(store.paths) as engine:
            yield engine

    def test_cut_short(self, engine: NativeEngine, store: Store) -> None:
        cut = 20_000
        os.truncate(store.paths[1], cut)
        ranges = Ranges.drawn(len(store.flat), 300, 4000)
        reads = ranges.read(engine, store.layout)
        check(ranges, reads, store.flat)
        for offset, length, error in zip(ranges.offsets, ranges.lengths, reads.errors, strict=True):
            runs = [run for run in store.layout.runs(offset, length) if run.file == 1]
            missing = any(run.file_offset + run.length > cut for run in runs)
            assert isinstance(error, TruncatedFileError) == missing
            if error is not None:
                assert error.errno == errno.ENODATA
                assert error.filename == store.paths[1]
                assert error.offset == max(cut, runs[0].file_offset)

    def test_rewritten_in_place(self, engine: NativeEngine, store: Store) -> None:
        os.utime(store.paths[2], ns=(1, 1))  # as if written at another time: no waiting for the clock
        ranges = Ranges.drawn(len(store.flat), 100, 4000)
        reads = ranges.read(engine, store.layout)
        check(ranges, reads, store.flat)
        for offset, length, error in zip(ranges.offsets, ranges.lengths, reads.errors, strict=True):
            touches = any(run.file == 2 for run in store.layout.runs(offset, length))
            assert isinstance(error, FileChangedError) == touches
            if error is not None:
                assert (error.errno, error.filename) == (errno.ESTALE, store.paths[2])

    def test_rewritten_after_the_bytes_arrived(self, engine: NativeEngine, store: Store) -> None:
        """They are handed out only after a later look at the file."""
        late = FaultRule(FaultKind.DELAY, every=1, delay_us=1_000_000)
        found: list[RangeReads] = []
        with MonitoredEngine(engine) as monitored, NativeFaultEngine(monitored, [late]) as slow:
            reader = threading.Thread(
                target=lambda: found.append(Ranges([0], [100]).read(slow, store.layout))
            )
            reader.start()
            while monitored.snapshot().reads == 0:
                time.sleep(0.001)
            os.utime(store.paths[0], ns=(1, 1))
            reader.join()
        assert isinstance(found[0].errors[0], FileChangedError)

    def test_replaced_by_another_file(self, engine: NativeEngine, store: Store, tmp_path: Path) -> None:
        other = tmp_path / "other"
        random_bytes(40_000, 99).tofile(other)
        os.replace(other, store.paths[0])
        ranges = Ranges.drawn(len(store.flat), 100, 4000)
        reads = ranges.read(engine, store.layout)
        check(ranges, reads, store.flat)
        assert not any(reads.errors)

    def test_removed(self, engine: NativeEngine, store: Store) -> None:
        os.unlink(store.paths[0])
        ranges = Ranges.drawn(len(store.flat), 100, 4000)
        reads = ranges.read(engine, store.layout)
        check(ranges, reads, store.flat)
        assert not any(reads.errors)


class TestRefusals:
    def test_ranges_outside_the_layout(self) -> None:
        with NativeMemoryEngine([b"abcdef"]) as engine:
            for offset, length in ((0, 7), (6, 1), (-1, 1), (0, -1)):
                with pytest.raises(ConfigError):
                    read_ranges(engine, Layout.single("f", 0, 6), [offset], [length])

    def test_layout_of_other_files(self) -> None:
        with NativeMemoryEngine([b"abcdef"]) as engine, pytest.raises(ConfigError):
            read_ranges(engine, Layout.concatenated([("a", 0, 6), ("b", 0, 6)]), [0], [6])

    def test_depth_that_cannot_be(self) -> None:
        with NativeMemoryEngine([bytes(2**20)]) as engine, pytest.raises(ConfigError):
            read_ranges(engine, Layout.single("f", 0, 2**20), [0], [2**20], depth=2**31)

    def test_closed(self) -> None:
        engine = NativeMemoryEngine([b"abcdef"])
        engine.close()
        with pytest.raises(ClosedError):
            read_ranges(engine, Layout.single("f", 0, 6), [0], [6])

    def test_nothing(self) -> None:
        with NativeMemoryEngine([b"abcdef"]) as engine:
            assert read_ranges(engine, Layout.single("f", 0, 6), [], []).bytes == ()
            (found,) = read_ranges(engine, Layout.single("f", 0, 0), [0], [0]).bytes
            assert found.size == 0


def test_progress_renews_patience() -> None:
    """More interruptions than are borne in a row, but after each one some bytes come."""
    content = random_bytes(512 * 200, 1)
    rules = [
        FaultRule(FaultKind.ERROR, every=2, errno=errno.EINTR),
        FaultRule(FaultKind.SHORT_READ, every=1, n_bytes=512),
    ]
    with (
        NativeMemoryEngine([content], alignment=512) as memory,
        NativeFaultEngine(memory, rules) as engine,
    ):
        reads = read_ranges(engine, Layout.single("a", 0, len(content)), [0], [len(content)])
    assert reads.errors == (None,)
    assert (reads.bytes[0] == content).all()
    assert reads.retries > 300
