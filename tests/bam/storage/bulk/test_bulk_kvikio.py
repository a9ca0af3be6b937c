"""Bulk reads through kvikio: the contract over a plain twin of its module, faults; and kvikio itself."""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from bulk_contract import SMALL, BulkReaderContract, two_files
from fake_kvikio import CompatMode, FakeKvikio

import bam
from bam.errors import ConfigError, EngineUnavailable, FileChangedError, StorageError, WaitTimeout
from bam.layout import Layout
from bam.storage.bulk import BulkRange, BulkReader, BulkSettings, HostMemory, kvikio_library, open_bulk_reader
from bam.storage.bulk.kvikio_library import KvikioLibrary
from bam.storage.bulk.kvikio_reader import KvikioBulkReader, errno_of
from bam.storage.bulk.numa import Placement

HERE = Path(__file__).parent


class TestFakeKvikio(BulkReaderContract):
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        return KvikioBulkReader(paths, layout, settings, KvikioLibrary(FakeKvikio()))


def read_all(kvikio: FakeKvikio, folder: Path, settings: BulkSettings = SMALL) -> tuple[object, np.ndarray]:
    """Report and bytes of a read of everything; checks the bytes, and that no file stays open."""
    paths, layout, content = two_files(folder)
    memory = HostMemory(np.zeros(len(content), np.uint8))
    with KvikioBulkReader(paths, layout, settings, KvikioLibrary(kvikio)) as reader:
        try:
            report = reader.read([BulkRange(0, len(content))], memory)
        finally:
            assert kvikio.n_open == 0
    np.testing.assert_array_equal(memory.host, content)
    return report, content


def test_settings_hold_while_it_reads_and_come_back(tmp_path: Path) -> None:
    kvikio = FakeKvikio()
    before = dict(kvikio.defaults.values)
    read_all(kvikio, tmp_path)
    wanted = {
        "num_threads": 3,
        "task_size": 65536,
        "auto_direct_io_read": True,
        "compat_mode": CompatMode.ON,  # host memory: cuFile is not even opened
    }
    assert kvikio.seen
    assert all(seen == wanted for seen in kvikio.seen)
    assert kvikio.defaults.values == before


def test_its_threads_start_where_they_are_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = frozenset(os.sched_getaffinity(0))
    placement = Placement(frozenset({max(mine)}), "by the disk")
    monkeypatch.setattr("bam.storage.bulk.kvikio_reader.find_placement", lambda files, gpu: placement)
    kvikio = FakeKvikio()
    report, _ = read_all(kvikio, tmp_path, BulkSettings(task_bytes="64KiB", numa=True))
    assert report.placement == "by the disk"
    assert kvikio.defaults.affinities == [placement.cores, mine]
    assert frozenset(os.sched_getaffinity(0)) == mine


@pytest.mark.parametrize("short_by", [1, 4096, 100_000])
def test_short_reads_go_on(tmp_path: Path, short_by: int) -> None:
    kvikio = FakeKvikio(lambda number, size: max(1, size - short_by) if number < 9 else size)
    report, _ = read_all(kvikio, tmp_path)
    assert report.reads == kvikio.n_reads > 2


@pytest.mark.parametrize("nth", [1, 2])
def test_an_error_names_file_place_and_errno_and_the_next_read_works(tmp_path: Path, nth: int) -> None:
    def fault(number: int, size: int) -> int:
        if number == nth:
            raise RuntimeError(
                f"KvikIO failure at: x.hpp:62: POSIX error on pread: {os.strerror(errno.EREMOTEIO)}"
            )
        return size

    kvikio = FakeKvikio(fault)
    before = dict(kvikio.defaults.values)
    with pytest.raises(StorageError, match="kvikio says") as failed:
        read_all(kvikio, tmp_path)
    assert failed.value.errno == errno.EREMOTEIO
    assert failed.value.file == str(tmp_path / ("first.bin", "second.bin")[nth - 1])
    assert (failed.value.offset, failed.value.length) == ((128, 300_001), (0, 170_003))[nth - 1]
    assert kvikio.defaults.values == before
    # Its other threads may still have been at the files.
    assert kvikio.defaults.events == ["threads", "threads", "close", "close"]
    read_all(kvikio, tmp_path)


