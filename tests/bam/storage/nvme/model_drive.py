"""An NVMe drive in plain Python, written from the specifications alone: a second opinion on the driver.

It lies in memory of the process: BAR 0 is a mapping that a thread looks at, and addresses of the drive are
addresses of the process. It checks what hosts must keep to and records every breach in `errors`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.storage.nvme.dma import DmaKind, DmaSpace

PAGE = 4096
ALL_ONES = 0xFFFFFFFF
_SQE = struct.Struct("<BBHI8xQQQ6I")


@dataclass
class Namespace:
    """A namespace and its contents."""

    data: npt.NDArray[np.uint8]
    block_bytes: int = 512
    metadata_bytes: int = 0

    @property
    def n_blocks(self) -> int:
        return len(self.data) // self.block_bytes


@dataclass
class _Queue:
    address: int
    depth: int
    position: int = 0
    phase: int = 1
    completion_queue: int = 0


@dataclass(frozen=True)
class Command:
    """A submission queue entry."""

    queue: int
    opcode: int
    flags: int
    cid: int
    nsid: int
    prp1: int
    prp2: int
    cdw10: int
    cdw11: int
    cdw12: int

    @property
    def slba(self) -> int:
        return self.cdw10 | self.cdw11 << 32

    def touches(self, block: int) -> bool:
        """Whether it is a read or write of that block."""
        return self.slba <= block <= self.slba + (self.cdw12 & 0xFFFF)


@dataclass
class Behaviour:
    """What a drive is and how it misbehaves; may be changed while it runs."""

    max_queue_entries: int = 1024
    doorbell_stride: int = 0
    mdts: int = 5
    sgl: bool = False
    queue_pairs: int = 64
    ready_timeout: int = 4  # CAP.TO, in 500 ms
    #: Status (type << 8 | code) of a command, or None to do it.
    refuse: Callable[[Command], int | None] = lambda command: None
    #: Commands that are never answered.
    ignore: Callable[[Command], bool] = lambda command: False
    can_abort: bool = True
    never_ready: bool = False
    vanished: bool = False
    command_sets: int = 1


@dataclass
class _Done:
    queue: int
    cid: int
    status: int
    dw0: int = 0


class ModelDrive:
    """A device as :class:`bam.storage.nvme.drive.Device` wants it; :meth:`close` ends its thread."""

    interface = "model"

    def __init__(self, namespaces: dict[int, Namespace], behaviour: Behaviour | None = None) -> None:
        self.namespaces, self.behaviour = namespaces, behaviour or Behaviour()
        self.errors: list[str] = []
        self.commands: list[Command] = []
        self.resets = 0
        self.mapped = self.bus_master = False
        self.space = DmaSpace(DmaKind.IDENTITY)
        self._bar = mmap.mmap(-1, 1 << 20)
        self._words = np.frombuffer(self._bar, np.uint32)
        self._request = os.eventfd(0)
        self._sqs: dict[int, _Queue] = {}
        self._cqs: dict[int, _Queue] = {}
        self._ignored: list[Command] = []
        self._enabled = False
        self._stopping = threading.Event()
        self._write_capabilities()
        if self.behaviour.vanished:
            self._words[:8] = ALL_ONES
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # ---- as a device

    def map_registers(self, n_bytes: int) -> int:
        assert n_bytes <= len(self._bar)
        self.mapped = True
        return int(self._words.ctypes.data)

    def unmap_registers(self) -> None:
        self.mapped = False

    def enable_bus_master(self) -> None:
        self.bus_master = True

    def removal_events(self) -> list[int]:
        return [self._request]

    def request_removal(self) -> None:
        """The kernel asks for the device back."""
        os.eventfd_write(self._request, 1)

    def close(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._thread.join()
            self.space.close()
            os.close(self._request)

    # ---- the controller

    def _write_capabilities(self) -> None:
        its = self.behaviour
        low = its.max_queue_entries - 1 | 1 << 16 | its.ready_timeout << 24
        self._words[0] = low
        self._words[1] = its.doorbell_stride | its.command_sets << 5
        self._words[2] = 0x20000

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self.behaviour.vanished:
                self._words[:8] = ALL_ONES
                time.sleep(0.001)
                continue
            busy = self._look_at_configuration()
            if self._enabled:
                busy |= sum(self._serve(number) for number in list(self._sqs)) > 0
            time.sleep(0 if busy else 0.0002)

    def _look_at_configuration(self) -> bool:
        configuration = int(self._words[5])
        enable = bool(configuration & 1)
        if enable and not self._enabled and not self.behaviour.never_ready:
            self._enable(configuration)
        elif not enable and self._enabled:
            self._enabled = False
            self._sqs.clear()
            self._cqs.clear()
            self._ignored.clear()
            self._words[0x400:0x800] = 0
            self.resets += 1
            self._words[7] = 0
        if configuration >> 14 & 3:
            self._words[7] = int(self._words[7]) | 2 << 2
        return False

    def _enable(self, configuration: int) -> None:
        if (configuration >> 16 & 0xF, configuration >> 20 & 0xF) != (6, 4):
            self.errors.append(f"CC entry sizes {configuration:#x}")
        if configuration >> 7 & 0xF or not self.bus_master:
            self.errors.append(f"CC.MPS {configuration:#x}, bus master {self.bus_master}")
        sizes = int(self._words[9])
        asq = int(self._words[10]) | int(self._words[11]) << 32
        acq = int(self._words[12]) | int(self._words[13]) << 32
        if asq % PAGE or acq % PAGE:
            self.errors.append("admin queues are not at a page's beginning")
        self._sqs[0] = _Queue(asq, (sizes & 0xFFF) + 1)
        self._cqs[0] = _Queue(acq, (sizes >> 16 & 0xFFF) + 1)
        self._enabled = True
        self._words[7] = 1

    def _doorbell(self, number: int, completion: bool) -> int:
        return 0x400 + (2 * number + completion << self.behaviour.doorbell_stride)

    def _serve(self, number: int) -> bool:
        queue = self._sqs.get(number)
        if queue is None:
            return False
        tail = int(self._words[self._doorbell(number, False)])
        if tail >= queue.depth:
            self.errors.append(f"tail {tail} of queue {number}")
            return False
        busy = False
        while queue.position != tail and number in self._sqs:
            entry = ctypes.string_at(queue.address + 64 * queue.position, 64)
            opcode, flags, cid, nsid, _, prp1, prp2, *dwords = _SQE.unpack(entry)
            queue.position = (queue.position + 1) % queue.depth
            command = Command(number, opcode, flags, cid, nsid, prp1, prp2, *dwords[:3])
            self.commands.append(command)
            self._answer(command)
            busy = True
        return busy

    def _answer(self, command: Command) -> None:
        if self.behaviour.ignore(command):
            self._ignored.append(command)
            return
        status, dw0 = self.behaviour.refuse(command), 0
        if status is None:
            status, dw0 = self._admin(command) if command.queue == 0 else (self._io(command), 0)
        self._complete(_Done(command.queue, command.cid, status, dw0))

    def _complete(self, done: _Done) -> None:
        sq = self._sqs.get(done.queue)
        if sq is None:
            return
        cq = self._cqs[sq.completion_queue if done.queue else 0]
        head = int(self._words[self._doorbell(done.queue, True)])
        if (cq.position + 1) % cq.depth == head:
            self.errors.append(f"completion queue {done.queue} is full")
        field_ = done.status >> 8 << 9 | (done.status & 0xFF) << 1 | cq.phase
        at = cq.address + 16 * cq.position
        ctypes.memmove(at, struct.pack("<II", done.dw0, 0), 8)
        ctypes.c_uint64.from_address(at + 8).value = (
            sq.position | done.queue << 16 | done.cid << 32 | field_ << 48
        )
        cq.position = (cq.position + 1) % cq.depth
        cq.phase ^= cq.position == 0

    # ---- admin commands

    def _admin(self, command: Command) -> tuple[int, int]:
        if command.opcode == 0x06:
            return self._identify(command), 0
        if command.opcode == 0x09:
            granted = min(self.behaviour.queue_pairs, (command.cdw11 & 0xFFFF) + 1) - 1
            return 0, granted | granted << 16
        if command.opcode == 0x08:
            return 0, self._abort(command.cdw10 & 0xFFFF, command.cdw10 >> 16)
        number, depth = command.cdw10 & 0xFFFF, (command.cdw10 >> 16) + 1
        if command.opcode in (0x01, 0x05):
            return self._create(command, number, depth), 0
        if command.opcode in (0x00, 0x04):
            queues = self._sqs if command.opcode == 0 else self._cqs
            if number == 0 or number not in queues:
                return 0x101, 0
            if command.opcode == 0x04 and number in self._sqs:
                return 0x10C, 0
            del queues[number]
            return 0, 0
        return 0x001, 0

    def _create(self, command: Command, number: int, depth: int) -> int:
        if not 1 <= number <= self.behaviour.queue_pairs:
            return 0x101
        if depth > self.behaviour.max_queue_entries or depth < 2:
            return 0x102
        if not command.cdw11 & 1 or command.prp1 % PAGE:
            return 0x002
        # A doorbell is a register to write to; what an earlier queue of that number was told is forgotten.
        self._words[self._doorbell(number, command.opcode == 0x05)] = 0
        if command.opcode == 0x05:
            self._cqs[number] = _Queue(command.prp1, depth)
            return 0
        if command.cdw11 >> 16 not in self._cqs:
            return 0x100
        self._sqs[number] = _Queue(command.prp1, depth, completion_queue=command.cdw11 >> 16)
        return 0

    def _identify(self, command: Command) -> int:
        data = bytearray(PAGE)
        if command.cdw10 == 1:
            data[4:24], data[24:64], data[64:72] = (
                b"MODEL0001".ljust(20),
                b"Model drive".ljust(40),
                b"1.0     ",
            )
            data[77] = self.behaviour.mdts
            data[258] = 3
            struct.pack_into("<I", data, 516, max(self.namespaces))
            struct.pack_into("<I", data, 536, int(self.behaviour.sgl))
        elif command.cdw10 == 2:
            listed = [nsid for nsid in sorted(self.namespaces) if nsid > command.nsid]
            struct.pack_into(f"<{len(listed)}I", data, 0, *listed)
        elif command.cdw10 == 0 and command.nsid in self.namespaces:
            found = self.namespaces[command.nsid]
            struct.pack_into("<QQQ", data, 0, found.n_blocks, found.n_blocks, found.n_blocks)
            data[26] = 1  # format 1, so that reading format 0 shows
            exponent = found.block_bytes.bit_length() - 1
            struct.pack_into("<II", data, 128, 7 << 16, exponent << 16 | found.metadata_bytes)
        else:
            return 0x00B
        ctypes.memmove(command.prp1, bytes(data), PAGE)
        return 0

    def _abort(self, number: int, cid: int) -> int:
        for command in self._ignored:
            if (command.queue, command.cid) == (number, cid) and self.behaviour.can_abort:
                self._ignored.remove(command)
                self._complete(_Done(number, cid, 0x007))
                return 0
        return 1

    # ---- reads and writes

    def _io(self, command: Command) -> int:
        namespace = self.namespaces.get(command.nsid)
        if namespace is None:
            return 0x00B
        if command.opcode == 0:
            return 0
        if command.opcode not in (1, 2):
            return 0x001
        n_blocks = (command.cdw12 & 0xFFFF) + 1
        length = n_blocks * namespace.block_bytes
        if self.behaviour.mdts and length > PAGE << self.behaviour.mdts:
            return 0x002
        if command.slba + n_blocks > namespace.n_blocks:
            return 0x080
        at = command.slba * namespace.block_bytes
        for address, size in self._pieces(command, length):
            target = namespace.data[at : at + size]
            if command.opcode == 2:
                ctypes.memmove(address, target.ctypes.data, size)
            else:
                ctypes.memmove(target.ctypes.data, address, size)
            at += size
        return 0

    def _pieces(self, command: Command, length: int) -> Iterator[tuple[int, int]]:
        if command.flags == 0x40:
            if not self.behaviour.sgl or command.prp2 >> 56 or command.prp2 & 0xFFFFFFFF != length:
                self.errors.append(f"SGL {command}")
            yield command.prp1, length
            return
        if command.flags or command.prp1 % 4:
            self.errors.append(f"data pointer {command}")
        size = min(length, PAGE - command.prp1 % PAGE)
        yield command.prp1, size
        length -= size
        if 0 < length <= PAGE:
            yield self._page(command.prp2), length
            return
        entry = command.prp2
        while length > 0:
            (address,) = struct.unpack("<Q", ctypes.string_at(entry, 8))
            if entry % PAGE == PAGE - 8 and length > PAGE:
                entry = self._page(address)
                continue
            size = min(length, PAGE)
            yield self._page(address), size
            length -= size
            entry += 8

    def _page(self, address: int) -> int:
        if address % PAGE:
            self.errors.append(f"PRP entry {address:#x} is not a page")
        return address
