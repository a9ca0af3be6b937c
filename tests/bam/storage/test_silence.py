"""Disks that do not answer: every wait ends, closing too, and what is still written to stays."""

from __future__ import annotations

import errno
import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from engine_contract import random_bytes, write_files

import bam
from bam.errors import StorageError, WaitTimeout
from bam.layout import Layout
from bam.native import available
from bam.storage import (
    FaultKind,
    FaultRule,
    FileEngine,
    NativeFaultEngine,
    handle,
    python_engine,
    read_ranges,
)
from bam.storage.buffers import aligned_buffer
from bam.storage.controller import SoftwareController
from bam.storage.engine import Engine, ReadSpan
from bam.storage.leftovers import bytes_left_behind
from bam.storage.memory import NativeMemoryEngine
from bam.storage.native import NativeEngine
from bam.storage.queue_server import ControllerSettings, QueueServer
from bam.storage.queues import BatchState, HostQueues

native = pytest.mark.skipif(not available(), reason="the native library was not built")
ROWS = np.random.default_rng(0).integers(0, 256, (600, 512), np.uint8)
SILENT = FaultRule(FaultKind.SILENCE, every=1)


def never_answers(engine: Engine) -> Engine:
    assert isinstance(engine, NativeEngine)
    return NativeFaultEngine(engine, [SILENT])


def answers_late(engine: Engine) -> Engine:
    assert isinstance(engine, NativeEngine)
    return NativeFaultEngine(engine, [FaultRule(FaultKind.DELAY, every=1, delay_us=700_000)])


@pytest.fixture(params=["uring", "file"])
def open_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., bam.VirtualArray]:
    path = tmp_path / "rows.npy"
    np.save(path, ROWS)

    def open_with(wrap: Callable[[Engine], Engine], **settings: float) -> bam.VirtualArray:
        try:
            return bam.open_array(path, engine=request.param, wrap=wrap, **settings)
        except bam.EngineUnavailable as refusal:
            pytest.skip(str(refusal))

    return open_with


@native
def test_closing_after_a_time_out(
    open_rows: Callable[..., bam.VirtualArray], caplog: pytest.LogCaptureFixture
) -> None:
    array = open_rows(never_answers, timeout_s=0.05, close_timeout_s=0.05)
    path = array._description.files[0].path
    with pytest.raises(WaitTimeout) as caught:
        array[[9, 300]]
    error = caught.value
    assert (error.file, error.errno, error.length) == (path, errno.ETIMEDOUT, 4096)
    assert (error.page_id, error.offset) == (1, 128 + 4096)
    before = bytes_left_behind()
    with caplog.at_level(logging.WARNING), pytest.raises(WaitTimeout, match="the end of 2 reads") as caught:
        array.close()
    assert (caught.value.file, caught.value.timeout_s) == (path, 0.05)
    assert "left behind" in caplog.text
    assert bytes_left_behind() > before
    array.close()
    with pytest.raises(bam.ClosedError):
        array[0]


@native
def test_closing_waits_for_reads_that_end(open_rows: Callable[..., bam.VirtualArray]) -> None:
    before = bytes_left_behind()
    with open_rows(answers_late, timeout_s=0.05, close_timeout_s=30) as array, pytest.raises(WaitTimeout):
        array[0]
    assert bytes_left_behind() == before


@native
def test_several_threads_give_up_and_closing_takes_one_time_out(
    open_rows: Callable[..., bam.VirtualArray],
) -> None:
    array = open_rows(never_answers, timeout_s=0.05, close_timeout_s=0.2)

    def read(row: int) -> str:
        with pytest.raises(WaitTimeout) as caught:
            array[row]
        return str(caught.value)

    with ThreadPoolExecutor(4) as pool:
        assert all("waited 0.05 s" in told for told in pool.map(read, range(0, 400, 100)))
    with pytest.raises(WaitTimeout, match="the end of 4 reads"):
        array.close()


@native
@pytest.mark.parametrize("close_timeout_s", [-1, float("nan"), 1e7, "soon"])
def test_time_outs_that_make_no_sense(close_timeout_s: float) -> None:
    with pytest.raises(bam.ConfigError, match="close_timeout_s"):
        bam.open_array(ROWS, close_timeout_s=close_timeout_s)
    with pytest.raises(bam.ConfigError, match="close_timeout_s"):
        ControllerSettings(close_timeout_s=close_timeout_s)


