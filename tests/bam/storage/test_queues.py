"""Queue pairs against a controller written in Python from the specification."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from recording_controller import RecordingController

from bam.errors import ClosedError, ConfigError
from bam.native import available
from bam.storage.queues import BLOCK_BYTES, BatchState, HostQueues, QueueLife

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

DATA = np.random.default_rng(1).integers(0, 256, 64 * BLOCK_BYTES, dtype=np.uint8)
BLOCKS = DATA.reshape(-1, BLOCK_BYTES)


def read(queues: HostQueues, slbas: np.ndarray, timeout_s: float = 30.0) -> tuple[BatchState, np.ndarray]:
    out = np.zeros((len(slbas), BLOCK_BYTES), np.uint8)
    return queues.read(slbas.astype(np.uint64), 1, out, timeout_s).state, out


@pytest.mark.parametrize("depth", [2, 4, 16])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_commands_that_complete_in_any_order_keep_every_rule(depth: int, n_threads: int) -> None:
    queues = HostQueues(1, depth)
    controller = RecordingController(queues.pairs[0], DATA, seed=depth, hold=depth // 2)
    controller.start()
    batches = [np.random.default_rng(seed).integers(0, len(BLOCKS), 70) for seed in range(3 * n_threads)]
    with ThreadPoolExecutor(n_threads) as pool:
        results = list(pool.map(lambda slbas: read(queues, slbas), batches))
    controller.stop()
    for slbas, (state, out) in zip(batches, results, strict=True):
        assert state is BatchState.DONE
        np.testing.assert_array_equal(out, BLOCKS[slbas])
    total = sum(map(len, batches))
    assert controller.errors == []
    assert controller.fetched == controller.posted == total
    assert controller.most_outstanding == depth - 1
    assert (controller.overtaken > 0) == (depth > 2)
    stats = queues.stats()
    assert (stats.commands, stats.timeouts) == (total, 0)
    assert 0 < stats.max_outstanding < depth
    assert 0 < stats.sq_doorbell_writes <= total
    assert 0 < stats.cq_doorbell_writes <= total
    queues.close()


def test_every_command_id_is_used_and_none_lies_outside_the_queue() -> None:
    queues = HostQueues(1, 8)
    controller = RecordingController(queues.pairs[0], DATA, hold=4)
    controller.start()
    assert read(queues, np.arange(400) % 64)[0] is BatchState.DONE
    controller.stop()
    assert set(Counter(controller.cids)) == set(range(8))
    queues.close()


def test_a_run_of_commands_rings_the_doorbell_once() -> None:
    queues = HostQueues(1, 64)
    controller = RecordingController(queues.pairs[0], DATA)
    controller.start()
    assert read(queues, np.arange(32))[0] is BatchState.DONE
    controller.stop()
    assert queues.stats().sq_doorbell_writes == 1
    queues.close()


def test_without_a_controller_every_waiting_call_times_out() -> None:
    queues = HostQueues(2, 4)
    slbas = np.arange(10)
    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(lambda _: read(queues, slbas, 0.05)[0], range(3)))
    assert states == [BatchState.TIMED_OUT] * 3
    assert queues.stats().timeouts == 3
    # All credit is gone, so these cannot even be submitted.
    assert queues.stats().commands == 2 * 3
    outcome = queues.read(slbas.astype(np.uint64), 1, np.zeros((10, BLOCK_BYTES), np.uint8), 0.0)
    assert (outcome.state, outcome.position) == (BatchState.TIMED_OUT, 0)
    queues.close()


def test_a_controller_that_comes_late_finds_the_commands_and_the_credit_returns() -> None:
    queues = HostQueues(1, 4)
    kept = np.zeros((3, BLOCK_BYTES), np.uint8)
    assert queues.read(np.array([5, 6, 7], np.uint64), 1, kept, 0.0).state is BatchState.TIMED_OUT
    controller = RecordingController(queues.pairs[0], DATA)
    controller.start()
    state, out = read(queues, np.arange(20))
    controller.stop()
    assert state is BatchState.DONE
    np.testing.assert_array_equal(out, BLOCKS[:20])
    np.testing.assert_array_equal(kept, BLOCKS[5:8])
    assert controller.errors == []
    queues.close()


def test_closing_ends_calls_that_wait() -> None:
    queues = HostQueues(1, 4)
    found: list[BatchState] = []
    threads = [threading.Thread(target=lambda: found.append(read(queues, np.arange(9))[0])) for _ in range(2)]
    for thread in threads:
        thread.start()
    while queues.stats().commands < 3:
        time.sleep(0.001)
    queues.set_life(QueueLife.CLOSING)
    queues.set_life(QueueLife.DEAD)
    for thread in threads:
        thread.join(30)
    assert found == [BatchState.CLOSED] * 2
    assert read(queues, np.arange(2))[0] is BatchState.CLOSED
    queues.close()
    queues.close()
    with pytest.raises(ClosedError):
        read(queues, np.arange(2))


@pytest.mark.parametrize("depth", [0, 1, 3, 65536])
def test_depths_that_cannot_work(depth: int) -> None:
    with pytest.raises(ConfigError, match="depth"):
        HostQueues(1, depth)


def test_numbers_of_pairs_and_entries_that_cannot_work() -> None:
    with pytest.raises(ConfigError, match="n_queue_pairs"):
        HostQueues(0, 4)
    queues = HostQueues(1, 4)
    with pytest.raises(ConfigError, match="64 bytes"):
        queues.command(b"\x02", 1.0)
    with pytest.raises(ConfigError, match="pair"):
        queues.command(bytes(64), 1.0, pair=1)
    with pytest.raises(ConfigError, match="timeout_s"):
        queues.command(bytes(64), -1.0)
    queues.close()


def test_the_deepest_queue_works() -> None:
    queues = HostQueues(1, 1 << 15)
    controller = RecordingController(queues.pairs[0], DATA)
    controller.start()
    assert read(queues, np.arange(64))[0] is BatchState.DONE
    controller.stop()
    queues.close()
