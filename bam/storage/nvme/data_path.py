"""The data path of a drive: its I/O queue pairs, slots and transfers. C++: nvme_drive.h."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_int32, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bam.native import function
from bam.storage.handle import NativeHandle
from bam.storage.nvme.controller import PAGE_BYTES
from bam.storage.nvme.queues import DriveQueues, QueueMemory
from bam.storage.queues import BatchOutcome, COutcome, CQueuePair, decode_outcome

if TYPE_CHECKING:
    from bam.storage.nvme.dma import DmaMemory, DmaSpace
    from bam.storage.nvme.identify import NamespaceIdentity

_RECOVER = ctypes.CFUNCTYPE(None, c_uint64)


class Opcode(IntEnum):
    """Commands of the NVM command set that move data."""

    WRITE = 0x01
    READ = 0x02


class _Config(ctypes.Structure):
    _fields_ = [
        ("pairs", c_void_p),
        ("slots", c_void_p),
        ("lists", c_void_p),
        ("slots_iova", c_uint64),
        ("lists_iova", c_uint64),
        ("n_pairs", c_uint32),
        ("slot_bytes", c_uint32),
        ("page_bytes", c_uint32),
        ("timeout_ms", c_uint32),
        ("use_sgl", c_uint32),
        ("recover", _RECOVER),
    ]


class _Transfers(ctypes.Structure):
    _fields_ = [
        ("slbas", c_void_p),
        ("memory", c_void_p),
        ("count", c_uint64),
        ("stride", c_uint64),
        ("n_blocks", c_uint32),
        ("block_bytes", c_uint32),
        ("nsid", c_uint32),
        ("opcode", c_uint32),
    ]


@dataclass(frozen=True)
class PathMemory:
    """Memory of a data path; it belongs to the DMA space.

    Attributes
    ----------
    queues : tuple of QueueMemory
        I/O queue pairs, numbered from 1.
    slots : DmaMemory
        One slot of `slot_bytes` for each command id of each queue pair, in that order.
    lists : DmaMemory
        Room for the PRP list of each slot.
    slot_bytes : int
        Longest transfer.
    """

    queues: tuple[QueueMemory, ...]
    slots: DmaMemory
    lists: DmaMemory
    slot_bytes: int

    @classmethod
    def allocate(cls, space: DmaSpace, n_pairs: int, depth: int, slot_bytes: int) -> PathMemory:
        """Everything for `n_pairs` queue pairs.

        Raises
        ------
        DriveUnavailable
            More memory than may be locked.
        """
        queues = tuple(QueueMemory.allocate(space, pair + 1, depth) for pair in range(n_pairs))
        n_slots = n_pairs * depth
        return cls(
            queues,
            space.allocate(n_slots * slot_bytes),
            space.allocate(n_slots * prp_list_bytes(slot_bytes)),
            slot_bytes,
        )


class DataPath:
    """Moves blocks between a drive and memory of this process. Thread-safe.

    Parameters
    ----------
    space : DmaSpace
    memory : PathMemory
    pairs : sequence of CQueuePair
        Of ``memory.queues``, with doorbells.
    use_sgl : bool
    timeout_s : float
    recover : callable
        Called in a thread whose commands are overdue; ends all commands of the epoch it is given.
    """

    def __init__(
        self,
        space: DmaSpace,
        memory: PathMemory,
        pairs: Sequence[CQueuePair],
        *,
        use_sgl: bool,
        timeout_s: float,
        recover: Callable[[int], None],
    ) -> None:
        listed = (CQueuePair * len(pairs))(*pairs)
        self._recover = _RECOVER(recover)  # kept: C++ calls it
        config = _Config(
            ctypes.addressof(listed),
            memory.slots.address,
            memory.lists.address,
            memory.slots.iova,
            memory.lists.iova,
            len(pairs),
            memory.slot_bytes,
            PAGE_BYTES,
            max(1, int(timeout_s * 1000)),
            use_sgl,
            self._recover,
        )
        create = function("bam_drive_create", c_void_p, [c_void_p, POINTER(_Config)])
        self.owner = NativeHandle(create(space.handle, byref(config)), "bam_drive_destroy", "NVMe drive")
        self.queues = DriveQueues(pairs, self.owner)

    def transfer(
        self,
        namespace: NamespaceIdentity,
        opcode: Opcode,
        lbas: npt.NDArray[np.int64],
        n_blocks: int,
        memory: npt.NDArray[np.uint8],
    ) -> BatchOutcome:
        """Read into, or write from, the rows of `memory`: `n_blocks` blocks at each of `lbas`; waits.

        Parameters
        ----------
        lbas : int64 array of shape (n,)
        memory : uint8 array of shape (n, n_blocks * block_bytes), C-contiguous
        """
        slbas = lbas.astype(np.uint64)
        transfers = _Transfers(
            slbas.ctypes.data,
            memory.ctypes.data,
            len(slbas),
            n_blocks * namespace.block_bytes,
            n_blocks,
            namespace.block_bytes,
            namespace.nsid,
            opcode,
        )
        outcome = COutcome()
        call = function("bam_drive_transfer", None, [c_void_p, POINTER(_Transfers), POINTER(COutcome)])
        with self.owner.use() as handle:
            call(handle, byref(transfers), byref(outcome))
        return decode_outcome(outcome)

    def close(self) -> None:
        """Free it, after the calls of other threads; engines made from it keep what they need."""
        self.owner.close()


def prp_list_bytes(transfer_bytes: int) -> int:
    """Room for the PRP list of a transfer of up to so many bytes."""
    return int(
        function("bam_nvme_prp_list_bytes", c_uint32, [c_uint64, c_uint32])(transfer_bytes, PAGE_BYTES)
    )


def errno_of(outcome: BatchOutcome) -> int:
    """errno of a failed command."""
    field = function("bam_nvme_status_field", c_uint16, [c_uint16, c_int32])(outcome.status, 0)
    return int(function("bam_drive_errno", c_int32, [c_uint16, c_uint32])(field, outcome.dw0))
