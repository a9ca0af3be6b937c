"""Writes a store to raw namespaces, so that it can be cut off at any time and go on."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError, SourceError
from bam.storage.nvme.raw_namespace import RawNamespace
from bam.storage.nvme.signatures import find_signature
from bam.storage.nvme.store_format import (
    ALIGN,
    DESCRIPTION_OFFSET,
    Member,
    StoreState,
    Superblock,
    encode_description,
    newest,
    plan,
    round_up,
)

logger = logging.getLogger(__name__)

#: Chunks of each namespace between two notes of how far the writing has come.
NOTE_EVERY = 64


@dataclass(frozen=True)
class SourceFile:
    """A file to be written: its place in the store, and what it was when it was listed."""

    path: Path
    member: Member
    modified_ns: int


def list_source(path: str | os.PathLike[str]) -> tuple[SourceFile, ...]:
    """The file at `path`, or all files below a folder, in the order they will lie in.

    Raises
    ------
    SourceError
        There is nothing.
    """
    root = Path(path)
    if root.is_file():
        found = [(root.name, root)]
    else:
        found = sorted(
            (file.relative_to(root).as_posix(), file) for file in root.rglob("*") if file.is_file()
        )
    if not found:
        raise SourceError(os.fspath(path), "a file, or a folder with files", "nothing")
    listed, offset = [], 0
    for name, file in found:
        status = file.stat()
        # The rows of a `.npy` file begin with a block, so that a GPU can read them page by page.
        offset += -header_bytes(file) % ALIGN
        listed.append(SourceFile(file, Member(name, status.st_size, offset), status.st_mtime_ns))
        offset = round_up(offset + status.st_size, ALIGN)
    return tuple(listed)


def header_bytes(file: Path) -> int:
    """Bytes before the data of a `.npy` file; 0 for others (numpy's NEP 1)."""
    with file.open("rb") as opened:
        start = opened.read(12).ljust(12, b"\0")
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        return 0
    (text_bytes,) = struct.unpack_from("<H" if start[6] == 1 else "<I", start, 8)
    return int(text_bytes) + (10 if start[6] == 1 else 12)


def fingerprint_of(files: Sequence[SourceFile], n_drives: int, stripe_bytes: int) -> bytes:
    """SHA-256 of what must be the same for a writing to go on."""
    listed = [[one.member.name, one.member.n_bytes, one.modified_ns] for one in files]
    return hashlib.sha256(json.dumps([listed, n_drives, stripe_bytes]).encode()).digest()


def write_store(
    source: str | os.PathLike[str],
    targets: Sequence[RawNamespace],
    *,
    stripe_bytes: int = 4096,
    serials: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Superblock:
    """Write a file or a folder to one or more namespaces, or go on with a writing that was cut off.

    Parameters
    ----------
    source : path
    targets : sequence of RawNamespace
        In the order of the stripes.
    stripe_bytes : int
        A multiple of 4,096.
    serials : collection of str
        Serial numbers of drives whose present contents may be lost.
    progress : callable
        Told of bytes done and bytes in total, as the writing advances.

    Returns
    -------
    Superblock
        Of the first namespace, of the complete store.

    Raises
    ------
    ConfigError
        A namespace holds something, and its serial number was not given; or is too small.
    SourceError
        A source file changed while it was read.
    NvmeStatusError
        A drive refused; call again to go on.
    """
    if stripe_bytes < ALIGN or stripe_bytes % ALIGN:
        raise ConfigError("stripe_bytes", stripe_bytes, f"a multiple of {ALIGN}")
    files = list_source(source)
    fingerprint = fingerprint_of(files, len(targets), stripe_bytes)
    blocks = _resumable(targets, fingerprint)
    if blocks is None:
        blocks = plan(tuple(one.member for one in files), fingerprint, len(targets), stripe_bytes)
        check_targets(targets, blocks[0].needed_bytes, serials)
        _begin(targets, blocks, files)
    elif blocks[0].state is StoreState.COMPLETE:
        logger.info("the store is complete already")
        return blocks[0]
    return _Writing(files, list(targets), blocks, progress).run()


def check_targets(targets: Sequence[RawNamespace], needed_bytes: int, serials: Collection[str]) -> None:
    """Refuse namespaces that are too small, or hold something that was not given up by serial number.

    Raises
    ------
    ConfigError
    """
    for target in targets:
        if target.n_bytes < needed_bytes:
            raise ConfigError(
                "targets", target.name, f"a namespace of at least {needed_bytes} bytes, not {target.n_bytes}"
            )
        held = find_signature(target.read, target.n_bytes)
        serial = target.drive.identity.serial
        if held is not None and serial not in serials:
            expected = (
                f"an empty namespace; it holds {held}. If that may be lost, type the drive's serial number: "
                f"--serial {serial}"
            )
            raise ConfigError("targets", target.name, expected)


def _resumable(targets: Sequence[RawNamespace], fingerprint: bytes) -> list[Superblock] | None:
    """The superblocks of this very store, in order, or None."""
    found = []
    for target in targets:
        block = newest(target.read(0, 2 * ALIGN))
        if block is None or block.fingerprint != fingerprint:
            return None
        # Somebody took the disk meanwhile and left one of our two marks.
        if find_signature(target.read, target.n_bytes, foreign_only=True) is not None:
            return None
        found.append(block)
    one_store = len({block.uuid for block in found}) == 1
    in_order = [block.drive_index for block in found] == list(range(len(found)))
    if not one_store or not in_order:
        return None
    # Cut off between the last notes: complete on some namespaces only.
    if len({block.state for block in found}) > 1:
        return [block.next(chunks_done=block.chunks_done) for block in found]
    return found


def _begin(
    targets: Sequence[RawNamespace], blocks: Sequence[Superblock], files: Sequence[SourceFile]
) -> None:
    description = encode_description(tuple(one.member for one in files))
    padded = description.ljust(round_up(len(description), ALIGN), b"\0")
    for target, block in zip(targets, blocks, strict=True):
        target.write(0, bytes(DESCRIPTION_OFFSET))
        target.write(DESCRIPTION_OFFSET, padded)
        target.flush()  # what the superblock tells of is there before it
        target.write(block.place, block.encode())
        target.flush()


class _Writing:
    """A store that is being written."""

    def __init__(
        self,
        files: Sequence[SourceFile],
        targets: list[RawNamespace],
        blocks: list[Superblock],
        progress: Callable[[int, int], None],
    ) -> None:
        self._files, self._targets, self._blocks = files, targets, blocks
        self._progress = progress
        self._done = min(block.chunks_done for block in blocks)
        self._tables = [
            self._read_table(target, block) for target, block in zip(targets, blocks, strict=True)
        ]

    def run(self) -> Superblock:
        first = self._blocks[0]
        for chunk in range(self._done, first.n_chunks):
            self._write_chunk(chunk)
            if (chunk + 1) % NOTE_EVERY == 0:
                self._note(chunk + 1, StoreState.WRITING)
            self._progress(min((chunk + 1) * self._row_bytes, first.logical_bytes), first.logical_bytes)
        self._check_sources()
        self._note(first.n_chunks, StoreState.COMPLETE)
        return self._blocks[0]

    @property
    def _row_bytes(self) -> int:
        """Logical bytes that one chunk of every namespace holds together."""
        return self._blocks[0].chunk_bytes * len(self._targets)

    def _write_chunk(self, chunk: int) -> None:
        first = self._blocks[0]
        row = self._read_source(chunk * self._row_bytes, self._row_bytes)
        shares = row.reshape(-1, len(self._targets), first.stripe_bytes)
        for number, (target, block) in enumerate(zip(self._targets, self._blocks, strict=True)):
            share = np.ascontiguousarray(shares[:, number]).reshape(-1)
            self._tables[number][chunk] = zlib.crc32(share.data)
            target.write(block.data_offset + chunk * block.chunk_bytes, share)

    def _read_source(self, offset: int, n_bytes: int) -> npt.NDArray[np.uint8]:
        """Logical bytes; zeros between and after the files."""
        row = np.zeros(n_bytes, np.uint8)
        for one in self._files:
            begin = max(offset, one.member.offset)
            end = min(offset + n_bytes, one.member.offset + one.member.n_bytes)
            if begin >= end:
                continue
            with one.path.open("rb") as file:
                file.seek(begin - one.member.offset)
                read = file.readinto(row[begin - offset : end - offset].data)
            if read != end - begin:
                raise SourceError(
                    str(one.path), f"{one.member.n_bytes} bytes", "fewer: it changed while it was read"
                )
        return row

    def _check_sources(self) -> None:
        for one in self._files:
            status = one.path.stat()
            if (status.st_size, status.st_mtime_ns) != (one.member.n_bytes, one.modified_ns):
                raise SourceError(
                    str(one.path), "a file that does not change meanwhile", "another size or time"
                )

    def _note(self, chunks_done: int, state: StoreState) -> None:
        """The data first, then the checksums, then the superblock that counts them."""
        for number, (target, block) in enumerate(zip(self._targets, self._blocks, strict=True)):
            table = self._tables[number].tobytes()
            if table:
                target.write(block.table_offset, table.ljust(round_up(len(table), ALIGN), b"\0"))
            target.flush()
            self._blocks[number] = block.next(chunks_done=chunks_done, state=state)
            target.write(self._blocks[number].place, self._blocks[number].encode())
            target.flush()

    def _read_table(self, target: RawNamespace, block: Superblock) -> npt.NDArray[np.uint32]:
        table = np.zeros(block.n_chunks, np.uint32)
        if block.chunks_done:
            stored = target.read(block.table_offset, round_up(4 * block.n_chunks, ALIGN))
            table[:] = np.frombuffer(stored, "<u4", block.n_chunks)
        return table
