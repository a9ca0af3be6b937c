"""A store on a GPU whose kernels ring an NVMe drive themselves.

The drive's rings and slots are host memory that both may use: mapped for the drive (VFIO), registered with
CUDA. The doorbells are registers of the drive, mapped into this process and registered as I/O memory. Which
kernels run, and what they write, is the same as with the software controller (docs/nvme.md).
"""

from __future__ import annotations

import ctypes
import errno as errno_codes
from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import c_char_p, c_int32, c_uint32, c_uint64, c_void_p

import numpy as np
import numpy.typing as npt

from bam.cache.device.gpu import Gpu, PinnedMemory
from bam.cache.device.memory import DriveMemory
from bam.cache.device.settings import GpuSettings
from bam.cache.device.structs import DATA_POINTER
from bam.config import parse_bytes
from bam.errors import ConfigError, NvmeStatusError, StorageError
from bam.native import function
from bam.storage.nvme.controller import PAGE_BYTES
from bam.storage.nvme.data_path import prp_list_bytes
from bam.storage.nvme.drive import NvmeDrive
from bam.storage.nvme.drive_run import DriveRun
from bam.storage.nvme.queues import QueueMemory
from bam.storage.nvme.registers import DOORBELL_OFFSET
from bam.storage.queue_server import ControllerStats
from bam.storage.queues import CQueuePair, status_name

#: `bam::kDriveStatus`: a result of kernels that holds the drive's status.
DRIVE_STATUS = 1 << 31


def make_drive_memory(gpu: Gpu, run: DriveRun, page_bytes: int, settings: GpuSettings) -> DriveMemory:
    """Create the GPU's queue pairs on the drive, and let kernels use them.

    Raises
    ------
    ConfigError
        Pages that are not whole blocks or longer than a command; bytes that do not begin with a block; a
        drive that was opened with fewer `reserved_queue_pairs`; `merge_bytes`, which a drive does not do.
    NvmeStatusError, DriveUnavailable, EngineUnavailable
    """
    if parse_bytes(settings.merge_bytes) > page_bytes:
        raise ConfigError("merge_bytes", settings.merge_bytes, "0 for a drive that kernels ask themselves")
    namespace = run.drive.namespace(run.nsid)
    if page_bytes % namespace.block_bytes or page_bytes > run.drive.max_transfer_bytes:
        expected = f"a multiple of {namespace.block_bytes} up to {run.drive.max_transfer_bytes}"
        raise ConfigError("page_bytes", page_bytes, expected)
    first_block, rest = divmod(run.first_byte, namespace.block_bytes)
    if rest:
        raise ConfigError("first_byte", run.first_byte, f"a multiple of {namespace.block_bytes}")
    n_slots = settings.slots_per_flight(page_bytes) * settings.flights + settings.lone_pages
    staging = run.drive.allocate(n_slots * page_bytes)
    kernel_staging = gpu.register(staging.address, -(-staging.n_bytes // PAGE_BYTES) * PAGE_BYTES)
    pointers = gpu.upload(_pointers(run.drive, staging.iova, page_bytes, n_slots))
    queues = run.drive.create_reserved_queues(settings.queue_pairs, settings.queue_slots)
    with ExitStack() as created:
        created.callback(run.drive.delete_reserved_queues, [queue.queue_id for queue in queues])
        memory = DriveMemory(
            _pairs(gpu, run.drive, queues),
            PinnedMemory(kernel_staging, staging.view(), run.drive),
            pointers,
            first_block,
            run.nsid,
            namespace.block_bytes,
        )
        created.pop_all()
    return memory


def _pairs(gpu: Gpu, drive: NvmeDrive, memory: Sequence[QueueMemory]) -> ctypes.Array[CQueuePair]:
    """The GPU's queue pairs, at addresses for kernels."""
    base, n_bytes = drive.register_window
    registers = gpu.register(base, n_bytes, registers=True)
    pairs = (CQueuePair * len(memory))()
    for number, queue in enumerate(memory):
        pairs[number] = queue.pair(registers, drive.capabilities.doorbell_stride)
        for name, part in (("sq", queue.sq), ("cq", queue.cq)):
            whole = -(-part.n_bytes // PAGE_BYTES) * PAGE_BYTES
            setattr(pairs[number], name, gpu.register(part.address, whole))
    assert pairs[0].sq_doorbell >= registers + DOORBELL_OFFSET
    return pairs


def _pointers(drive: NvmeDrive, iova: int, page_bytes: int, n_slots: int) -> npt.NDArray[np.uint8]:
    """`bam::DataPointer` of each slot; PRP lists lie in memory of the drive's."""
    list_bytes = prp_list_bytes(page_bytes)
    lists = drive.allocate(n_slots * list_bytes)
    found = np.zeros(n_slots, DATA_POINTER)
    types = [c_uint64, c_uint64, c_uint32, c_int32, c_void_p, c_uint64, c_char_p]
    describe = function("bam_nvme_data_pointer", None, types)
    pointer = ctypes.create_string_buffer(DATA_POINTER.itemsize)
    for slot in range(n_slots):
        at = slot * list_bytes
        describe(
            iova + slot * page_bytes,
            page_bytes,
            PAGE_BYTES,
            drive.use_sgl,
            lists.address + at,
            lists.iova + at,
            pointer,
        )
        found[slot] = np.frombuffer(pointer.raw, DATA_POINTER)[0]
    return found.view(np.uint8)


class DriveServer:
    """The drive in the place of the software controller's threads: nothing has to run for it.

    Parameters
    ----------
    run : DriveRun
    memory : DriveMemory
    page_bytes : int
    """

    def __init__(self, run: DriveRun, memory: DriveMemory, page_bytes: int) -> None:
        self._run, self._page_bytes = run, page_bytes
        self._queue_ids = [pair.queue_id for pair in memory.pairs]

    def stats(self) -> ControllerStats:
        """All zero: a drive counts for itself."""
        return ControllerStats(0, 0, 0, 0, 0, 0, 0, 0, 0)

    def error(self, errno: int, page_id: int) -> StorageError | None:
        """The error of a result that kernels found; None: it is not a drive's."""
        if errno & DRIVE_STATUS:
            status = errno & 0xFFFF
            name = f"{self._run.drive.name} namespace {self._run.nsid}"
            offset = self._run.first_byte + page_id * self._page_bytes
            code = int(function("bam_nvme_errno_of_status", c_int32, [c_uint32])(status))
            return NvmeStatusError(name, offset, self._page_bytes, code, status, status_name(status))
        if self._run.drive.gone is not None:
            return StorageError(self._run.drive.name, 0, 0, errno_codes.ENODEV, note=self._run.drive.gone)
        return None

    def stop(self) -> None:
        """Delete the GPU's queue pairs; commands in them are aborted."""
        queue_ids, self._queue_ids = self._queue_ids, []
        self._run.drive.delete_reserved_queues(queue_ids)

    def close(self) -> None:
        """The same."""
        self.stop()
