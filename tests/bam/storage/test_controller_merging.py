"""A software controller that reads neighbours together: the same bytes and statuses, by fewer reads."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from controller_contract import BlockReader, ControllerContract

from bam.errors import ConfigError
from bam.layout import Layout
from bam.native import available
from bam.storage.controller import SoftwareController
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from bam.storage.file import NativeFileEngine
from bam.storage.memory import NativeMemoryEngine
from bam.storage.native import NativeEngine
from bam.storage.queue_server import ControllerSettings, ControllerStats, QueueServer
from bam.storage.queues import BLOCK_BYTES, BatchOutcome, BatchState, HostQueues

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

N_BLOCKS = 2048
DATA = np.random.default_rng(2).integers(0, 256, N_BLOCKS * BLOCK_BYTES, dtype=np.uint8)
BLOCKS = DATA.reshape(-1, BLOCK_BYTES)
WHOLE = Layout.single("memory:0", 0, DATA.nbytes)


class TestMergingController(ControllerContract):
    n_commands = 20_003
    max_transfer_bytes = 8 << 10

    def contents(self) -> np.ndarray:
        return DATA

    @contextmanager
    def _open(self, n_queue_pairs: int, depth: int) -> Iterator[BlockReader]:
        settings = ControllerSettings(
            max_transfer_bytes=self.max_transfer_bytes,
            merge_bytes=64 << 10,
            bridge_bytes=4 << 10,
            read_depth=8,
        )
        with (
            NativeMemoryEngine([DATA]) as engine,
            SoftwareController(
                engine, WHOLE, n_queue_pairs=n_queue_pairs, depth=depth, settings=settings
            ) as controller,
        ):
            yield controller

    def open(self, n_queue_pairs: int, depth: int) -> AbstractContextManager[BlockReader]:
        return self._open(n_queue_pairs, depth)

    def stop(self, controller: SoftwareController) -> None:
        controller.close()


def read_at_once(
    engine: NativeEngine, layout: Layout, lbas: Sequence[int], out: np.ndarray, **settings: int
) -> tuple[list[BatchOutcome], ControllerStats]:
    """A command a block, all in the queues before the controller starts; how each ended."""
    queues = HostQueues(2, 64)
    try:
        with ThreadPoolExecutor(len(lbas)) as pool:

            def read_one(number: int) -> BatchOutcome:
                return queues.read(np.array([lbas[number]], np.uint64), 1, out[number : number + 1], 30.0)

            running = [pool.submit(read_one, number) for number in range(len(lbas))]
            while queues.stats().commands < len(lbas):
                time.sleep(0.001)
            chosen = {"max_transfer_bytes": BLOCK_BYTES, "read_depth": 64, **settings}
            server = QueueServer(engine, layout, queues.pairs, ControllerSettings(**chosen))
            try:
                outcomes = [each.result() for each in running]
                return outcomes, server.stats()
            finally:
                server.close()
    finally:
        queues.close()


@pytest.mark.parametrize(
    ("lbas", "bridge", "n_reads", "n_blocks_read"),
    [
        (range(32), 0, 2, 32),  # 16 blocks are the longest
        ([5, 6, 8, 9, 30], 0, 3, 5),
        ([5, 6, 8, 9, 30], 1, 2, 6),  # over the hole at 7
        ([7, 7, 7, 8, 6, 8], 0, 1, 3),
        ([N_BLOCKS - 1, N_BLOCKS - 2, 0], 0, 2, 3),
        ([0, 16, 32, 48], 15, 4, 4),  # 17 blocks would be too many
    ],
)
@pytest.mark.parametrize("order", ["as asked", "shuffled"])
def test_neighbours_are_read_together(
    lbas: Sequence[int], bridge: int, n_reads: int, n_blocks_read: int, order: str
) -> None:
    asked = np.array(lbas)
    if order == "shuffled":
        np.random.default_rng(1).shuffle(asked)
    out = np.zeros((len(asked), BLOCK_BYTES), np.uint8)
    rules = {"merge_bytes": 16 * BLOCK_BYTES, "bridge_bytes": bridge * BLOCK_BYTES}
    with NativeMemoryEngine([DATA]) as engine:
        outcomes, stats = read_at_once(engine, WHOLE, asked.tolist(), out, **rules)
    assert all(outcome.state is BatchState.DONE for outcome in outcomes)
    np.testing.assert_array_equal(out, BLOCKS[asked])
    assert (stats.reads, stats.bytes_read) == (n_reads, n_blocks_read * BLOCK_BYTES)
    assert (stats.commands_read, stats.bytes_useful) == (len(asked), len(asked) * BLOCK_BYTES)
    assert stats.commands_per_read == len(asked) / n_reads
    assert stats.commands_merged >= 2 * (len(asked) > n_reads)


def test_without_merging_each_command_is_a_read() -> None:
    out = np.zeros((8, BLOCK_BYTES), np.uint8)
    with NativeMemoryEngine([DATA]) as engine:
        for off in (0, BLOCK_BYTES):
            _, stats = read_at_once(engine, WHOLE, range(8), out, merge_bytes=off, bridge_bytes=4096)
            assert (stats.reads, stats.commands_merged, stats.commands_per_read) == (8, 0, 1.0)


def test_a_merged_read_that_fails_is_made_again_for_each_command() -> None:
    rule = FaultRule(FaultKind.ERROR, nth=1, errno=errno.EREMOTEIO)
    out = np.zeros((16, BLOCK_BYTES), np.uint8)
    with NativeMemoryEngine([DATA]) as memory, NativeFaultEngine(memory, [rule]) as engine:
        outcomes, stats = read_at_once(engine, WHOLE, range(16), out, merge_bytes=1 << 16)
    assert all(outcome.state is BatchState.DONE for outcome in outcomes)
    np.testing.assert_array_equal(out, BLOCKS[:16])
    assert (stats.reads, stats.errors, stats.commands_read) == (17, 0, 16)


@pytest.mark.parametrize("whole_blocks", [True, False])
def test_commands_alone_fail_whose_bytes_are_missing(tmp_path: Path, whole_blocks: bool) -> None:
    """A file that was cut in the middle of a run, at a block or inside one."""
    path = tmp_path / "data"
    path.write_bytes(DATA.tobytes())
    layout = Layout.single(str(path), 0, DATA.nbytes)
    cut = 10 * BLOCK_BYTES + (0 if whole_blocks else 100)
    out = np.zeros((16, BLOCK_BYTES), np.uint8)
    with NativeFileEngine([path]) as engine:
        with path.open("r+b") as file:
            file.truncate(cut)
        outcomes, stats = read_at_once(engine, layout, range(16), out, merge_bytes=1 << 16, read_depth=2)
    failed = [outcome.state is BatchState.FAILED for outcome in outcomes]
    assert failed == [number >= 10 for number in range(16)]
    assert {outcome.dw0 for outcome in outcomes[10:]} == {errno.ENODATA}
    np.testing.assert_array_equal(out[:10], BLOCKS[:10])
    assert (stats.errors, stats.commands_read) == (6, 10)


def test_bytes_are_right_over_short_and_failing_reads() -> None:
    rules = [
        FaultRule(FaultKind.SHORT_READ, every=3, n_bytes=700),
        FaultRule(FaultKind.ERROR, every=5, errno=errno.EINTR),
        FaultRule(FaultKind.ERROR, every=53, errno=errno.EIO),
    ]
    settings = ControllerSettings(
        max_transfer_bytes=BLOCK_BYTES, merge_bytes=1 << 14, bridge_bytes=1 << 10, read_depth=4, n_threads=2
    )
    rng = np.random.default_rng(0)
    with (
        NativeMemoryEngine([DATA]) as memory,
        NativeFaultEngine(memory, rules, reorder_window=5, reorder_seed=1) as engine,
        SoftwareController(engine, WHOLE, n_queue_pairs=3, depth=64, settings=settings) as controller,
    ):
        failed = 0
        for _ in range(60):
            lbas = rng.integers(0, 300, 100)
            out = np.zeros((100, BLOCK_BYTES), np.uint8)
            outcome = controller.queues.read(lbas.astype(np.uint64), 1, out, 30.0)
            if outcome.state is BatchState.DONE:
                np.testing.assert_array_equal(out, BLOCKS[lbas])
            else:
                failed += 1
                assert outcome.dw0 == errno.EIO
        stats = controller.stats()
    assert 0 < failed < 60, stats
    assert stats.commands_merged > 1000
    assert stats.commands_read + stats.errors == 6000


@pytest.mark.parametrize("name", ["merge_bytes", "bridge_bytes"])
def test_rules_that_cannot_work(name: str) -> None:
    for value in (-1, 65 << 20):
        with pytest.raises(ConfigError, match=name):
            ControllerSettings(**{name: value})
