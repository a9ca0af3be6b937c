"""Bulk reads of a file, and plain ones: what `python -m bam.bench bulk` and `gids calibrate` measure with."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bam.config import EngineKind
from bam.errors import EngineUnavailable
from bam.layout import Layout
from bam.storage.buffers import aligned_buffer
from bam.storage.bulk.kvikio_library import load_kvikio
from bam.storage.bulk.memory import BulkMemory, HostMemory
from bam.storage.bulk.open import open_bulk_reader
from bam.storage.bulk.reader import BulkRange, BulkReader, BulkReport
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings, Destination
from bam.storage.engine import ByteArray

TASK_BYTES = (2**20, 4 * 2**20, 16 * 2**20)
THREADS = (1, 4, 16)
ENGINES = (BulkEngineKind.NATIVE, BulkEngineKind.KVIKIO)


@dataclass(frozen=True)
class SweepFile:
    """A file that is read, and its size in bytes."""

    path: str
    n_bytes: int

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> SweepFile:
        """As it is now."""
        return cls(os.fspath(path), os.stat(path).st_size)

    def open(
        self, settings: BulkSettings, destination: Destination, engine: EngineKind = EngineKind.AUTO
    ) -> BulkReader:
        """What reads it; `engine` where one of this package does.

        Raises
        ------
        EngineUnavailable, SourceError
        """
        layout = Layout.single(self.path, 0, self.n_bytes)
        return open_bulk_reader(layout, settings, paths=[self.path], engine=engine, to_gpu=destination.on_gpu)


def bytes_per_s(reader: BulkReader, memory: BulkMemory, offset: int) -> float:
    """Of one read of as many bytes as the memory has."""
    return rate_of(reader.read([BulkRange(offset, memory.n_bytes)], memory))


def rate_of(report: BulkReport) -> float:
    """Bytes a second."""
    return report.n_bytes / report.seconds


def new_memory(destination: Destination, n_bytes: int) -> BulkMemory:
    """Memory that was touched before, so that the kernel's handing out of pages is not measured.

    Raises
    ------
    EngineUnavailable
        There is no GPU.
    """
    if destination is Destination.HOST:
        memory: BulkMemory = HostMemory(aligned_buffer(n_bytes))
    elif destination is Destination.PINNED:
        from bam.cache.device.bulk_memory import pinned_memory

        memory = pinned_memory(n_bytes)
    else:
        from bam.cache.device.bulk_memory import GpuMemory

        return GpuMemory.new(n_bytes)
    assert memory.host is not None
    memory.host[:] = 1
    return memory


def why_not(engine: BulkEngineKind) -> str:
    """Why an engine cannot run here; empty where it can."""
    if engine is not BulkEngineKind.KVIKIO:
        return ""
    try:
        load_kvikio()
    except EngineUnavailable as refusal:
        return str(refusal)
    return ""


def grid(
    engines: Sequence[BulkEngineKind],
    direct: Sequence[bool] = (True,),
    task_bytes: Sequence[int] = TASK_BYTES,
    threads: Sequence[int] = THREADS,
    numa: bool = False,
) -> list[BulkSettings]:
    """Every combination."""
    return [
        BulkSettings(engine=engine, task_bytes=size, threads=number, direct=way, numa=numa)
        for engine in engines
        for way in direct
        for size in task_bytes
        for number in threads
    ]


def plain_bytes_per_s(
    file: SweepFile, into: ByteArray, *, block_bytes: int, threads: int, direct: bool, offset: int
) -> float:
    """Plain `preadv` of following blocks, a share of the range for each thread: the ceiling of the disk.

    Parameters
    ----------
    file : SweepFile
    into : uint8 array
        As many bytes as are read; aligned to a page, and touched before.
    block_bytes, threads : int
    direct : bool
    offset : int

    Raises
    ------
    OSError
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    descriptor = os.open(file.path, flags)
    try:
        share = len(into) // threads // block_bytes * block_bytes

        def read(number: int) -> int:
            begin = number * share
            return _read_following(descriptor, into[begin : begin + share], offset + begin, block_bytes)

        with ThreadPoolExecutor(threads) as pool:
            begin = time.perf_counter()
            read_bytes = sum(pool.map(read, range(threads)))
            return read_bytes / (time.perf_counter() - begin)
    finally:
        os.close(descriptor)


def _read_following(descriptor: int, into: ByteArray, offset: int, block_bytes: int) -> int:
    done = 0
    while done < len(into):
        got = os.preadv(descriptor, [into[done : done + block_bytes].data], offset + done)
        if got == 0:
            break
        done += got
    return done


def fill_page_cache(path: Path, offset: int, n_bytes: int) -> None:
    """Read a range through the page cache, so that the next reads are warm."""
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        buffer = bytearray(8 * 2**20)
        while n_bytes > 0 and (got := file.readinto(buffer)):
            n_bytes -= got


def host_copy(memory: BulkMemory) -> ByteArray:
    """The bytes a memory holds."""
    if memory.host is not None:
        return memory.host
    return np.asarray(memory.part(0, memory.n_bytes).get())
