"""NVMe queue pairs in host memory, and commands of host threads through them.

C++: queue_pair.h (the rings and their rules), host_queues.h (this).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from bam.native import function
from bam.storage.handle import Handle, NativeHandle

#: Bytes of a logical block.
BLOCK_BYTES = 512
MIN_DEPTH, MAX_DEPTH = 2, 1 << 15
MAX_PAIRS = (1 << 16) - 2
#: A Read counts its blocks in 16 bits, from 0.
MAX_BLOCKS = 1 << 16


class CQueuePair(ctypes.Structure):
    """`bam::QueuePairState`: addresses of the parts of one queue pair."""

    _fields_ = [
        ("sq", c_void_p),
        ("cq", c_void_p),
        ("sq_doorbell", c_void_p),
        ("cq_doorbell", c_void_p),
        ("words", c_void_p),
        ("free_cids", c_void_p),
        ("depth", c_uint32),
        ("queue_id", c_uint32),
    ]


class _BlockReads(ctypes.Structure):
    _fields_ = [
        ("slbas", c_void_p),
        ("count", c_uint64),
        ("out", c_void_p),
        ("out_stride", c_uint64),
        ("n_blocks", c_uint32),
        ("timeout_ms", c_uint32),
    ]


class COutcome(ctypes.Structure):
    """`bam::BatchOutcome`."""

    _fields_ = [
        ("state", c_uint32),
        ("status", c_uint16),
        ("reserved", c_uint16),
        ("dw0", c_uint32),
        ("dw1", c_uint32),
        ("position", c_uint64),
    ]


class _Counters(ctypes.Structure):
    _fields_ = [
        (name, c_uint64)
        for name in ("commands", "sq_doorbell_writes", "cq_doorbell_writes", "max_outstanding", "timeouts")
    ]


class BatchState(Enum):
    """How a batch of commands ended; values as in host_queues.h."""

    DONE = 0
    FAILED = 1
    TIMED_OUT = 2
    CLOSED = 3


class QueueLife(Enum):
    """Who answers the queues; values as in host_queues.h. It only advances."""

    OPEN = 0
    CLOSING = 1
    DEAD = 2


@dataclass(frozen=True)
class BatchOutcome:
    """How a batch of commands ended.

    Attributes
    ----------
    state : BatchState
    status : int
        Of the failed command: status code type << 8 | status code.
    do_not_retry : bool
    dw0, dw1 : int
        Of its completion entry; from the software controller the errno and the number of an error record.
    position : int
        Of the failed command in the batch. Of a batch that timed out or was closed: commands completed.
    """

    state: BatchState
    status: int
    do_not_retry: bool
    dw0: int
    dw1: int
    position: int


@dataclass(frozen=True)
class QueueStats:
    """Counters of the submitting side since it was opened.

    Attributes
    ----------
    commands : int
    sq_doorbell_writes, cq_doorbell_writes : int
        One for a run of commands; one for a drain that found completions.
    max_outstanding : int
        Most commands outstanding in one queue pair.
    timeouts : int
        Batches that timed out.
    """

    commands: int
    sq_doorbell_writes: int
    cq_doorbell_writes: int
    max_outstanding: int
    timeouts: int


def status_name(status: int) -> str:
    """Name of a status (type << 8 | code) in the NVMe base specification."""
    name: bytes = function("bam_nvme_status_name", c_char_p, [c_uint16])(status)
    return name.decode()


class HostQueues:
    """Queue pairs in host memory. Thread-safe: several threads share every queue pair.

    Parameters
    ----------
    n_pairs : int
    depth : int
        Slots of each queue, a power of two; one less can be outstanding.

    Raises
    ------
    ConfigError, NativeLibraryMissing
    """

    def __init__(self, n_pairs: int, depth: int) -> None:
        if not 1 <= n_pairs <= MAX_PAIRS:
            raise ConfigError("n_queue_pairs", n_pairs, f"1 to {MAX_PAIRS}")
        if not MIN_DEPTH <= depth <= MAX_DEPTH or depth & (depth - 1):
            raise ConfigError("depth", depth, f"a power of two from {MIN_DEPTH} to {MAX_DEPTH}")
        self.n_pairs, self.depth = n_pairs, depth
        address = function("bam_queues_create", c_void_p, [c_uint32, c_uint32])(n_pairs, depth)
        if not address:
            raise MemoryError(f"no memory for {n_pairs} queue pairs of depth {depth}")
        self._handle: Handle = NativeHandle(address, "bam_queues_destroy", "queue pairs")

    @property
    def pairs(self) -> ctypes.Array[CQueuePair]:
        """Where the queue pairs lie; valid until :meth:`close`."""
        with self._handle.use() as handle:
            found = (CQueuePair * self.n_pairs)()
            locate = function("bam_queues_pair", None, [c_void_p, c_uint32, POINTER(CQueuePair)])
            for pair in range(self.n_pairs):
                locate(handle, pair, byref(found[pair]))
            return found

    def read(
        self, slbas: npt.NDArray[np.uint64], n_blocks: int, out: npt.NDArray[np.uint8], timeout_s: float
    ) -> BatchOutcome:
        """Read `n_blocks` blocks from each of `slbas` into the rows of `out`, and wait.

        Parameters
        ----------
        slbas : uint64 array of shape (n,)
        n_blocks : int
            1 to 65,536.
        out : uint8 array of shape (n, n_blocks * 512)
            C-contiguous, at an address that is a multiple of 4. If the outcome is TIMED_OUT the caller must
            keep it until the controller has stopped: reads still outstanding may write to it.
        timeout_s : float
            Gives up after so long without progress.
        """
        reads = _BlockReads(
            slbas.ctypes.data,
            len(slbas),
            out.ctypes.data,
            n_blocks * BLOCK_BYTES,
            n_blocks,
            _milliseconds(timeout_s),
        )
        outcome = COutcome()
        with self._handle.use() as handle:
            call = function("bam_queues_read", None, [c_void_p, POINTER(_BlockReads), POINTER(COutcome)])
            call(handle, byref(reads), byref(outcome))
        return decode_outcome(outcome)

    def command(self, sqe: bytes, timeout_s: float, pair: int = 0) -> BatchOutcome:
        """Send one submission queue entry of 64 bytes as it is, but for its command id, and wait."""
        if len(sqe) != 64:
            raise ConfigError("sqe", sqe, "64 bytes")
        if not 0 <= pair < self.n_pairs:
            raise ConfigError("pair", pair, f"0 to {self.n_pairs - 1}")
        outcome = COutcome()
        with self._handle.use() as handle:
            types = [c_void_p, c_uint32, c_char_p, c_uint32, POINTER(COutcome)]
            milliseconds = _milliseconds(timeout_s)
            function("bam_queues_command", None, types)(handle, pair, sqe, milliseconds, byref(outcome))
        return decode_outcome(outcome)

    def set_life(self, life: QueueLife) -> None:
        """Say who answers: CLOSING, calls submit nothing more; DEAD, they return at once."""
        with self._handle.use() as handle:
            function("bam_queues_set_life", None, [c_void_p, c_uint32])(handle, life.value)

    def stats(self) -> QueueStats:
        """Counters now."""
        counters = _Counters()
        with self._handle.use() as handle:
            function("bam_queues_counters", None, [c_void_p, POINTER(_Counters)])(handle, byref(counters))
        return QueueStats(*(getattr(counters, field[0]) for field in _Counters._fields_))

    def close(self) -> None:
        """Free the memory, after the calls of other threads. The controller must have been stopped."""
        self._handle.close()


def _milliseconds(timeout_s: float) -> int:
    if not 0 <= timeout_s <= 1e6:
        raise ConfigError("timeout_s", timeout_s, "0 to 1,000,000 seconds")
    return int(timeout_s * 1000)


def decode_outcome(outcome: COutcome) -> BatchOutcome:
    """What the C structure says."""
    status = function("bam_nvme_status_of", c_uint16, [c_uint16])(outcome.status)
    do_not_retry = bool(outcome.status >> 15)
    return BatchOutcome(
        BatchState(outcome.state), status, do_not_retry, outcome.dw0, outcome.dw1, outcome.position
    )
