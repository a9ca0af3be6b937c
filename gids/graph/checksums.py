"""CRC-32 (zlib's) of files, chunk by chunk: damage is found, and found where it is."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gids.errors import ChecksumError, DatasetError
from gids.graph.chunked import run_in_order
from gids.graph.igbh import read_into
from gids.graph.journal import Result
from gids.graph.progress import Progress

CHUNK_BYTES = 4 * 2**20


@dataclass(frozen=True)
class FileRecord:
    """A file of a store and the checksum of each of its chunks.

    Attributes
    ----------
    path : str
        Relative to the store.
    bytes : int
    chunk_bytes : int
        Bytes of each chunk but the last.
    crc32 : tuple of int
    """

    path: str
    bytes: int
    chunk_bytes: int
    crc32: tuple[int, ...]

    def __post_init__(self) -> None:
        expected = -(-self.bytes // self.chunk_bytes) if self.chunk_bytes > 0 else -1
        if len(self.crc32) != expected:
            raise DatasetError(self.path, f"{expected} checksums", f"{len(self.crc32)}")


def record_file(folder: Path, path: str, workers: int) -> FileRecord:
    """Checksums of a file as it is now."""
    size = (folder / path).stat().st_size
    return FileRecord(path, size, CHUNK_BYTES, _crcs(folder / path, size, CHUNK_BYTES, workers, None))


def find_damage(
    folder: Path, records: Sequence[FileRecord], workers: int, progress: Progress
) -> list[ChecksumError]:
    """Every chunk whose bytes are not those that were recorded."""
    damage = []
    for record in records:
        path = folder / record.path
        found = _crcs(path, record.bytes, record.chunk_bytes, workers, progress)
        for chunk, (expected, crc) in enumerate(zip(record.crc32, found, strict=True)):
            if expected != crc:
                offset = chunk * record.chunk_bytes
                length = min(record.chunk_bytes, record.bytes - offset)
                damage.append(ChecksumError(str(path), offset, length, expected, crc))
    return damage


def _crcs(
    path: Path, size: int, chunk_bytes: int, workers: int, progress: Progress | None
) -> tuple[int, ...]:
    bar = None if progress is None else progress(path.name, size, 0)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def make(chunk: int) -> Result:
        crc, begin = 0, chunk * chunk_bytes
        piece = np.empty(min(2**20, chunk_bytes), np.uint8)
        for offset in range(begin, min(begin + chunk_bytes, size), len(piece)):
            part = piece[: min(len(piece), begin + chunk_bytes - offset, size - offset)]
            read_into(descriptor, str(path), offset, part)
            crc = zlib.crc32(part.data, crc)
        return {"crc": crc}

    crcs = []
    try:
        for chunk, result in enumerate(run_in_order(make, 0, -(-size // chunk_bytes), workers)):
            crcs.append(int(result["crc"]))
            if bar is not None:
                bar.update(min(chunk_bytes, size - chunk * chunk_bytes))
    finally:
        if bar is not None:
            bar.close()
        os.close(descriptor)
    return tuple(crcs)
