"""What is done when commands take too long, a controller has to be reset, or a drive goes away."""

from __future__ import annotations

import errno
import logging
import os
import select
import threading
import time
import weakref
from collections.abc import Sequence

from bam.errors import BamError, StorageError
from bam.storage.nvme.controller import Controller
from bam.storage.nvme.device import Device
from bam.storage.nvme.queues import DriveQueues, QueueMemory
from bam.storage.queues import QueueLife

logger = logging.getLogger(__name__)

_MAX_ABORTS = 16
_ABORT_WAIT_S = 1.0
_POLL_S = 0.001


class Supervisor:
    """Keeps one drive's queues and its controller in step. Thread-safe.

    Parameters
    ----------
    device : Device
    controller : Controller
        Enabled, its I/O queues created.
    memory : sequence of QueueMemory
        Of `queues`, to create them again after a reset.
    n_queues : int
        I/O queue pairs to ask for, reserved ones included.
    timeout_s : float
        Commands older than this are overdue.

    Attributes
    ----------
    control : threading.RLock
        Held by whoever uses registers or admin commands.
    gone : str or None
        Why the drive cannot be used any more.
    reserved : list of int
        Numbers of queue pairs that somebody else has created; a reset ends them.
    """

    def __init__(
        self,
        device: Device,
        controller: Controller,
        memory: Sequence[QueueMemory],
        n_queues: int,
        timeout_s: float,
    ) -> None:
        self._device, self._controller, self._memory = device, controller, memory
        self._n_queues, self._timeout_s = n_queues, timeout_s
        self._queues: DriveQueues | None = None
        self.control = threading.RLock()
        self.gone: str | None = None
        self.reserved: list[int] = []
        self._closing = False

    @property
    def name(self) -> str:
        return self._controller.name

    def start(self, queues: DriveQueues) -> None:
        """From now on these are the queues; a thread waits for the kernel to want the device back."""
        self._queues = queues
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        waited = [*self._device.removal_events(), self._wake]
        self._watcher = threading.Thread(
            target=_wait_for_removal, args=(weakref.ref(self), waited), name=f"nvme {self.name}", daemon=True
        )
        self._watcher.start()

    def recover(self, epoch: int) -> None:
        """End the commands that are overdue: abort them, else reset the controller, else give the drive up.

        Parameters
        ----------
        epoch : int
            Of the queues when the commands were sent; nothing happens if they were restarted since.
        """
        with self.control:
            if self._queues is None or self.gone is not None or self._queues.epoch() != epoch:
                return
            try:
                if not self._abort_overdue(self._queues):
                    self.reset(errno.ETIMEDOUT)
            except (BamError, OSError) as error:
                self._abandon(errno.ENODEV, str(error))
            except BaseException:
                self._abandon(errno.ENODEV, "recovery was interrupted")
                raise

    def reset(self, code: int) -> None:
        """Reset the controller; what is outstanding ends with the errno `code`, and the queues are as new.

        Raises
        ------
        StorageError
            It does not come up again.
        """
        with self.control:
            queues = self._queues
            assert queues is not None
            queues.pause()
            try:
                self._controller.reset()
                queues.restart(code)
                self.reserved.clear()
                self._controller.grant_queues(self._n_queues)
                self._controller.create_queues(self._memory)
            except BaseException as error:
                # Or the queues would stay paused, of a controller that is not up.
                self._abandon(errno.ENODEV, str(error) or "a reset was interrupted")
                raise
            queues.resume()

    def close(self) -> None:
        """Finish what is outstanding, shut the controller down; nobody touches it afterwards."""
        queues = self._queues
        if queues is None:
            return
        self._closing = True
        queues.set_life(QueueLife.CLOSING)
        os.eventfd_write(self._wake, 1)
        if threading.current_thread() is not self._watcher:
            self._watcher.join()
        with self.control:
            if self.gone is None:
                try:
                    self._finish(queues)
                except (BamError, OSError) as error:
                    logger.warning("%s: not shut down in order: %s", self.name, error)
            self._abandon(errno.ECANCELED, "closed")
            self._queues = None
        os.close(self._wake)

    def removed(self) -> None:
        """The device goes away: what is outstanding ends with ENODEV, and the device is released."""
        with self.control:
            if not self._closing:
                self._abandon(errno.ENODEV, "the drive was removed, or its driver unbound")
                self._device.close()

    def _abort_overdue(self, queues: DriveQueues) -> bool:
        """Whether no overdue command is left."""
        if self._controller.registers.status() is None:
            note = "its registers read as all ones: it is gone"
            raise StorageError(self.name, 0, 0, errno.ENODEV, note=note)
        queues.drain()
        overdue = self._overdue(queues)
        if len(overdue) > _MAX_ABORTS:
            return False
        for queue_id, cid in overdue:
            logger.warning("%s: command %d of queue %d takes too long: abort", self.name, cid, queue_id)
            try:
                if not self._controller.abort(queue_id, cid, _ABORT_WAIT_S):
                    return False
            except StorageError:
                return False
        deadline = time.monotonic() + _ABORT_WAIT_S
        while self._overdue(queues):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
            queues.drain()
        return True

    def _overdue(self, queues: DriveQueues) -> list[tuple[int, int]]:
        queues.pause()
        overdue = [(one.queue_id, one.cid) for one in queues.outstanding() if one.age_s >= self._timeout_s]
        queues.resume()
        return overdue

    def _abandon(self, code: int, reason: str) -> None:
        """Nobody touches registers or queues again; what is outstanding ends with `code`."""
        if self.gone is not None or self._queues is None:
            return
        self.gone = reason
        if code == errno.ENODEV:
            logger.error("%s: %s", self.name, reason)
        self._queues.abandon(code)
        self._controller.abandon()
        self._device.unmap_registers()

    def _finish(self, queues: DriveQueues) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            queues.drain()
            queues.pause()
            left = queues.outstanding()
            if not left or time.monotonic() > deadline:
                break
            queues.resume()
            time.sleep(_POLL_S)
        if not left:
            self._controller.delete_queues([*(queue.queue_id for queue in self._memory), *self.reserved])
        self._controller.shutdown()


class Recoverer:
    """Calls :meth:`Supervisor.recover` as long as there is a supervisor; does not keep it alive."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = weakref.ref(supervisor)

    def __call__(self, epoch: int) -> None:
        supervisor = self._supervisor()
        if supervisor is not None:
            supervisor.recover(epoch)


def _wait_for_removal(supervisor: weakref.ref[Supervisor], events: list[int]) -> None:
    poller = select.poll()
    for event in events:
        poller.register(event, select.POLLIN)
    ready = [descriptor for descriptor, _ in poller.poll()]
    found = supervisor()
    if events[-1] not in ready and found is not None:
        found.removed()
