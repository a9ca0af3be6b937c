"""How a drive is used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bam.config import parse_kind
from bam.errors import ConfigError
from bam.storage.nvme.controller import PAGE_BYTES
from bam.storage.queues import MAX_DEPTH, MIN_DEPTH

#: A Read counts its blocks in 16 bits, and a block has at least 512 bytes.
MAX_TRANSFER_BYTES = 32 << 20


class DataPointerKind(Enum):
    """How commands say where their bytes lie."""

    AUTO = "auto"
    PRP = "prp"
    SGL = "sgl"


@dataclass(frozen=True)
class DriveSettings:
    """How a drive is used; see docs/settings.md.

    Attributes
    ----------
    n_queue_pairs : int
        I/O queue pairs.
    depth : int
        Slots of each queue, a power of two.
    max_transfer_bytes : int
        Longest command, whole memory pages of 4,096 bytes; less where the drive allows less (MDTS).
    timeout_s : float
        A command that takes longer is aborted; if that does not help, the controller is reset.
    data_pointer : DataPointerKind
        ``auto``: SGL where the drive has it, else PRP.
    reserved_queue_pairs : int
        Further queue pairs, for a GPU to create.
    """

    n_queue_pairs: int = 4
    depth: int = 128
    max_transfer_bytes: int = 128 << 10
    timeout_s: float = 10.0
    data_pointer: DataPointerKind = DataPointerKind.AUTO
    reserved_queue_pairs: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.n_queue_pairs <= 65535:
            raise ConfigError("n_queue_pairs", self.n_queue_pairs, "1 to 65535")
        if not MIN_DEPTH <= self.depth <= MAX_DEPTH or self.depth & (self.depth - 1):
            raise ConfigError("depth", self.depth, f"a power of two from {MIN_DEPTH} to {MAX_DEPTH}")
        if not 0 <= self.reserved_queue_pairs <= 65535 - self.n_queue_pairs:
            raise ConfigError(
                "reserved_queue_pairs", self.reserved_queue_pairs, "0 to 65535, with n_queue_pairs"
            )
        pages, rest = divmod(self.max_transfer_bytes, PAGE_BYTES)
        if rest or not 1 <= pages <= MAX_TRANSFER_BYTES // PAGE_BYTES:
            raise ConfigError(
                "max_transfer_bytes", self.max_transfer_bytes, "a multiple of 4096 up to 32 MiB"
            )
        if not 0 < self.timeout_s <= 3600:
            raise ConfigError("timeout_s", self.timeout_s, "seconds, above 0 and up to 3600")
        object.__setattr__(
            self, "data_pointer", parse_kind("data_pointer", self.data_pointer, DataPointerKind)
        )
