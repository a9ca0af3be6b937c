"""What every NVMe controller promises host threads, as one suite: the software one, a model, a drive."""

from __future__ import annotations

import errno
import os
import threading
import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest
from recording_controller import SQE

from bam.errors import ClosedError, ConfigError, ForkedError, StorageError
from bam.storage.queues import BatchState, HostQueues, QueueStats, status_name

ByteArray = npt.NDArray[np.uint8]


class BlockReader(Protocol):
    """A controller as host threads use it."""

    n_blocks: int
    queues: HostQueues

    def read_blocks(self, lbas: npt.NDArray[np.int64], blocks_per_read: int, out: ByteArray) -> None: ...
    def read(self, lba: int, n_blocks: int, out: ByteArray) -> None: ...
    def queue_stats(self) -> QueueStats: ...


class ControllerContract(ABC):
    """Subclasses say what the namespace holds and how to open a controller on it."""

    block_bytes = 512
    nsid = 1
    #: More than 100,000: the queue of depth 4 wraps 25,000 times.
    n_commands = 100_003
    max_transfer_bytes = 32 << 10
    most_pairs = 64

    @abstractmethod
    def contents(self) -> ByteArray:
        """The bytes of the namespace, or its beginning; at least 512 blocks."""

    @abstractmethod
    def open(self, n_queue_pairs: int, depth: int) -> AbstractContextManager[BlockReader]:
        """A controller with :attr:`max_transfer_bytes`."""

    @abstractmethod
    def stop(self, controller: Any) -> None:
        """End it while others read."""

    def blocks(self) -> ByteArray:
        return self.contents().reshape(-1, self.block_bytes)

    def expected(self, lbas: npt.NDArray[np.int64], blocks_per_read: int = 1) -> ByteArray:
        return self.blocks()[lbas[:, None] + np.arange(blocks_per_read)].reshape(len(lbas), -1)

    def read(
        self, controller: BlockReader, lbas: npt.NDArray[np.int64], blocks_per_read: int = 1
    ) -> ByteArray:
        out = np.zeros((len(lbas), blocks_per_read * self.block_bytes), np.uint8)
        controller.read_blocks(lbas, blocks_per_read, out)
        return out

    def sqe(self, **fields: int) -> bytes:
        """A Read of block 0 with some fields changed; its data pointer leads nowhere."""
        entry = np.zeros(1, SQE)
        for name, value in {"opcode": 2, "nsid": self.nsid, "prp1": 1 << 16, **fields}.items():
            entry[name] = value
        return entry.tobytes()

    @pytest.mark.parametrize("depth", [2, 4, 128])
    def test_a_hundred_thousand_commands_wrap_the_queue(self, depth: int) -> None:
        count = self.n_commands if depth == 4 else self.n_commands // 10
        lbas = np.random.default_rng(depth).integers(0, len(self.blocks()), count)
        with self.open(1, depth) as controller:
            np.testing.assert_array_equal(self.read(controller, lbas), self.blocks()[lbas])
            stats = controller.queue_stats()
        assert stats.commands == count
        assert stats.max_outstanding < depth
        assert stats.sq_doorbell_writes >= count / min(32, depth - 1)

    @pytest.mark.parametrize("n_queue_pairs", [1, 2, 3, 7, 64])
    def test_every_number_of_queue_pairs(self, n_queue_pairs: int) -> None:
        with self.open(min(n_queue_pairs, self.most_pairs), 8) as controller:
            lists = [
                np.random.default_rng(seed).integers(0, len(self.blocks()) - 8, 200) for seed in range(4)
            ]
            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(lambda lbas: self.read(controller, lbas, 8), lists))
            for lbas, out in zip(lists, results, strict=True):
                np.testing.assert_array_equal(out, self.expected(lbas, 8))

    def test_reads_of_every_length(self) -> None:
        most = self.max_transfer_bytes // self.block_bytes
        with self.open(2, 4) as controller:
            for n_blocks in range(1, most + 1):
                lbas = np.array([0, 5, len(self.blocks()) - n_blocks])
                np.testing.assert_array_equal(
                    self.read(controller, lbas, n_blocks), self.expected(lbas, n_blocks)
                )

    def test_one_read_and_no_read(self) -> None:
        with self.open(1, 4) as controller:
            out = np.zeros(4 * self.block_bytes, np.uint8)
            controller.read(3, 4, out)
            np.testing.assert_array_equal(out, self.contents()[3 * self.block_bytes :][: len(out)])
            assert self.read(controller, np.zeros(0, np.int64)).shape == (0, self.block_bytes)

    @pytest.mark.parametrize(
        ("fields", "name"),
        [
            ({"opcode": 0x7F}, "Invalid Command Opcode"),
            ({"nsid": 0}, "Invalid Namespace or Format"),
            ({"nsid": 2**32 - 2}, "Invalid Namespace or Format"),
            ({"slba": 2**40}, "LBA Out of Range"),
            ({"slba": 2**64 - 1}, "LBA Out of Range"),
            ({"nlb": 65535}, "Invalid Field in Command"),
        ],
    )
    def test_a_bad_command_gets_its_status_and_the_next_read_works(
        self, fields: dict[str, int], name: str
    ) -> None:
        with self.open(1, 4) as controller:
            outcome = controller.queues.command(self.sqe(**fields), 30.0)
            assert outcome.state is BatchState.FAILED
            assert status_name(outcome.status) == name
            np.testing.assert_array_equal(self.read(controller, np.arange(9)), self.blocks()[:9])

    def test_bad_arguments_are_refused_before_any_command(self) -> None:
        most = self.max_transfer_bytes // self.block_bytes
        with self.open(1, 4) as controller:
            last, one = controller.n_blocks - 1, self.block_bytes
            for lbas, n_blocks, shape, setting in (
                ([0], 0, (1, 0), "blocks_per_read"),
                ([0], most + 1, (1, (most + 1) * one), "blocks_per_read"),
                ([0, last + 1], 1, (2, one), "lbas"),
                ([-1], 1, (1, one), "lbas"),
                ([last], 2, (1, 2 * one), "lbas"),
                ([0], 1, (2, one), "out"),
                ([0], 1, (1, one - 1), "out"),
            ):
                with pytest.raises(ConfigError, match=setting):
                    controller.read_blocks(np.array(lbas, np.int64), n_blocks, np.zeros(shape, np.uint8))
            assert controller.queue_stats().commands == 0

    def test_stop_under_load_ends_every_caller(self) -> None:
        lbas = np.random.default_rng(0).integers(0, len(self.blocks()), self.n_commands)
        endings: list[str] = []
        with self.open(2, 8) as controller:

            def read_all() -> None:
                try:
                    np.testing.assert_array_equal(self.read(controller, lbas), self.blocks()[lbas])
                    endings.append("done")
                except ClosedError:
                    endings.append("closed")
                except StorageError as error:
                    endings.append(errno.errorcode[error.errno])

            threads = [threading.Thread(target=read_all) for _ in range(3)]
            for thread in threads:
                thread.start()
            while controller.queue_stats().commands < 100:
                time.sleep(0.001)
            self.stop(controller)
            for thread in threads:
                thread.join(60)
            assert len(endings) == 3
            assert set(endings) <= {"done", "closed", "ECANCELED"}
            with pytest.raises(ClosedError):
                self.read(controller, lbas)

    def test_a_forked_child_is_refused_at_once(self) -> None:
        with self.open(1, 4) as controller:
            child = os.fork()
            if child == 0:
                try:
                    self.read(controller, np.arange(3))
                except ForkedError:
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            np.testing.assert_array_equal(self.read(controller, np.arange(3)), self.blocks()[:3])