def test_interruptions_are_borne_but_not_for_ever(tmp_path: Path) -> None:
    def interrupted(number: int, size: int) -> int:
        if number % 3:
            raise RuntimeError(f"POSIX error on pread: {os.strerror(errno.EINTR)}")
        return max(1, size // 2)

    read_all(FakeKvikio(interrupted), tmp_path)
    with pytest.raises(StorageError) as failed:
        read_all(FakeKvikio(lambda number, size: 0), tmp_path)
    assert failed.value.errno == errno.EIO


def test_a_file_put_in_the_place_of_the_one_that_was_opened(tmp_path: Path) -> None:
    paths, layout, _ = two_files(tmp_path)
    with KvikioBulkReader(paths, layout, SMALL, KvikioLibrary(FakeKvikio())) as reader:
        shutil.copy(paths[1], tmp_path / "copy")
        os.replace(tmp_path / "copy", paths[1])
        with pytest.raises(FileChangedError):
            reader.read([BulkRange(0, 10)], HostMemory(np.zeros(10, np.uint8)))


def test_reads_that_never_end_keep_kvikio_to_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing its number of threads would wait for them; so it is refused until the process ends."""
    monkeypatch.setattr(kvikio_library, "_in_use", kvikio_library._Use())
    go_on = threading.Event()
    kvikio = FakeKvikio(lambda number, size: size if go_on.wait(60) else 0)
    settings = BulkSettings(task_bytes="64KiB", timeout_s=0.2)
    paths, layout, _ = two_files(tmp_path)
    reader = KvikioBulkReader(paths, layout, settings, KvikioLibrary(kvikio))
    with pytest.raises(WaitTimeout):
        reader.read([BulkRange(0, 10)], HostMemory(np.zeros(10, np.uint8)))
    with pytest.raises(EngineUnavailable, match="have not ended"):
        reader.read([BulkRange(0, 10)], HostMemory(np.zeros(10, np.uint8)))
    go_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("bam-bulk"):
            thread.join(30)
    reader.close()


def test_what_kvikio_says_is_read() -> None:
    assert errno_of(RuntimeError("a.hpp:1: POSIX error on pread: No such device or address")) == errno.ENXIO
    assert errno_of(RuntimeError("cuFile error at: 5011: internal error")) == errno.EIO
    assert errno_of(PermissionError(errno.EACCES, "no")) == errno.EACCES


def test_without_a_driver_it_is_not_even_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    class Imported:
        """A module whose import would be seen."""

        def __getattr__(self, name: str) -> object:
            raise AssertionError("kvikio was used")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setitem(sys.modules, "kvikio", Imported())
    paths, layout, _ = two_files(tmp_path)
    with pytest.raises(EngineUnavailable, match="libcuda") as refused:
        open_bulk_reader(layout, BulkSettings(engine="kvikio"), paths=paths)
    assert (refused.value.engine, "driver" in refused.value.remedy) == ("kvikio", True)


def test_not_installed_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvikio_library, "why_no_driver", lambda: "")
    monkeypatch.setitem(sys.modules, "kvikio", None)
    np.save(tmp_path / "a.npy", np.zeros((10, 2)))
    with pytest.raises(EngineUnavailable, match="cuda13 or cuda12"):
        bam.load_array(tmp_path / "a.npy", bulk=BulkSettings(engine="kvikio"))


def test_auto_for_a_gpu_takes_native_where_kvikio_is_not_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kvikio_library, "why_no_driver", lambda: "there is no CUDA driver (of this test)")
    paths, layout, content = two_files(tmp_path)
    memory = HostMemory(np.zeros(len(content), np.uint8))
    with open_bulk_reader(layout, SMALL, paths=paths, to_gpu=True) as reader:
        report = reader.read([BulkRange(0, len(content))], memory)
    assert report.engine.startswith("native")
    assert "of this test" in report.notes[0]
    assert "of this test" in caplog.text


def test_wrappers_and_memory_are_not_for_kvikio(tmp_path: Path) -> None:
    paths, layout, _ = two_files(tmp_path)
    with pytest.raises(ConfigError, match="native"):
        open_bulk_reader(layout, BulkSettings(engine="kvikio"), paths=paths, wrap=lambda engine: engine)
    with pytest.raises(ConfigError, match="native"):
        bam.load_array(np.zeros((4, 4)), bulk=BulkSettings(engine="kvikio"))


def test_kvikio_itself_keeps_the_contract(tmp_path: Path) -> None:
    """Host memory needs no GPU, but a driver library; one that sees no GPU is made here."""
    if importlib.util.find_spec("kvikio") is None:
        pytest.skip("kvikio is not installed (Python 3.11 or newer: see KVIKIO in the Makefile)")
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler for the driver's stub")
    stub = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", stub, HERE / "stub_cuda.cc"], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    results = tmp_path / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}"]
    ran = subprocess.run(
        [*command, HERE / "kvikio_contract.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    suite = ElementTree.parse(results).getroot().find("testsuite")
    assert suite is not None
    assert int(suite.get("tests", 0)) >= 18
    assert int(suite.get("skipped", 1)) == 0
