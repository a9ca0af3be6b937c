"""The software controller with queue pairs in host memory: host threads read by NVMe commands.

Whoever writes the commands (host threads here, GPU threads elsewhere) cannot tell the software controller
from an SSD: entries, doorbells, phases and status codes are those of the NVMe base specification.
"""

from __future__ import annotations

import errno as errno_codes
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bam.errors import (
    ClosedError,
    FileChangedError,
    ForkedError,
    StorageError,
    TruncatedFileError,
    WaitTimeout,
)
from bam.layout import Layout
from bam.storage.block_reads import BlockLimits, check_block_reads
from bam.storage.leftovers import keep_for_good
from bam.storage.queue_server import ControllerSettings, ControllerStats, QueueServer
from bam.storage.queues import (
    BLOCK_BYTES,
    BatchOutcome,
    BatchState,
    HostQueues,
    QueueLife,
    QueueStats,
    status_name,
)

if TYPE_CHECKING:
    from bam.storage.native import NativeEngine

DEFAULT_SETTINGS = ControllerSettings()

_ERRORS = {errno_codes.ENODATA: TruncatedFileError, errno_codes.ESTALE: FileChangedError}


class SoftwareController:
    """Queue pairs in host memory and a :class:`QueueServer`: host threads read by NVMe commands. Thread-safe.

    Parameters
    ----------
    engine, layout
        As of :class:`QueueServer`.
    n_queue_pairs, depth : int
        Queue pairs and the slots of each, a power of two.
    settings : ControllerSettings
    timeout_s : float
        A read that makes no progress for so long raises :class:`WaitTimeout`.

    Raises
    ------
    ConfigError, EngineUnavailable, NativeLibraryMissing
    """

    def __init__(
        self,
        engine: NativeEngine,
        layout: Layout,
        *,
        n_queue_pairs: int = 4,
        depth: int = 128,
        settings: ControllerSettings = DEFAULT_SETTINGS,
        timeout_s: float = 30.0,
    ) -> None:
        self.settings, self.timeout_s = settings, timeout_s
        self.n_blocks = -(-layout.logical_bytes // BLOCK_BYTES)
        self._paths = tuple(file.path for file in engine.files)
        self._kept: list[npt.NDArray[np.uint8]] = []  # reads given up end in these
        self._keep_for_good = self._stopping = False
        self.queues = HostQueues(n_queue_pairs, depth)
        try:
            self.server = QueueServer(engine, layout, self.queues.pairs, settings)
        except BaseException:
            self.queues.close()
            raise

    def read(self, lba: int, n_blocks: int, out: npt.NDArray[np.uint8]) -> None:
        """:meth:`read_blocks` for one read; `out` is a uint8 array of ``n_blocks * 512``."""
        self.read_blocks(np.array([lba], np.int64), n_blocks, out.reshape(1, -1))

    def read_blocks(
        self, lbas: npt.NDArray[np.int64], blocks_per_read: int, out: npt.NDArray[np.uint8]
    ) -> None:
        """Read `blocks_per_read` blocks from each of `lbas` into the rows of `out`.

        Parameters
        ----------
        lbas : int64 array of shape (n,)
        blocks_per_read : int
        out : uint8 array of shape (n, blocks_per_read * 512)
            C-contiguous and writable, at an address that is a multiple of 4. Its contents are undefined after
            an error, and may still change after :class:`WaitTimeout`: reads under way end in it.

        Raises
        ------
        ConfigError
            Blocks that are not in the namespace, too long a read, or an `out` that does not fit.
        StorageError
            A read failed: the first one in `lbas`. The others were done.
        WaitTimeout
        ClosedError
            The controller was stopped before all reads were done.
        """
        self._check(lbas, blocks_per_read, out)
        outcome = self.queues.read(lbas.astype(np.uint64), blocks_per_read, out, self.timeout_s)
        if outcome.state is BatchState.DONE:
            return
        # A batch tells of its first failure only: while the controller stops, others may have been given up.
        given_up = outcome.dw0 == errno_codes.ETIMEDOUT or self._stopping
        if outcome.state is not BatchState.FAILED or given_up:
            self._kept.append(out)
        if outcome.state is BatchState.FAILED:
            raise self._storage_error(outcome, int(lbas[outcome.position]), blocks_per_read)
        if outcome.state is BatchState.CLOSED:
            raise ClosedError("software controller")
        raise WaitTimeout(
            f"{len(lbas) - outcome.position} of {len(lbas)} reads by the software controller",
            self.timeout_s,
            "Check the device the files are on, or raise timeout_s",
        )

    def queue_stats(self) -> QueueStats:
        """Counters of the submitting side."""
        return self.queues.stats()

    def stats(self) -> ControllerStats:
        """Counters of the controller; also after :meth:`stop`."""
        return self.server.stats()

    def stop(self) -> None:
        """Stop answering. Reads under way finish; others raise StorageError (ECANCELED) or ClosedError.

        Raises
        ------
        WaitTimeout
            Reads have not ended in `close_timeout_s`: whoever waits for them gets a StorageError (ETIMEDOUT),
            and they are left behind. The controller has stopped all the same.
        """
        self._stopping = True
        self.queues.set_life(QueueLife.CLOSING)
        try:
            self.server.stop()
        except WaitTimeout:
            self._keep_for_good = True
            keep_for_good(self._kept)
            raise
        finally:
            self.queues.set_life(QueueLife.DEAD)

    def close(self) -> None:
        """Stop, wait for the calls of other threads, free everything. Calling it again does nothing.

        Raises
        ------
        WaitTimeout
            As :meth:`stop`; everything else is freed.
        """
        try:
            self.stop()
        except (ClosedError, ForkedError):
            return
        except WaitTimeout:
            self._free()
            raise
        self._free()

    def _free(self) -> None:
        self.queues.close()
        self.server.close()
        if not self._keep_for_good:
            self._kept.clear()

    def __enter__(self) -> SoftwareController:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "server"):
            with suppress(WaitTimeout):  # which is logged
                self.close()

    def _check(self, lbas: npt.NDArray[np.int64], blocks_per_read: int, out: npt.NDArray[np.uint8]) -> None:
        most = self.settings.max_transfer_bytes // BLOCK_BYTES
        check_block_reads(lbas, blocks_per_read, out, BlockLimits(self.n_blocks, BLOCK_BYTES, most))

    def _storage_error(self, outcome: BatchOutcome, lba: int, n_blocks: int) -> StorageError:
        errno = outcome.dw0 or errno_codes.EIO
        note = status_name(outcome.status)
        record = self.server.error(outcome.dw1) if outcome.dw1 else None
        kind = _ERRORS.get(errno, StorageError)
        if record is None:
            return kind("the namespace", lba * BLOCK_BYTES, n_blocks * BLOCK_BYTES, errno, note=note)
        return kind(
            self._paths[record.file], record.file_offset, record.n_blocks * BLOCK_BYTES, errno, note=note
        )
