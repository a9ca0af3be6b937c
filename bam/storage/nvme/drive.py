"""An NVMe drive in the hands of this process."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

import numpy as np
import numpy.typing as npt

from bam.errors import (
    ClosedError,
    ConfigError,
    DriveUnavailable,
    ForkedError,
    NvmeStatusError,
    StorageError,
    WaitTimeout,
)
from bam.storage.nvme.controller import PAGE_BYTES, Controller
from bam.storage.nvme.data_path import DataPath, Opcode, PathMemory, errno_of
from bam.storage.nvme.device import Device
from bam.storage.nvme.dma import DmaMemory
from bam.storage.nvme.identify import NamespaceIdentity
from bam.storage.nvme.pci import PciFunction
from bam.storage.nvme.queues import QueueMemory
from bam.storage.nvme.registers import DOORBELL_OFFSET, Capabilities, Registers
from bam.storage.nvme.settings import DataPointerKind, DriveSettings
from bam.storage.nvme.supervisor import Recoverer, Supervisor
from bam.storage.nvme.vfio import VfioDevice
from bam.storage.queues import BatchOutcome, BatchState, QueueStats, status_name

logger = logging.getLogger(__name__)

DEFAULT_SETTINGS = DriveSettings()
_FLUSH_TIMEOUT_S = 60.0


def open_drive(address: str, settings: DriveSettings = DEFAULT_SETTINGS) -> NvmeDrive:
    """Open the drive at a PCI address.

    Raises
    ------
    DriveUnavailable
        Says what is in the way and what to do.
    ConfigError
        More queue pairs, or deeper ones, than the drive has.
    """
    function = PciFunction.at(address)
    return NvmeDrive(function.address, VfioDevice(function), settings)


class NvmeDrive:
    """An NVMe drive that this process drives itself. Thread-safe.

    Parameters
    ----------
    name : str
        In errors; its PCI address.
    device : Device
        Closed with the drive, also if it cannot be brought up.
    settings : DriveSettings

    Attributes
    ----------
    identity : ControllerIdentity
    namespaces : tuple of NamespaceIdentity
    max_transfer_bytes : int
        Longest command.
    use_sgl : bool
    """

    def __init__(self, name: str, device: Device, settings: DriveSettings = DEFAULT_SETTINGS) -> None:
        self.name, self.settings = name, settings
        self._device = device
        self._pid = os.getpid()
        self._closed = False
        self._kept: list[npt.NDArray[np.uint8]] = []
        with ExitStack() as opened:
            opened.callback(device.close)
            self._bring_up(opened)
            self._opened = opened.pop_all()

    @property
    def path(self) -> DataPath:
        """Queue pairs and transfers."""
        return self._path

    @property
    def capabilities(self) -> Capabilities:
        """CAP of the controller."""
        return self._controller.capabilities

    @property
    def interface(self) -> str:
        """How it was opened: ``type1`` or ``iommufd``."""
        return self._device.interface

    @property
    def gone(self) -> str | None:
        """Why the drive cannot be used any more; None as long as it can."""
        return self._supervisor.gone

    def namespace(self, nsid: int) -> NamespaceIdentity:
        """The active namespace of that number.

        Raises
        ------
        ConfigError
            There is none, or its blocks carry metadata.
        """
        for found in self.namespaces:
            if found.nsid == nsid and found.is_usable:
                return found
        usable = [found.nsid for found in self.namespaces if found.is_usable]
        expected = f"one of {self.name}'s namespaces with blocks of 512 to 4096 bytes and no metadata"
        raise ConfigError("nsid", nsid, f"{expected}: {usable}")

    def transfer(
        self,
        nsid: int,
        opcode: Opcode,
        lbas: npt.NDArray[np.int64],
        n_blocks: int,
        memory: npt.NDArray[np.uint8],
    ) -> None:
        """Move `n_blocks` blocks at each of `lbas` into or from the rows of `memory`, and wait.

        Parameters
        ----------
        nsid : int
        opcode : Opcode
        lbas : int64 array of shape (n,)
        n_blocks : int
            1 to ``max_transfer_bytes / block_bytes``.
        memory : uint8 array of shape (n, n_blocks * block_bytes)
            C-contiguous; undefined after an error.

        Raises
        ------
        NvmeStatusError
            A command failed: the first one in `lbas`. Or commands took too long and the controller was reset
            (ETIMEDOUT), or the drive has gone (ENODEV).
        ConfigError, ClosedError
        """
        namespace = self.namespace(nsid)
        self.check_usable()
        outcome = self._path.transfer(namespace, opcode, lbas, n_blocks, memory)
        if outcome.state is BatchState.DONE:
            return
        if outcome.state is BatchState.FAILED:
            raise self._error(namespace, outcome, int(lbas[outcome.position]), n_blocks)
        if outcome.state is BatchState.CLOSED:
            if self._closed or self.gone is None:
                raise ClosedError(f"drive {self.name}")
            raise StorageError(self.name, 0, 0, errno.ENODEV, note=self.gone)
        self._kept.append(memory)
        remedy = "The drive may still write to the memory, which is kept"
        raise WaitTimeout(f"commands of drive {self.name}", self.settings.timeout_s, remedy)

    def allocate(self, n_bytes: int) -> DmaMemory:
        """Memory that reads go to directly; freed with the drive and everything made from it.

        Raises
        ------
        DriveUnavailable
        """
        return self._device.space.allocate(n_bytes)

    def create_reserved_queues(self, n_pairs: int, depth: int) -> list[QueueMemory]:
        """Queue pairs for somebody else to use, until the controller is reset or the drive closed.

        Raises
        ------
        ConfigError
            More than `reserved_queue_pairs` of the settings, or deeper than the drive's.
        """
        with self._supervisor.control:
            self.check_usable()
            reserved = self._supervisor.reserved
            left = self.settings.reserved_queue_pairs - len(reserved)
            if n_pairs > left:
                raise ConfigError("queue_pairs", n_pairs, f"at most {left}: the drive's reserved_queue_pairs")
            if depth > self.capabilities.max_queue_entries:
                deepest = self.capabilities.max_queue_entries
                raise ConfigError("queue_slots", depth, f"at most {deepest} (CAP.MQES)")
            numbers = [
                number
                for number in range(self.settings.n_queue_pairs + 1, self._n_queues + 1)
                if number not in reserved
            ][:n_pairs]
            made = [QueueMemory.allocate(self._device.space, number, depth) for number in numbers]
            self._controller.create_queues(made)
            reserved += numbers
            return made

    def delete_reserved_queues(self, queue_ids: Sequence[int]) -> None:
        """Give them back; commands in them are aborted. Those that a reset has ended are passed over."""
        with self._supervisor.control:
            reserved = self._supervisor.reserved
            known = [number for number in queue_ids if number in reserved]
            reserved[:] = [number for number in reserved if number not in known]
            if self.gone is None:
                self._controller.delete_queues(known)

    def flush(self, nsid: int) -> None:
        """Have the drive make durable what was written to a namespace.

        Raises
        ------
        NvmeStatusError, StorageError
        """
        self.check_usable()
        # Opcode 00h; nothing but the namespace is filled in.
        command = bytes(4) + nsid.to_bytes(4, "little") + bytes(56)
        outcome = self._path.queues.command(command, max(_FLUSH_TIMEOUT_S, self.settings.timeout_s))
        if outcome.state is BatchState.FAILED:
            raise self._error(self.namespace(nsid), outcome, 0, 0)
        if outcome.state is not BatchState.DONE:
            raise StorageError(self.name, 0, 0, errno.ETIMEDOUT, note="Flush had no answer in time")

    def admin(self, command: bytes) -> int:
        """Send an admin command and wait; returns dword 0 of its completion, raises as `Controller.admin`."""
        with self._supervisor.control:
            self.check_usable()
            return self._controller.admin(command)

    def queue_stats(self) -> QueueStats:
        """Counters of the I/O queue pairs."""
        return self._path.queues.stats()

    def reset(self) -> None:
        """Reset the controller; commands outstanding end with ECANCELED."""
        self.check_usable()
        self._supervisor.reset(errno.ECANCELED)

    def close(self) -> None:
        """Finish what is outstanding, shut the controller down, give the device back. Idempotent."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._supervisor.close()
        self._opened.close()

    def __enter__(self) -> NvmeDrive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self.close()

    # ---- bringing up

    def _bring_up(self, opened: ExitStack) -> None:
        settings, space = self.settings, self._device.space
        self._device.enable_bus_master()
        address = self._device.map_registers(DOORBELL_OFFSET + PAGE_BYTES)
        if Registers(address).status() is None:
            remedy = "It may have failed or lost power: see dmesg, or restart the machine"
            raise DriveUnavailable(self.name, "its registers read as all ones", remedy)
        stride = 4 << Registers(address).capabilities().doorbell_stride
        self._n_queues = settings.n_queue_pairs + settings.reserved_queue_pairs
        needed = DOORBELL_OFFSET + 2 * (self._n_queues + 1) * stride
        address = self._device.map_registers(needed)
        self.register_window = (address, -(-needed // PAGE_BYTES) * PAGE_BYTES)
        self._controller = Controller(self.name, Registers(address), space)
        opened.callback(self._controller.close)
        deepest = self._controller.capabilities.max_queue_entries
        if settings.depth > deepest:
            raise ConfigError(
                "depth", settings.depth, f"at most {deepest}, the deepest queue of {self.name} (CAP.MQES)"
            )
        self._controller.enable()
        opened.callback(self._disable_quietly)
        self.identity = self._controller.identity()
        self.namespaces = tuple(self._controller.namespaces())
        limit = self.identity.max_transfer_bytes
        self.max_transfer_bytes = min(settings.max_transfer_bytes, limit or settings.max_transfer_bytes)
        self.use_sgl = self._choose_sgl()
        self._memory = PathMemory.allocate(
            space, settings.n_queue_pairs, settings.depth, self.max_transfer_bytes
        )
        self._controller.grant_queues(self._n_queues)
        self._controller.create_queues(self._memory.queues)
        self._supervisor = Supervisor(
            self._device, self._controller, self._memory.queues, self._n_queues, settings.timeout_s
        )
        capabilities = self._controller.capabilities
        self._path = DataPath(
            space,
            self._memory,
            [queue.pair(address, capabilities.doorbell_stride) for queue in self._memory.queues],
            use_sgl=self.use_sgl,
            timeout_s=settings.timeout_s,
            recover=Recoverer(self._supervisor),
        )
        opened.callback(self._path.close)
        self._supervisor.start(self._path.queues)

    def _choose_sgl(self) -> bool:
        wanted = self.settings.data_pointer
        if wanted is DataPointerKind.SGL and not self.identity.sgl:
            raise ConfigError("data_pointer", "sgl", f"'prp' or 'auto': {self.name} has no SGLs")
        return self.identity.sgl and wanted is not DataPointerKind.PRP

    def _disable_quietly(self) -> None:
        """A controller that could not be brought up must not write to memory any more."""
        if hasattr(self, "_opened"):
            return
        try:
            self._controller.disable()
        except StorageError as error:
            logger.warning("%s: not disabled: %s", self.name, error)

    def _error(
        self, namespace: NamespaceIdentity, outcome: BatchOutcome, lba: int, n_blocks: int
    ) -> NvmeStatusError:
        code = errno_of(outcome)
        note = {
            errno.ETIMEDOUT: "no answer in time, so the controller was reset",
            errno.ENODEV: self.gone or "",
        }
        return NvmeStatusError(
            f"{self.name} namespace {namespace.nsid}",
            lba * namespace.block_bytes,
            n_blocks * namespace.block_bytes,
            code,
            outcome.status,
            status_name(outcome.status),
            note.get(code, ""),
        )

    def check_usable(self) -> None:
        """Raise unless commands can be sent.

        Raises
        ------
        ClosedError, ForkedError, StorageError
        """
        if os.getpid() != self._pid:
            raise ForkedError(f"drive {self.name}")
        if self._closed:
            raise ClosedError(f"drive {self.name}")
        if self.gone is not None:
            raise StorageError(self.name, 0, 0, errno.ENODEV, note=self.gone)