@native
def test_a_controller_stops_without_an_answer() -> None:
    memory = NativeMemoryEngine([ROWS.tobytes()])
    engine = NativeFaultEngine(memory, [SILENT])
    settings = ControllerSettings(close_timeout_s=0.05)
    controller = SoftwareController(engine, Layout.single("a", 0, ROWS.nbytes), settings=settings)
    raised: list[StorageError] = []

    out = np.zeros((1, 512), np.uint8)
    destination = weakref.ref(out)

    def read(out: np.ndarray) -> None:
        with pytest.raises(StorageError) as caught:
            controller.read_blocks(np.array([3]), 1, out)
        raised.append(caught.value)

    thread = threading.Thread(target=read, args=(out,))
    del out
    thread.start()
    while controller.stats().commands == 0:
        time.sleep(0.001)
    with pytest.raises(WaitTimeout, match="the end of 1 reads of memory:0"):
        controller.stop()
    thread.join(30)
    assert [error.errno for error in raised] == [errno.ETIMEDOUT]
    assert (controller.stats().left_behind, controller.stats().aborted) == (1, 1)
    controller.close()
    controller.close()
    assert destination() is not None  # the disk may still answer


@native
def test_a_server_that_is_only_closed_keeps_the_memory_it_was_given() -> None:
    engine = NativeFaultEngine(NativeMemoryEngine([ROWS.tobytes()]), [SILENT])
    settings = ControllerSettings(close_timeout_s=0.05)
    queues = HostQueues(1, 4)
    destinations = aligned_buffer(4096)
    kept = weakref.ref(destinations)
    layout = Layout.single("a", 0, ROWS.nbytes)
    server = QueueServer(engine, layout, queues.pairs, settings, destinations)
    outcome = queues.read(np.zeros(1, np.uint64), 1, destinations[:512].reshape(1, -1), 0.05)
    assert outcome.state is BatchState.TIMED_OUT
    with pytest.raises(WaitTimeout, match="the end of 1 reads"):
        server.close()
    server.close()
    queues.close()
    del server, destinations
    assert kept() is not None


@native
def test_ranges_without_an_answer() -> None:
    rules = [FaultRule(FaultKind.SILENCE, nth=2)]
    with NativeMemoryEngine([ROWS.tobytes()]) as memory, NativeFaultEngine(memory, rules) as engine:
        reads = read_ranges(engine, Layout.single("a", 0, ROWS.nbytes), [0, 512], [512, 512], timeout_s=0.05)
    assert (reads.bytes[0] == ROWS[0]).all()
    assert reads.errors[0] is None
    assert reads.errors[1] is not None
    assert (reads.errors[1].errno, reads.errors[1].offset) == (errno.ETIMEDOUT, 512)


def test_silence_is_for_native_engines(tmp_path: Path) -> None:
    (path,) = write_files(tmp_path, [random_bytes(512, 1)])
    with FileEngine([path]) as engine, pytest.raises(bam.ConfigError, match="native"):
        bam.storage.FaultEngine(engine, [SILENT])


def test_closing_a_python_engine_that_reads_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_engine, "CLOSE_TIMEOUT_S", 0.05)
    engine = FileEngine(write_files(tmp_path, [random_bytes(4096, 1)]))
    begun, answered = threading.Event(), threading.Event()

    def read_span(span: ReadSpan, buffer: object) -> int:
        begun.set()
        answered.wait(30)
        return 0

    monkeypatch.setattr(engine, "_read_span", read_span)
    thread = threading.Thread(target=engine.read, args=([ReadSpan(0, 0, 4096)], [aligned_buffer(4096)]))
    thread.start()
    begun.wait(30)
    with pytest.raises(WaitTimeout, match="1 reads by other threads"):
        engine.close()
    answered.set()
    thread.join(30)


@native
def test_closing_a_handle_that_is_used_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "CLOSE_TIMEOUT_S", 0.05)
    used = handle.NativeHandle(1, "bam_queues_destroy", "queue pairs")
    with used.use(), pytest.raises(WaitTimeout, match="1 calls of queue pairs"):
        used.close()
    used.close()
