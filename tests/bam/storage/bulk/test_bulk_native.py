"""Bulk reads through the engines of this package: the contract, faults, and reads that never end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from bulk_contract import SMALL, BulkReaderContract, OtherMemory, two_files

from bam.config import EngineKind
from bam.errors import EngineUnavailable, StorageError, WaitTimeout
from bam.layout import Layout
from bam.native import available
from bam.storage import FaultEngine, FaultKind, FaultRule, FileEngine, NativeFaultEngine
from bam.storage.bulk import BulkRange, BulkReader, BulkSettings, HostMemory, open_bulk_reader
from bam.storage.bulk.memory import in_step
from bam.storage.bulk.native import NativeBulkReader
from bam.storage.bulk.numa import Placement
from bam.storage.bulk.tasks import tasks_of
from bam.storage.engine import ByteArray, ReadSpan

needs_library = pytest.mark.skipif(not available(), reason="the native library was not built")


def open_native(paths: Sequence[str], layout: Layout, settings: BulkSettings, kind: EngineKind) -> BulkReader:
    try:
        return open_bulk_reader(layout, settings, paths=paths, engine=kind)
    except EngineUnavailable as error:
        pytest.skip(str(error))


@needs_library
class TestUring(BulkReaderContract):
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        return open_native(paths, layout, settings, EngineKind.URING)


@needs_library
class TestFile(BulkReaderContract):
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        return open_native(paths, layout, settings, EngineKind.FILE)


class TestPlainPython(BulkReaderContract):
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        return NativeBulkReader(FileEngine(paths, direct=settings.direct), layout, settings)


class WatchedEngine(FileEngine):
    """Remembers where reads went and which thread made them."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self.addresses: list[int] = []
        self.threads: set[int] = set()

    def read(self, spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> list[int]:
        self.addresses += [buffer.ctypes.data for buffer in buffers]
        self.threads.add(threading.get_ident())
        return super().read(spans, buffers)


def test_memory_in_step_with_the_file_is_read_to_without_a_copy(tmp_path: Path) -> None:
    """A header of 128 bytes: everything but the first and the last block goes straight to the memory."""
    paths, layout, content = two_files(tmp_path)
    n_bytes = 300_001
    engine = WatchedEngine(paths)
    unit = engine.files[0].offset_alignment
    if unit == 1:
        pytest.skip("the file system of the tests has no O_DIRECT")
    with NativeBulkReader(engine, layout, SMALL) as reader:
        out = in_step(n_bytes, 128)
        reader.read([BulkRange(0, n_bytes)], HostMemory(out))
        np.testing.assert_array_equal(out, content[:n_bytes])
        first, end = out.ctypes.data, out.ctypes.data + n_bytes
        assert sum(first <= address < end for address in engine.addresses) >= 4
        assert threading.get_ident() not in engine.threads


def test_tasks_are_cut_at_aligned_offsets_of_files() -> None:
    layout = Layout.single("f", 128, 200_000)
    tasks = list(tasks_of(layout, [BulkRange(0, 200_000, 5)], 65536))
    assert [task.run.file_offset for task in tasks] == [128, 65536, 131072, 196608]
    assert sum(task.run.length for task in tasks) == 200_000
    assert [task.begin for task in tasks] == [5, 65413, 130949, 196485]


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.SHORT_READ])
@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_library), False])
def test_a_fault_on_each_read_until_success(tmp_path: Path, kind: FaultKind, native: bool) -> None:
    """An error reaches the caller with file, offset, length and errno; a short read reaches nobody."""
    paths, layout, content = two_files(tmp_path)
    errors: list[StorageError] = []
    for n in range(1, 100):
        rule = FaultRule(kind, nth=n, errno=errno.EREMOTEIO, n_bytes=512, max_injections=1)
        inner = open_bulk_engine(paths, native)
        faulty = NativeFaultEngine(inner, [rule]) if native else FaultEngine(inner, [rule])
        memory = HostMemory(np.zeros(len(content), np.uint8))
        with NativeBulkReader(faulty, layout, SMALL, inner=inner) as reader:
            try:
                report = reader.read([BulkRange(0, len(content))], memory)
            except StorageError as error:
                errors.append(error)
                report = reader.read([BulkRange(0, len(content))], memory)  # it goes on working
            np.testing.assert_array_equal(memory.host, content)
            if n > report.reads:
                break
    assert n > 8
    assert len(errors) == (n - 1 if kind is FaultKind.ERROR else 0)
    for error in errors:
        assert error.errno == errno.EREMOTEIO
        assert error.file in paths
        assert 0 < error.length <= 65536


def open_bulk_engine(paths: Sequence[str], native: bool) -> object:
    from bam.storage import open_engine

    return open_engine("file", paths, threads=1) if native else FileEngine(paths)


@needs_library
def test_interrupted_reads_are_repeated(tmp_path: Path) -> None:
    paths, layout, content = two_files(tmp_path)
    rules = [
        FaultRule(FaultKind.ERROR, every=2, errno=errno.EINTR),
        FaultRule(FaultKind.SHORT_READ, every=3, n_bytes=4096),
    ]
    memory = OtherMemory(len(content))
    inner = open_bulk_engine(paths, True)
    with NativeBulkReader(NativeFaultEngine(inner, rules), layout, SMALL, inner=inner) as reader:
        report = reader.read([BulkRange(0, len(content))], memory)
    np.testing.assert_array_equal(memory.bytes, content)
    assert report.reads > 20


def test_a_read_that_never_ends_is_given_up(tmp_path: Path) -> None:
    """And the memory it may still write to lives as long as it."""
    paths, layout, _ = two_files(tmp_path)
    go_on = threading.Event()

    class Silent(FileEngine):
        def read(self, spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> list[int]:
            if spans[0].file == 1:
                go_on.wait(60)
            return super().read(spans, buffers)

    reader = NativeBulkReader(Silent(paths), layout, BulkSettings(task_bytes="64KiB", timeout_s=0.3))
    with pytest.raises(WaitTimeout) as given_up:
        reader.read(
            [BulkRange(0, layout.logical_bytes)], HostMemory(np.zeros(layout.logical_bytes, np.uint8))
        )
    assert given_up.value.file == paths[1]
    assert (given_up.value.offset, given_up.value.length) == (0, 65536)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("bam-bulk"):
            thread.join(30)
    reader.close()


def test_an_error_of_starting_a_thread_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that are not there any more, for instance."""
    paths, layout, _ = two_files(tmp_path)
    placement = Placement(frozenset({100_000}), "cores that this machine does not have")
    monkeypatch.setattr("bam.storage.bulk.native.find_placement", lambda files, gpu: placement)
    settings = BulkSettings(task_bytes="64KiB", numa=True)
    with (
        NativeBulkReader(FileEngine(paths), layout, settings) as reader,
        pytest.raises(OSError, match="rgument"),
    ):
        reader.read([BulkRange(0, 1000)], HostMemory(np.zeros(1000, np.uint8)))
