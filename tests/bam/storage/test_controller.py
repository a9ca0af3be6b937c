"""The software controller: right bytes, right errors to the right caller, no hang, no core burnt."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from controller_contract import BlockReader, ControllerContract
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_controller import SQE

from bam.errors import (
    ClosedError,
    ConfigError,
    EngineUnavailable,
    StorageError,
    TruncatedFileError,
    WaitTimeout,
)
from bam.layout import Layout
from bam.native import available
from bam.storage.controller import SoftwareController
from bam.storage.file import NativeFileEngine
from bam.storage.memory import NativeMemoryEngine
from bam.storage.queue_server import ControllerSettings, QueueServer
from bam.storage.queues import BLOCK_BYTES, BatchState, HostQueues, status_name

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

N_BLOCKS = 2048
DATA = np.random.default_rng(2).integers(0, 256, N_BLOCKS * BLOCK_BYTES, dtype=np.uint8)
BLOCKS = DATA.reshape(-1, BLOCK_BYTES)
WHOLE = Layout.single("memory:0", 0, DATA.nbytes)


@pytest.fixture
def engine() -> Iterator[NativeMemoryEngine]:
    with NativeMemoryEngine([DATA]) as opened:
        assert isinstance(opened, NativeMemoryEngine)
        yield opened


def read(controller: SoftwareController, lbas: np.ndarray, blocks_per_read: int = 1) -> np.ndarray:
    out = np.zeros((len(lbas), blocks_per_read * BLOCK_BYTES), np.uint8)
    controller.read_blocks(lbas, blocks_per_read, out)
    return out


def expected(lbas: np.ndarray, blocks_per_read: int = 1) -> np.ndarray:
    return BLOCKS[lbas[:, None] + np.arange(blocks_per_read)].reshape(len(lbas), -1)


class TestSoftwareController(ControllerContract):
    def contents(self) -> np.ndarray:
        return DATA

    @contextmanager
    def _open(self, n_queue_pairs: int, depth: int) -> Iterator[BlockReader]:
        settings_ = ControllerSettings(max_transfer_bytes=self.max_transfer_bytes)
        with (
            NativeMemoryEngine([DATA]) as engine,
            SoftwareController(
                engine, WHOLE, n_queue_pairs=n_queue_pairs, depth=depth, settings=settings_
            ) as controller,
        ):
            yield controller

    def open(self, n_queue_pairs: int, depth: int) -> AbstractContextManager[BlockReader]:
        return self._open(n_queue_pairs, depth)

    def stop(self, controller: SoftwareController) -> None:
        controller.close()


# ---- bytes


@pytest.mark.parametrize("n_queue_pairs", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_every_number_of_queue_pairs_and_threads(
    engine: NativeMemoryEngine, n_queue_pairs: int, n_threads: int
) -> None:
    if n_threads > n_queue_pairs:
        with pytest.raises(ConfigError, match="n_threads"):
            SoftwareController(
                engine, WHOLE, n_queue_pairs=n_queue_pairs, settings=ControllerSettings(n_threads=n_threads)
            )
        return
    settings_ = ControllerSettings(n_threads=n_threads, read_depth=16)
    with SoftwareController(
        engine, WHOLE, n_queue_pairs=n_queue_pairs, depth=8, settings=settings_
    ) as controller:
        seeds = range(4)
        lists = [np.random.default_rng(seed).integers(0, N_BLOCKS - 8, 500) for seed in seeds]
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda lbas: read(controller, lbas, 8), lists))
        for lbas, out in zip(lists, results, strict=True):
            np.testing.assert_array_equal(out, expected(lbas, 8))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data())
def test_reads_equal_the_array_for_any_layout(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, 40 * BLOCK_BYTES), max_size=4)))
    logical_bytes = data.draw(st.integers((cuts or [0])[-1] + 1, 41 * BLOCK_BYTES))
    edges = [0, *cuts, logical_bytes]
    header = data.draw(st.integers(0, 200))
    content = DATA[:logical_bytes]
    files, pieces = [], []
    for number, (begin, end) in enumerate(pairwise(edges)):
        files.append(np.concatenate([np.full(header, 7, np.uint8), content[begin:end]]))
        pieces.append((f"memory:{number}", header, end - begin))
    blocks_per_read = data.draw(st.integers(1, 9))
    whole = np.zeros(-(-logical_bytes // BLOCK_BYTES) * BLOCK_BYTES, np.uint8)
    whole[:logical_bytes] = content
    settings_ = ControllerSettings(
        max_transfer_bytes=9 * BLOCK_BYTES,
        read_depth=data.draw(st.integers(1, 5)),
        merge_bytes=data.draw(st.sampled_from([0, 10 * BLOCK_BYTES, 1 << 20])),
        bridge_bytes=data.draw(st.sampled_from([0, 3 * BLOCK_BYTES])),
    )
    with (
        NativeMemoryEngine(files) as engine,
        SoftwareController(
            engine, Layout.concatenated(pieces), n_queue_pairs=2, depth=4, settings=settings_
        ) as controller,
    ):
        if controller.n_blocks < blocks_per_read:
            return
        highest = controller.n_blocks - blocks_per_read
        lbas = np.array(data.draw(st.lists(st.integers(0, highest), max_size=30)), np.int64)
        out = read(controller, lbas, blocks_per_read)
    rows = lbas[:, None] * BLOCK_BYTES + np.arange(blocks_per_read * BLOCK_BYTES)
    np.testing.assert_array_equal(out, whole[rows])


def test_striped_files_on_disk(tmp_path: Path) -> None:
    stripe = 4 * BLOCK_BYTES
    paths = [tmp_path / name for name in "ab"]
    for number, path in enumerate(paths):
        path.write_bytes(DATA.reshape(-1, stripe)[number::2].tobytes())
    layout = Layout.striped([str(path) for path in paths], stripe, DATA.nbytes)
    lbas = np.random.default_rng(0).integers(0, N_BLOCKS - 8, 300)
    with NativeFileEngine(paths) as engine, SoftwareController(engine, layout) as controller:
        np.testing.assert_array_equal(read(controller, lbas, 8), expected(lbas, 8))


# ---- errors


def sqe(**fields: int) -> bytes:
    """A good Read of block 0 with some fields changed."""
    entry = np.zeros(1, SQE)
    for name, value in {"opcode": 2, "nsid": 1, "prp1": TARGET.ctypes.data, **fields}.items():
        entry[name] = value
    return entry.tobytes()


TARGET = np.zeros(64 * BLOCK_BYTES, np.uint8)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"opcode": 0}, "Invalid Command Opcode"),
        ({"opcode": 1}, "Invalid Command Opcode"),
        ({"opcode": 0x7F}, "Invalid Command Opcode"),
        ({"flags": 0x40}, "Invalid Field in Command"),
        ({"flags": 1}, "Invalid Field in Command"),
        ({"nsid": 0}, "Invalid Namespace or Format"),
        ({"nsid": 2}, "Invalid Namespace or Format"),
        ({"nsid": 2**32 - 1}, "Invalid Namespace or Format"),
        ({"nlb": 8}, "Invalid Field in Command"),
        ({"nlb": 65535}, "Invalid Field in Command"),
        ({"prp1": 0}, "Data Transfer Error"),
        ({"prp1": TARGET.ctypes.data + 2}, "PRP Offset Invalid"),
        ({"slba": N_BLOCKS}, "LBA Out of Range"),
        ({"slba": N_BLOCKS - 1, "nlb": 1}, "LBA Out of Range"),
        ({"slba": 2**64 - 1}, "LBA Out of Range"),
        ({"slba": 2**64 - 4, "nlb": 7}, "LBA Out of Range"),
    ],
)
def test_a_bad_command_gets_its_status(engine: NativeMemoryEngine, fields: dict[str, int], name: str) -> None:
    settings_ = ControllerSettings(max_transfer_bytes=8 * BLOCK_BYTES)
    with SoftwareController(engine, WHOLE, n_queue_pairs=2, settings=settings_) as controller:
        outcome = controller.queues.command(sqe(**fields), 30.0, pair=1)
        assert (outcome.state, outcome.do_not_retry) == (BatchState.FAILED, True)
        assert status_name(outcome.status) == name
        assert (outcome.dw0, outcome.dw1) == (0, 0)
        assert controller.stats().errors == 1
        good = controller.queues.command(sqe(slba=N_BLOCKS - 8, nlb=7), 30.0, pair=1)
        assert good.state is BatchState.DONE
        np.testing.assert_array_equal(TARGET[: 8 * BLOCK_BYTES], DATA[-8 * BLOCK_BYTES :])


def test_a_failed_read_names_file_offset_and_errno_and_hits_nobody_else() -> None:
    # The second file lacks the last 4 of its 16 blocks.
    files = [DATA[: 16 * BLOCK_BYTES], DATA[16 * BLOCK_BYTES : 28 * BLOCK_BYTES]]
    layout = Layout.concatenated([("memory:0", 0, 16 * BLOCK_BYTES), ("memory:1", 0, 16 * BLOCK_BYTES)])

    def attempt(controller: SoftwareController, lbas: np.ndarray) -> StorageError | np.ndarray:
        try:
            return read(controller, lbas)
        except StorageError as error:
            return error

    good = np.arange(28)
    bad = np.array([0, 29, 3, 28, 31])
    with (
        NativeMemoryEngine(files) as engine,
        SoftwareController(engine, layout, n_queue_pairs=2, depth=4) as controller,
        ThreadPoolExecutor(6) as pool,
    ):
        results = list(pool.map(lambda lbas: attempt(controller, lbas), [good, bad] * 30))
        stats = controller.stats()
    for out in results[::2]:
        assert isinstance(out, np.ndarray)
        np.testing.assert_array_equal(out, BLOCKS[good])
    for error in results[1::2]:
        assert isinstance(error, TruncatedFileError)
        assert (error.file, error.offset, error.errno) == ("memory:1", 13 * BLOCK_BYTES, errno.ENODATA)
        assert error.length == BLOCK_BYTES
        assert error.note == "Deallocated or Unwritten Logical Block"
    assert stats.errors == 3 * 30


def test_a_file_truncated_while_open(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(DATA.tobytes())
    layout = Layout.single(str(path), 0, DATA.nbytes)
    with NativeFileEngine([path]) as engine, SoftwareController(engine, layout) as controller:
        os.truncate(path, 1024 * BLOCK_BYTES)
        with pytest.raises(StorageError) as caught:
            read(controller, np.array([0, 1500]))
        assert caught.value.errno == errno.ENODATA
        assert caught.value.file == str(path)
        np.testing.assert_array_equal(read(controller, np.array([3])), BLOCKS[[3]])


def test_error_records_are_kept_for_the_last_1024_errors(engine: NativeMemoryEngine) -> None:
    layout = Layout.single("memory:0", 0, DATA.nbytes + 8 * BLOCK_BYTES)
    with SoftwareController(engine, layout, n_queue_pairs=1) as controller:
        for _ in range(1030):
            assert controller.queues.command(sqe(slba=N_BLOCKS + 2), 30.0).status == 0x287
        assert controller.server.error(6) is None
        record = controller.server.error(7)
        assert record is not None
        assert (record.slba, record.n_blocks, record.file) == (N_BLOCKS + 2, 1, 0)
        assert (record.errno, controller.server.error(0)) == (errno.ENODATA, None)
        assert controller.server.error(1031) is None


def test_destinations_and_lists_of_other_kinds_are_refused(engine: NativeMemoryEngine) -> None:
    lba = np.zeros(1, np.int64)
    room = np.zeros(4 * BLOCK_BYTES, np.uint8)
    frozen = np.zeros((1, BLOCK_BYTES), np.uint8)
    frozen.flags.writeable = False
    with SoftwareController(engine, WHOLE) as controller:
        for out in (
            room[1 : 1 + BLOCK_BYTES].reshape(1, -1),
            room[::2][:BLOCK_BYTES].reshape(1, -1)[:, ::-1],
            frozen,
            np.zeros((1, BLOCK_BYTES), np.int8),
        ):
            with pytest.raises(ConfigError, match="out"):
                controller.read_blocks(lba, 1, out)
        for lbas in (np.zeros((1, 1), np.int64), np.zeros(1, np.int32)):
            with pytest.raises(ConfigError, match="lbas"):
                controller.read_blocks(lbas, 1, np.zeros((1, BLOCK_BYTES), np.uint8))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("n_threads", 0), ("read_depth", 0), ("max_transfer_bytes", 100), ("max_transfer_bytes", 2**25 + 512)],
)
def test_settings_that_cannot_work(setting: str, value: int) -> None:
    with pytest.raises(ConfigError, match=setting):
        ControllerSettings(**{setting: value})


def test_a_core_that_does_not_exist(engine: NativeMemoryEngine) -> None:
    with pytest.raises(EngineUnavailable, match="core 1000000"):
        SoftwareController(engine, WHOLE, settings=ControllerSettings(cores=(1_000_000,)))
    core = min(os.sched_getaffinity(0))
    with SoftwareController(engine, WHOLE, settings=ControllerSettings(cores=(core,))) as controller:
        np.testing.assert_array_equal(read(controller, np.arange(5)), BLOCKS[:5])


def test_a_doorbell_that_is_no_slot_is_counted_and_ignored(engine: NativeMemoryEngine) -> None:
    queues = HostQueues(1, 4)
    server = QueueServer(engine, WHOLE, queues.pairs, ControllerSettings())
    doorbell = ctypes.c_uint32.from_address(queues.pairs[0].sq_doorbell)
    doorbell.value = 4
    deadline = time.monotonic() + 30
    while server.stats().invalid_doorbells == 0 and time.monotonic() < deadline:
        time.sleep(0.001)
    doorbell.value = 0
    out = np.zeros((3, BLOCK_BYTES), np.uint8)
    assert queues.read(np.arange(3, dtype=np.uint64), 1, out, 30.0).state is BatchState.DONE
    assert (server.stats().invalid_doorbells, server.stats().commands) == (1, 3)
    server.close()
    queues.close()


# ---- stop, time-outs, idling


def test_a_dead_controller_raises_wait_timeout_and_keeps_the_destination(engine: NativeMemoryEngine) -> None:
    controller = SoftwareController(engine, WHOLE, n_queue_pairs=1, depth=4, timeout_s=0.1)
    controller.server.stop()
    out = np.zeros((9, BLOCK_BYTES), np.uint8)
    alive = weakref.ref(out)
    with pytest.raises(WaitTimeout, match="9 of 9 reads"):
        controller.read_blocks(np.arange(9), 1, out)
    del out
    gc.collect()
    assert alive() is not None
    controller.close()
    gc.collect()
    assert alive() is None


def test_after_stop_reads_are_refused_and_counters_remain(engine: NativeMemoryEngine) -> None:
    controller = SoftwareController(engine, WHOLE)
    read(controller, np.arange(10))
    controller.stop()
    controller.stop()
    with pytest.raises(ClosedError):
        read(controller, np.arange(10))
    assert controller.stats().commands == 10
    controller.close()


def test_an_idle_controller_leaves_the_cores_alone(engine: NativeMemoryEngine) -> None:
    settings_ = ControllerSettings(n_threads=4)
    with SoftwareController(engine, WHOLE, n_queue_pairs=8, settings=settings_) as controller:
        read(controller, np.arange(100))
        before, sleeps = time.process_time(), controller.stats().idle_sleeps
        time.sleep(1)
        # Four threads that poll would use all cores: two seconds and more.
        assert time.process_time() - before < 0.5
        assert controller.stats().idle_sleeps > sleeps
        np.testing.assert_array_equal(read(controller, np.arange(100)), BLOCKS[:100])


def test_an_engine_closed_before_and_after_the_controller_starts(engine: NativeMemoryEngine) -> None:
    with SoftwareController(engine, WHOLE) as controller:
        engine.close()
        np.testing.assert_array_equal(read(controller, np.arange(9)), BLOCKS[:9])
    with pytest.raises(ClosedError):
        SoftwareController(engine, WHOLE)


def test_a_controller_nobody_holds_ends_its_threads(engine: NativeMemoryEngine) -> None:
    def n_threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = n_threads()
    controller = SoftwareController(engine, WHOLE, settings=ControllerSettings(n_threads=2))
    assert n_threads() == before + 2
    del controller
    gc.collect()
    assert n_threads() == before
