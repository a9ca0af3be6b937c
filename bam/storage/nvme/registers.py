"""Registers of an NVMe controller (NVM Express base specification 2.0, "Controller Properties")."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag

#: Where the doorbells begin (PCIe transport specification).
DOORBELL_OFFSET = 0x1000

_ALL_ONES = 0xFFFF_FFFF


class Register(IntEnum):
    """Offsets in bytes."""

    CAP = 0x00
    VS = 0x08
    INTMS = 0x0C
    INTMC = 0x10
    CC = 0x14
    CSTS = 0x1C
    NSSR = 0x20
    AQA = 0x24
    ASQ = 0x28
    ACQ = 0x30


class Status(IntFlag):
    """Bits of CSTS."""

    RDY = 1
    CFS = 1 << 1
    SHST_OCCURRING = 1 << 2
    SHST_COMPLETE = 2 << 2
    SHST = 3 << 2


@dataclass(frozen=True)
class Access:
    """One access of 32 bits: `value` was read from or written to the register at `offset`."""

    write: bool
    offset: int
    value: int


@dataclass(frozen=True)
class Capabilities:
    """The fields of CAP that matter here.

    Attributes
    ----------
    max_queue_entries : int
        Deepest queue (MQES, which counts from 0, and one).
    contiguous_queues : bool
        Queues must be physically contiguous (CQR); ours are contiguous for the drive in any case.
    timeout_s : float
        Longest time until CSTS.RDY follows CC.EN (TO, in units of 500 ms).
    doorbell_stride : int
        Exponent: doorbells are ``4 << doorbell_stride`` bytes apart (DSTRD).
    nvm_command_set : bool
        CSS bit 0.
    min_page_bytes, max_page_bytes : int
        ``2 ** (12 + MPSMIN)``, ``2 ** (12 + MPSMAX)``.
    """

    max_queue_entries: int
    contiguous_queues: bool
    timeout_s: float
    doorbell_stride: int
    nvm_command_set: bool
    min_page_bytes: int
    max_page_bytes: int

    @classmethod
    def decode(cls, value: int) -> Capabilities:
        """From the 64 bits of the register."""
        return cls(
            max_queue_entries=(value & 0xFFFF) + 1,
            contiguous_queues=bool(value >> 16 & 1),
            timeout_s=(value >> 24 & 0xFF) * 0.5,
            doorbell_stride=value >> 32 & 0xF,
            nvm_command_set=bool(value >> 37 & 1),
            min_page_bytes=4096 << (value >> 48 & 0xF),
            max_page_bytes=4096 << (value >> 52 & 0xF),
        )


def configuration(*, enable: bool, page_bytes: int = 4096, shutdown: bool = False) -> int:
    """Value of CC: NVM command set, round robin, entries of 64 and 16 bytes.

    Parameters
    ----------
    enable : bool
        CC.EN.
    page_bytes : int
        Memory page size, a power of two (CC.MPS).
    shutdown : bool
        CC.SHN: normal shutdown notification.
    """
    page_exponent = page_bytes.bit_length() - 13
    return int(enable) | page_exponent << 7 | int(shutdown) << 14 | 6 << 16 | 4 << 20


class Registers:
    """Registers at an address of this process, in accesses of 32 bits.

    Parameters
    ----------
    address : int
        Where BAR 0 is mapped; valid as long as this object is used.
    watch : callable, optional
        Told of each :class:`Access`, after it.
    """

    def __init__(self, address: int, watch: Callable[[Access], None] | None = None) -> None:
        self.address = address
        self._watch = watch

    def read32(self, offset: int) -> int:
        """Value of the 32-bit register at `offset`."""
        value = ctypes.c_uint32.from_address(self.address + offset).value
        if self._watch is not None:
            self._watch(Access(False, offset, value))
        return value

    def write32(self, offset: int, value: int) -> None:
        """Write the 32-bit register at `offset`."""
        ctypes.c_uint32.from_address(self.address + offset).value = value
        if self._watch is not None:
            self._watch(Access(True, offset, value))

    def read64(self, offset: int) -> int:
        """A 64-bit register, lower half first (which every controller supports)."""
        low = self.read32(offset)
        return low | self.read32(offset + 4) << 32

    def write64(self, offset: int, value: int) -> None:
        """Write a 64-bit register, lower half first."""
        self.write32(offset, value & 0xFFFF_FFFF)
        self.write32(offset + 4, value >> 32)

    def capabilities(self) -> Capabilities:
        """CAP, decoded."""
        return Capabilities.decode(self.read64(Register.CAP))

    def status(self) -> int | None:
        """CSTS, or None when the controller is gone: a device that is not there reads as all ones."""
        value = self.read32(Register.CSTS)
        return None if value == _ALL_ONES else value
