"""A namespace for host threads that read and write by NVMe commands."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bam.storage.block_reads import BlockLimits, check_block_reads
from bam.storage.nvme.data_path import Opcode
from bam.storage.nvme.drive import NvmeDrive
from bam.storage.nvme.queues import DriveQueues
from bam.storage.queues import MAX_BLOCKS, QueueStats


class NvmeController:
    """One namespace of a drive. Thread-safe; the drive is the caller's.

    Parameters
    ----------
    drive : NvmeDrive
    nsid : int

    Attributes
    ----------
    n_blocks, block_bytes : int
        Of the namespace.
    most_blocks : int
        Of one command.

    Raises
    ------
    ConfigError
        No such namespace, or one with metadata.
    """

    def __init__(self, drive: NvmeDrive, nsid: int = 1) -> None:
        self.drive, self.nsid = drive, nsid
        namespace = drive.namespace(nsid)
        self.n_blocks, self.block_bytes = namespace.n_blocks, namespace.block_bytes
        self.most_blocks = min(MAX_BLOCKS, drive.max_transfer_bytes // self.block_bytes)
        self._limits = BlockLimits(self.n_blocks, self.block_bytes, self.most_blocks)

    @property
    def queues(self) -> DriveQueues:
        """The drive's I/O queue pairs, for single commands."""
        return self.drive.path.queues

    def read(self, lba: int, n_blocks: int, out: npt.NDArray[np.uint8]) -> None:
        """:meth:`read_blocks` for one read; `out` is a uint8 array of ``n_blocks * block_bytes``."""
        self.read_blocks(np.array([lba], np.int64), n_blocks, out.reshape(1, -1))

    def read_blocks(
        self, lbas: npt.NDArray[np.int64], blocks_per_read: int, out: npt.NDArray[np.uint8]
    ) -> None:
        """Read `blocks_per_read` blocks from each of `lbas` into the rows of `out`.

        Parameters
        ----------
        lbas : int64 array of shape (n,)
        blocks_per_read : int
        out : uint8 array of shape (n, blocks_per_read * block_bytes)
            C-contiguous and writable, at an address that is a multiple of 4; undefined after an error.

        Raises
        ------
        ConfigError
            Nothing was sent.
        NvmeStatusError
            A read failed: the first one in `lbas`. The others were done, unless the drive was reset.
        ClosedError, ForkedError, StorageError
        """
        check_block_reads(lbas, blocks_per_read, out, self._limits)
        self.drive.transfer(self.nsid, Opcode.READ, lbas, blocks_per_read, out)

    def write_blocks(
        self, lbas: npt.NDArray[np.int64], blocks_per_write: int, data: npt.NDArray[np.uint8]
    ) -> None:
        """Write the rows of `data`, as :meth:`read_blocks` reads them; errors as there."""
        check_block_reads(lbas, blocks_per_write, data, self._limits, writes=True)
        self.drive.transfer(self.nsid, Opcode.WRITE, lbas, blocks_per_write, data)

    def queue_stats(self) -> QueueStats:
        """Counters of the drive's I/O queue pairs."""
        return self.drive.queue_stats()
