"""A store on one or more NVMe drives, open for reading."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

import numpy as np

from bam.errors import ConfigError, SourceError, StorageError
from bam.storage.native import NativeEngine
from bam.storage.nvme.drive import DEFAULT_SETTINGS, NvmeDrive, open_drive
from bam.storage.nvme.drive_run import DriveRun
from bam.storage.nvme.engine import DriveFile, NvmeEngine
from bam.storage.nvme.raw_namespace import RawNamespace
from bam.storage.nvme.settings import DriveSettings
from bam.storage.nvme.store_format import (
    ALIGN,
    DESCRIPTION_OFFSET,
    Member,
    StoreState,
    Superblock,
    decode_description,
    newest,
    round_up,
)
from bam.storage.striped import StripedEngine


class NvmeStore:
    """The files of a store, read from raw namespaces.

    Parameters
    ----------
    targets : sequence of RawNamespace
        All namespaces of the store, in any order.

    Attributes
    ----------
    members : tuple of Member
    superblock : Superblock
        Of the first namespace.

    Raises
    ------
    SourceError
        No store, not complete, or not all namespaces of it.
    """

    def __init__(self, targets: Sequence[RawNamespace]) -> None:
        found = sorted(((_superblock(one), one) for one in targets), key=lambda pair: pair[0].drive_index)
        self.superblock = found[0][0]
        self._blocks = [block for block, _ in found]
        self._targets = [target for _, target in found]
        indices = [block.drive_index for block in self._blocks]
        if len({block.uuid for block in self._blocks}) > 1 or indices != list(
            range(self.superblock.n_drives)
        ):
            names = ", ".join(target.name for target in targets)
            expected = f"all {self.superblock.n_drives} namespaces of store {self.superblock.uuid}"
            raise SourceError(names, expected, f"numbers {indices} of {len(set(self._blocks))} superblocks")
        self.members = self._read_description()
        self._opened = ExitStack()

    @classmethod
    def open(
        cls, addresses: Sequence[str], settings: DriveSettings = DEFAULT_SETTINGS, nsid: int = 1
    ) -> NvmeStore:
        """Open the drives at PCI addresses and the store on them; closing the store closes the drives."""
        with ExitStack() as opened:
            drives = [opened.enter_context(open_drive(address, settings)) for address in addresses]
            store = cls([RawNamespace(drive, nsid) for drive in drives])
            store._opened = opened.pop_all()
        return store

    @property
    def drives(self) -> list[NvmeDrive]:
        return [target.drive for target in self._targets]

    @property
    def name(self) -> str:
        return f"nvme store {self.superblock.uuid}"

    def member(self, name: str) -> Member:
        """The file of that name.

        Raises
        ------
        ConfigError
        """
        for one in self.members:
            if one.name == name:
                return one
        raise ConfigError("name", name, f"one of the store's files: {[one.name for one in self.members]}")

    def open_engine(self) -> NativeEngine:
        """An engine with one file, the data of the store; closed by the caller, before the store."""
        engines = []
        n_drives, stripe = self.superblock.n_drives, self.superblock.stripe_bytes
        for block, target in zip(self._blocks, self._targets, strict=True):
            units = self.superblock.logical_bytes // stripe
            whole = units // n_drives + (block.drive_index < units % n_drives)
            rest = self.superblock.logical_bytes % stripe if block.drive_index == units % n_drives else 0
            first = block.data_offset // target.identity.block_bytes
            file = DriveFile(target.name, target.identity.nsid, first, whole * stripe + rest)
            engines.append(NvmeEngine(target.drive, [file]))
        if n_drives == 1:
            return engines[0]
        try:
            return StripedEngine(engines, stripe, logical_bytes=self.superblock.logical_bytes)
        finally:
            for engine in engines:
                engine.close()  # the striped one keeps what it needs

    def run_at(self, offset: int) -> DriveRun | None:
        """Where the data from `offset` on lie on the drive, for a GPU to read.

        None with several drives, where the data do not begin with a block, and for a drive that was opened
        without `reserved_queue_pairs`.
        """
        target, block = self._targets[0], self._blocks[0]
        reserved = target.drive.settings.reserved_queue_pairs
        if len(self._targets) > 1 or not reserved or offset % target.identity.block_bytes:
            return None
        return DriveRun(target.drive, target.identity.nsid, block.data_offset + offset)

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Any bytes of the data; for headers and tests, not for speed."""
        first, last = offset // ALIGN * ALIGN, round_up(offset + n_bytes, ALIGN)
        parts = []
        stripe, n_drives = self.superblock.stripe_bytes, self.superblock.n_drives
        while first < last:
            unit, inside = divmod(first, stripe)
            length = min(last - first, stripe - inside)
            number = unit % n_drives
            at = self._blocks[number].data_offset + unit // n_drives * stripe + inside
            parts.append(self._targets[number].read(at, length))
            first += length
        lead = offset % ALIGN
        return b"".join(parts)[lead : lead + n_bytes]

    def verify(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read everything back and compare it with the checksums.

        Raises
        ------
        StorageError
            Bytes that differ (EILSEQ): which namespace, where, how many.
        """
        total = sum(block.n_chunks * block.chunk_bytes for block in self._blocks)
        done = 0
        for block, target in zip(self._blocks, self._targets, strict=True):
            table = np.frombuffer(target.read(block.table_offset, round_up(4 * block.n_chunks, ALIGN)), "<u4")
            for chunk in range(block.n_chunks):
                at = block.data_offset + chunk * block.chunk_bytes
                found = zlib.crc32(target.read(at, block.chunk_bytes))
                if found != table[chunk]:
                    note = f"chunk {chunk} has CRC-32 {found:08x}, and {int(table[chunk]):08x} was written"
                    raise StorageError(target.name, at, block.chunk_bytes, errno.EILSEQ, note=note)
                done += block.chunk_bytes
                progress(done, total)

    def close(self) -> None:
        """Close the drives, if the store opened them."""
        self._opened.close()

    def __enter__(self) -> NvmeStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_description(self) -> tuple[Member, ...]:
        block, target = self._blocks[0], self._targets[0]
        text = target.read(DESCRIPTION_OFFSET, round_up(block.description_bytes, ALIGN))[
            : block.description_bytes
        ]
        if zlib.crc32(text) != block.description_crc:
            raise SourceError(target.name, "the description of the store", "bytes with another CRC-32")
        return decode_description(text)


def _superblock(target: RawNamespace) -> Superblock:
    block = newest(target.read(0, 2 * ALIGN))
    if block is None:
        raise SourceError(target.name, "a store (python -m bam nvme write makes one)", "no superblock")
    if block.state is not StoreState.COMPLETE:
        done = f"{block.chunks_done} of {block.n_chunks} chunks"
        raise SourceError(target.name, "a complete store; write it again to go on", f"one with {done}")
    return block
