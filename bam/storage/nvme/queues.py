"""Queue pairs in memory that a drive reads and writes. C++: host_queues.h."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

from bam.native import function
from bam.storage.handle import NativeHandle
from bam.storage.nvme.dma import DmaMemory, DmaSpace
from bam.storage.nvme.registers import DOORBELL_OFFSET
from bam.storage.queues import CQueuePair, HostQueues

SQE_BYTES, CQE_BYTES = 64, 16
_MAX_LISTED = 1 << 16


class _Outstanding(ctypes.Structure):
    _fields_ = [("queue_id", c_uint32), ("cid", c_uint32), ("age_ms", c_uint64)]


@dataclass(frozen=True)
class OutstandingCommand:
    """A command that has not completed, and how long ago it was sent."""

    queue_id: int
    cid: int
    age_s: float


@dataclass(frozen=True)
class QueueMemory:
    """Entries of one queue pair, for this process and for the drive."""

    queue_id: int
    depth: int
    sq: DmaMemory
    cq: DmaMemory

    @classmethod
    def allocate(cls, space: DmaSpace, queue_id: int, depth: int) -> QueueMemory:
        """Entries of queue pair `queue_id`, each queue from a page's beginning on."""
        return cls(queue_id, depth, space.allocate(depth * SQE_BYTES), space.allocate(depth * CQE_BYTES))

    def pair(self, registers: int, doorbell_stride: int) -> CQueuePair:
        """With the doorbells of the controller whose registers are at address `registers`."""
        step = 4 << doorbell_stride
        doorbell = registers + DOORBELL_OFFSET + 2 * self.queue_id * step
        return CQueuePair(
            self.sq.address, self.cq.address, doorbell, doorbell + step, None, None, self.depth, self.queue_id
        )


class _BorrowedQueues:
    """Queue pairs that are part of another native object, as if they were a handle."""

    def __init__(self, owner: NativeHandle, locate: str) -> None:
        self._owner, self._locate = owner, locate

    @contextmanager
    def use(self) -> Iterator[int]:
        """Their address, valid inside the block."""
        with self._owner.use() as handle:
            yield function(self._locate, c_void_p, [c_void_p])(handle)

    def close(self) -> None:
        """Nothing: the owner frees them."""


class DriveQueues(HostQueues):
    """Queue pairs that a controller outside this process answers, and which it may forget when it is reset.

    Parameters
    ----------
    pairs : sequence of CQueuePair
    owner : NativeHandle, optional
        Of the drive they are part of; None: they are on their own.
    """

    def __init__(self, pairs: Sequence[CQueuePair], owner: NativeHandle | None = None) -> None:
        self.n_pairs, self.depth = len(pairs), pairs[0].depth
        if owner is not None:
            self._handle = _BorrowedQueues(owner, "bam_drive_queues")
            return
        listed = (CQueuePair * len(pairs))(*pairs)
        address = function("bam_queues_create_at", c_void_p, [c_void_p, c_uint32])(listed, len(pairs))
        self._handle = NativeHandle(address, "bam_queues_destroy", "queue pairs")

    def pause(self) -> None:
        """After it returns nobody touches entries or doorbells until :meth:`resume`."""
        self._call("bam_queues_pause")

    def resume(self) -> None:
        """Go on."""
        self._call("bam_queues_resume")

    def restart(self, errno: int) -> None:
        """While paused: what was outstanding ends with `errno`, and the queues are as new."""
        self._call("bam_queues_restart", c_int32(errno))

    def abandon(self, errno: int) -> None:
        """For good: what was outstanding ends with `errno`, nobody touches entries or doorbells again."""
        self._call("bam_queues_abandon", c_int32(errno))

    def drain(self) -> None:
        """Hand out what has completed."""
        self._call("bam_queues_drain")

    def epoch(self) -> int:
        """Number of restarts."""
        with self._handle.use() as handle:
            return int(function("bam_queues_epoch", c_uint64, [c_void_p])(handle))

    def outstanding(self) -> list[OutstandingCommand]:
        """While paused: the commands that have not completed."""
        found = (_Outstanding * _MAX_LISTED)()
        with self._handle.use() as handle:
            call = function("bam_queues_outstanding", c_uint32, [c_void_p, c_void_p, c_uint32])
            count = call(handle, found, _MAX_LISTED)
        listed = found[: min(count, _MAX_LISTED)]
        return [OutstandingCommand(one.queue_id, one.cid, one.age_ms / 1000) for one in listed]

    def _call(self, name: str, *arguments: c_int32) -> None:
        with self._handle.use() as handle:
            function(name, None, [c_void_p, *(type(argument) for argument in arguments)])(handle, *arguments)
