"""The software controller over engines that fail, are slow, or finish reads in another order."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from bam.errors import ClosedError, FileChangedError, StorageError, WaitTimeout
from bam.layout import Layout
from bam.native import available
from bam.storage.controller import SoftwareController
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from bam.storage.latency import LatencyEngine, LognormalLatency, SsdModel
from bam.storage.memory import NativeMemoryEngine
from bam.storage.queue_server import ControllerSettings
from bam.storage.queues import BLOCK_BYTES

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

N_BLOCKS = 256
DATA = np.random.default_rng(3).integers(0, 256, N_BLOCKS * BLOCK_BYTES, dtype=np.uint8)
BLOCKS = DATA.reshape(-1, BLOCK_BYTES)
WHOLE = Layout.single("memory:0", 0, DATA.nbytes)


@pytest.fixture
def memory() -> Iterator[NativeMemoryEngine]:
    engine = NativeMemoryEngine([DATA])
    yield engine
    engine.close()


def slow(inner: NativeMemoryEngine, latency_s: float) -> LatencyEngine:
    return LatencyEngine(inner, SsdModel(1e6, 1e12, LognormalLatency(latency_s * 1e6)))


def read(controller: SoftwareController, lbas: np.ndarray) -> np.ndarray:
    out = np.zeros((len(lbas), BLOCK_BYTES), np.uint8)
    controller.read_blocks(lbas, 1, out)
    return out


@pytest.mark.parametrize(
    ("code", "kind", "note"),
    [
        (errno.EIO, StorageError, "Unrecovered Read Error"),
        (errno.ESTALE, FileChangedError, "Invalid Namespace or Format"),
        (errno.EACCES, StorageError, "Access Denied"),
        (errno.ENOMEM, StorageError, "Internal Error"),
    ],
)
def test_an_error_on_the_nth_read_reaches_the_caller_of_that_read(
    memory: NativeMemoryEngine, code: int, kind: type[StorageError], note: str
) -> None:
    lbas = np.arange(0, 6)
    for nth in range(1, 8):
        faulty = NativeFaultEngine(memory, [FaultRule(FaultKind.ERROR, nth=nth, errno=code)])
        with faulty, SoftwareController(faulty, WHOLE, n_queue_pairs=1, depth=4) as controller:
            if nth > len(lbas):
                np.testing.assert_array_equal(read(controller, lbas), BLOCKS[lbas])
                continue
            with pytest.raises(kind) as caught:
                read(controller, lbas)
            error = caught.value
            assert (error.file, error.errno, error.length) == ("memory:0", code, BLOCK_BYTES)
            assert error.offset == (nth - 1) * BLOCK_BYTES
            assert error.note == note
            np.testing.assert_array_equal(read(controller, lbas), BLOCKS[lbas])
            assert controller.stats().errors == 1


def test_an_error_of_one_caller_is_not_the_others(memory: NativeMemoryEngine) -> None:
    # File 1 fails always, file 0 never.
    halves = [DATA[: DATA.nbytes // 2], DATA[DATA.nbytes // 2 :]]
    layout = Layout.concatenated([(f"memory:{i}", 0, len(half)) for i, half in enumerate(halves)])
    rule = FaultRule(FaultKind.ERROR, every=1, file=1)
    good, bad = np.arange(100), np.arange(50, 150)

    def attempt(lbas: np.ndarray) -> np.ndarray | StorageError:
        try:
            return read(controller, lbas)
        except StorageError as error:
            return error

    with (
        NativeMemoryEngine(halves) as engine,
        NativeFaultEngine(engine, [rule], reorder_window=4) as faulty,
        SoftwareController(faulty, layout, n_queue_pairs=2, depth=8) as controller,
        ThreadPoolExecutor(4) as pool,
    ):
        results = list(pool.map(attempt, [good, bad] * 10))
    for found in results[::2]:
        assert isinstance(found, np.ndarray)
        np.testing.assert_array_equal(found, BLOCKS[good])
    for found in results[1::2]:
        assert isinstance(found, StorageError)
        assert (found.file, found.offset, found.errno) == ("memory:1", 0, errno.EIO)


def test_short_and_interrupted_reads_and_any_order_change_no_byte(memory: NativeMemoryEngine) -> None:
    rules = [
        FaultRule(FaultKind.SHORT_READ, every=3, n_bytes=100),
        FaultRule(FaultKind.ERROR, every=5, errno=errno.EINTR),
        FaultRule(FaultKind.ERROR, every=7, errno=errno.EAGAIN),
    ]
    lists = [np.random.default_rng(seed).integers(0, N_BLOCKS, 400) for seed in range(3)]
    with (
        NativeFaultEngine(memory, rules, reorder_window=5, reorder_seed=1) as faulty,
        SoftwareController(faulty, WHOLE, n_queue_pairs=2, depth=16) as controller,
        ThreadPoolExecutor(3) as pool,
    ):
        for lbas, out in zip(lists, pool.map(lambda lbas: read(controller, lbas), lists), strict=True):
            np.testing.assert_array_equal(out, BLOCKS[lbas])
        stats = controller.stats()
    assert stats.errors == 0
    assert stats.reads > stats.commands


@pytest.mark.parametrize("merge_bytes", [0, 1 << 20])
def test_stop_finishes_reads_in_flight_and_aborts_the_rest(
    memory: NativeMemoryEngine, merge_bytes: int
) -> None:
    outcome: list[Exception] = []
    out = np.zeros((15, BLOCK_BYTES), np.uint8)
    lbas = 2 * np.arange(15)  # no neighbours

    def read_all() -> None:
        try:
            controller.read_blocks(lbas, 1, out)
        except StorageError as error:
            outcome.append(error)

    settings = ControllerSettings(read_depth=2, merge_bytes=merge_bytes)
    with (
        slow(memory, 0.5) as engine,
        SoftwareController(engine, WHOLE, n_queue_pairs=1, depth=16, settings=settings) as controller,
    ):
        thread = threading.Thread(target=read_all)
        thread.start()
        while controller.queue_stats().commands < 15 or controller.stats().commands < 2:
            time.sleep(0.001)
        controller.stop()
        thread.join(30)
        stats = controller.stats()
    assert stats.commands == 15
    finished = 15 - stats.aborted
    assert stats.aborted > 0
    assert finished >= 2
    np.testing.assert_array_equal(out[:finished], BLOCKS[lbas[:finished]])
    assert not out[finished:].any()
    (error,) = outcome
    assert isinstance(error, StorageError)
    assert (error.errno, error.note) == (errno.ECANCELED, "Command Aborted due to SQ Deletion")
    assert error.offset == lbas[finished] * BLOCK_BYTES


def test_commands_not_yet_submitted_at_a_stop_end_as_closed(memory: NativeMemoryEngine) -> None:
    endings: list[type[Exception]] = []

    def read_all() -> None:
        try:
            read(controller, np.arange(200))
        except (ClosedError, StorageError) as error:
            endings.append(type(error))

    with (
        slow(memory, 0.1) as engine,
        SoftwareController(engine, WHOLE, n_queue_pairs=1, depth=2) as controller,
    ):
        threads = [threading.Thread(target=read_all) for _ in range(2)]
        for thread in threads:
            thread.start()
        while controller.stats().commands < 2:
            time.sleep(0.001)
        controller.stop()
        for thread in threads:
            thread.join(30)
    assert len(endings) == 2
    assert ClosedError in endings


def test_a_slow_read_times_out_and_the_controller_stays_usable(memory: NativeMemoryEngine) -> None:
    with (
        slow(memory, 0.4) as engine,
        SoftwareController(engine, WHOLE, n_queue_pairs=1, depth=4, timeout_s=0.05) as controller,
    ):
        out = np.zeros((1, BLOCK_BYTES), np.uint8)
        with pytest.raises(WaitTimeout, match="1 of 1 reads"):
            controller.read_blocks(np.array([7]), 1, out)
        controller.timeout_s = 30.0
        np.testing.assert_array_equal(read(controller, np.arange(6)), BLOCKS[:6])
        # The late read ended where it was told to.
        np.testing.assert_array_equal(out, BLOCKS[[7]])


def test_a_long_batch_that_makes_progress_does_not_time_out(memory: NativeMemoryEngine) -> None:
    with (
        slow(memory, 0.05) as engine,
        SoftwareController(engine, WHOLE, n_queue_pairs=1, depth=2, timeout_s=1.0) as controller,
    ):
        np.testing.assert_array_equal(read(controller, np.arange(24)), BLOCKS[:24])
