"""The control path of an NVMe controller: reset, enable, admin commands, queues, shutdown.

Order and waits are those of the NVM Express base specification 2.0, "Memory-based Controller Initialization"
and "Memory-based Controller Shutdown". Nothing here moves data, and nothing here is fast.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Sequence

from bam.errors import ConfigError, DriveUnavailable, NvmeStatusError, StorageError
from bam.storage.nvme import commands
from bam.storage.nvme.commands import IdentifyKind
from bam.storage.nvme.dma import DmaSpace
from bam.storage.nvme.identify import (
    IDENTIFY_BYTES,
    ControllerIdentity,
    NamespaceIdentity,
    namespace_list,
)
from bam.storage.nvme.queues import DriveQueues, QueueMemory
from bam.storage.nvme.registers import Register, Registers, Status, configuration
from bam.storage.queues import BatchState, QueueLife, status_name

logger = logging.getLogger(__name__)

ADMIN_DEPTH = 16
PAGE_BYTES = 4096
ADMIN_TIMEOUT_S = 10.0
_ENABLED = 1
_POLL_S = 0.001
_SHUTDOWN_TIMEOUT_S = 10.0


class Controller:
    """An NVMe controller that this process owns.

    Parameters
    ----------
    name : str
        In errors.
    registers : Registers
    space : DmaSpace
    admin_timeout_s : float
        Longest wait for an admin command.

    Raises
    ------
    DriveUnavailable
        It cannot work here (command set, memory page size), or does not become ready.
    """

    def __init__(
        self, name: str, registers: Registers, space: DmaSpace, admin_timeout_s: float = ADMIN_TIMEOUT_S
    ) -> None:
        self.name, self.registers = name, registers
        self._admin_timeout_s = admin_timeout_s
        self.capabilities = registers.capabilities()
        if not self.capabilities.nvm_command_set:
            raise DriveUnavailable(name, "it lacks the NVM command set", "Use a block storage drive")
        if not self.capabilities.min_page_bytes <= PAGE_BYTES <= self.capabilities.max_page_bytes:
            what = f"its smallest memory page has {self.capabilities.min_page_bytes} bytes"
            raise DriveUnavailable(name, what, f"This driver uses pages of {PAGE_BYTES} bytes")
        self._memory = QueueMemory.allocate(space, 0, ADMIN_DEPTH)
        self._buffer = space.allocate(IDENTIFY_BYTES)
        self._admin = self._new_admin_queue()

    def enable(self) -> None:
        """Disable it if need be, give it the admin queue, enable it and wait until it is ready."""
        self.disable()
        registers = self.registers
        registers.write32(Register.AQA, ADMIN_DEPTH - 1 | ADMIN_DEPTH - 1 << 16)
        registers.write64(Register.ASQ, self._memory.sq.iova)
        registers.write64(Register.ACQ, self._memory.cq.iova)
        registers.write32(Register.CC, configuration(enable=True, page_bytes=PAGE_BYTES))
        self._wait_ready(True)

    def disable(self) -> None:
        """Clear CC.EN and wait until it is no longer ready: it then forgets all queues and commands."""
        registers = self.registers
        value = registers.read32(Register.CC)
        if value & _ENABLED:
            if not self._status() & (Status.RDY | Status.CFS):
                self._wait_ready(True)  # CC.EN may not be cleared in between
            registers.write32(Register.CC, value & ~_ENABLED)
        self._wait_ready(False)

    def reset(self) -> None:
        """Disable and enable again, with a new admin queue; I/O queues must be created anew.

        Raises
        ------
        StorageError
            It is gone, or does not become ready (ENODEV).
        """
        logger.warning("%s: controller reset", self.name)
        self._admin.pause()
        self.disable()
        self._admin.restart(errno.ECANCELED)
        self._admin.resume()
        self.enable()

    def shutdown(self) -> None:
        """Tell it to finish, as before power-off, and wait until it has; then disable it."""
        registers = self.registers
        value = registers.read32(Register.CC)
        registers.write32(Register.CC, value | configuration(enable=False, shutdown=True) & 3 << 14)
        deadline = time.monotonic() + _SHUTDOWN_TIMEOUT_S
        while self._status() & Status.SHST != Status.SHST_COMPLETE:
            if time.monotonic() > deadline:
                logger.warning("%s: shutdown was not reported complete in time", self.name)
                break
            time.sleep(_POLL_S)
        self.disable()

    def admin(self, command: bytes, timeout_s: float | None = None) -> int:
        """Send an admin command and wait; returns dword 0 of its completion.

        Raises
        ------
        NvmeStatusError
            It completed with another status than success, with the specification's name of it.
        StorageError
            It did not complete (ETIMEDOUT), or the drive is gone (ENODEV).
        """
        wait_s = self._admin_timeout_s if timeout_s is None else timeout_s
        outcome = self._admin.command(command, wait_s)
        if outcome.state is BatchState.DONE:
            return outcome.dw0
        what = f"admin command {command[0]:02X}h"
        if outcome.state is BatchState.FAILED:
            raise NvmeStatusError(
                self.name, 0, 0, errno.EIO, outcome.status, status_name(outcome.status), what
            )
        if outcome.state is BatchState.CLOSED or self.registers.status() is None:
            raise StorageError(self.name, 0, 0, errno.ENODEV, note=f"{what}: the drive is gone")
        raise StorageError(self.name, 0, 0, errno.ETIMEDOUT, note=f"{what} had no answer in {wait_s:g} s")

    def identity(self) -> ControllerIdentity:
        """Identify Controller."""
        return ControllerIdentity.decode(
            self._identify(IdentifyKind.CONTROLLER, 0), self.capabilities.min_page_bytes
        )

    def namespaces(self) -> list[NamespaceIdentity]:
        """The active namespaces."""
        found: list[NamespaceIdentity] = []
        after = 0
        while True:
            listed = namespace_list(self._identify(IdentifyKind.ACTIVE_NAMESPACES, after))
            for nsid in listed:
                found.append(NamespaceIdentity.decode(nsid, self._identify(IdentifyKind.NAMESPACE, nsid)))
            if len(listed) < IDENTIFY_BYTES // 4:
                return found
            after = listed[-1]

    def grant_queues(self, n_pairs: int) -> None:
        """Ask for `n_pairs` I/O queue pairs, before any is created.

        Raises
        ------
        ConfigError
            The drive grants fewer.
        """
        granted = commands.granted_queue_count(self.admin(commands.set_queue_count(n_pairs)))
        if granted < n_pairs:
            raise ConfigError(
                "n_queue_pairs", n_pairs, f"at most {granted}, which is what {self.name} grants"
            )

    def create_queues(self, memory: Sequence[QueueMemory]) -> None:
        """Create I/O queue pairs; their numbers count from 1.

        Raises
        ------
        NvmeStatusError
        """
        for queue in memory:
            self.admin(commands.create_completion_queue(queue.queue_id, queue.depth, queue.cq.iova))
            self.admin(commands.create_submission_queue(queue.queue_id, queue.depth, queue.sq.iova))

    def delete_queues(self, queue_ids: Sequence[int]) -> None:
        """Delete I/O queue pairs by number; commands in them are aborted."""
        for queue_id in queue_ids:
            self.admin(commands.delete_submission_queue(queue_id))
            self.admin(commands.delete_completion_queue(queue_id))

    def abort(self, queue_id: int, cid: int, timeout_s: float) -> bool:
        """Ask it to abort a command; False: it says that it did not."""
        return not self.admin(commands.abort(queue_id, cid), timeout_s) & 1

    def abandon(self) -> None:
        """Its registers and queues are never touched again by this object."""
        self._admin.abandon(errno.ENODEV)

    def close(self) -> None:
        """Free the admin queue; the controller must have been disabled or abandoned."""
        self._admin.set_life(QueueLife.DEAD)
        self._admin.close()

    def _new_admin_queue(self) -> DriveQueues:
        pair = self._memory.pair(self.registers.address, self.capabilities.doorbell_stride)
        return DriveQueues([pair])

    def _identify(self, kind: IdentifyKind, nsid: int) -> bytes:
        self.admin(commands.identify(kind, nsid, self._buffer.iova))
        return self._buffer.view().tobytes()

    def _status(self) -> int:
        status = self.registers.status()
        if status is None:
            raise StorageError(
                self.name, 0, 0, errno.ENODEV, note="its registers read as all ones: it is gone"
            )
        return status

    def _wait_ready(self, ready: bool) -> None:
        limit_s = max(self.capabilities.timeout_s, 0.5)
        deadline = time.monotonic() + limit_s
        while True:
            status = self._status()
            if bool(status & Status.RDY) is ready:
                return
            if ready and status & Status.CFS:
                raise StorageError(self.name, 0, 0, errno.ENODEV, note="controller fatal status (CSTS.CFS)")
            if time.monotonic() > deadline:
                what = f"CSTS.RDY did not become {int(ready)} in {limit_s:g} s (CAP.TO)"
                raise StorageError(self.name, 0, 0, errno.ENODEV, note=what)
            time.sleep(_POLL_S)
