"""Large files made chunk by chunk by a few threads; a killed run loses at most the chunks of one flush."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gids.errors import DiskFullError
from gids.graph.journal import Journal, Result
from gids.graph.progress import Progress

#: Bytes between two flushes; about what is done again after a kill.
FLUSH_BYTES = 256 * 2**20


@dataclass(frozen=True)
class ChunkedFile:
    """A file of a known size, cut into chunks.

    Attributes
    ----------
    path : Path
    header : bytes
        Bytes before the first chunk.
    data_bytes : int
        Bytes after the header.
    chunk_bytes : int
        Bytes of each chunk but the last.
    """

    path: Path
    header: bytes
    data_bytes: int
    chunk_bytes: int

    @property
    def n_chunks(self) -> int:
        """Number of chunks."""
        return -(-self.data_bytes // self.chunk_bytes)

    def length(self, chunk: int) -> int:
        """Bytes of one chunk."""
        return min(self.chunk_bytes, self.data_bytes - chunk * self.chunk_bytes)


#: Called as ``make(chunk, write)``: writes chunk number `chunk` through `write(bytes-like)`, returns what to
# keep.
MakeChunk = Callable[[int, Callable[[memoryview], None]], Result]


def write_chunks(
    journal: Journal, step: str, file: ChunkedFile, make: MakeChunk, *, workers: int, progress: Progress
) -> list[Result]:
    """Write `file`, going on after the chunks that the journal says are finished.

    Parameters
    ----------
    journal : Journal
    step : str
        Name of this work in the journal.
    file : ChunkedFile
    make : callable
        Run by `workers` threads at once, for chunks in any order. It must write the same bytes for the same
        chunk.
    workers : int
    progress : Progress

    Returns
    -------
    list of dict
        What `make` returned for each chunk, in order.

    Raises
    ------
    DiskFullError
        What was written stays, so that the same call goes on from there.
    """
    done = journal.chunks(step)
    if len(done) == file.n_chunks and file.path.exists():
        return done
    descriptor = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    bar = progress(step, file.data_bytes, len(done) * file.chunk_bytes)
    try:
        with disk_full_named(file.path, file.data_bytes - len(done) * file.chunk_bytes):
            write_whole(descriptor, memoryview(file.header), 0)
            os.ftruncate(descriptor, len(file.header) + file.data_bytes)
            waiting: list[Result] = []
            waiting_bytes = 0
            results = run_in_order(
                lambda chunk: _write_chunk(descriptor, file, make, chunk), len(done), file.n_chunks, workers
            )
            for chunk, result in enumerate(results, len(done)):
                bar.update(file.length(chunk))
                waiting.append(result)
                waiting_bytes += file.length(chunk)
                if waiting_bytes >= FLUSH_BYTES or chunk == file.n_chunks - 1:
                    os.fdatasync(descriptor)
                    journal.record_chunks(step, waiting)
                    waiting, waiting_bytes = [], 0
            os.fsync(descriptor)
    finally:
        bar.close()
        os.close(descriptor)
    return journal.chunks(step)


def write_text(path: Path, text: str) -> None:
    """Write a small file whole, through to the disk: at any moment it is the old one or the new one."""
    fresh = path.with_name(path.name + ".new")
    with disk_full_named(path, len(text)), open(fresh, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(fresh, path)


@contextmanager
def disk_full_named(path: Path, needed_bytes: int) -> Iterator[None]:
    """Turn the system's ENOSPC (or EDQUOT, EFBIG) into an error that tells what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, DiskFullError) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DiskFullError(str(path), needed_bytes, free_bytes(path.parent), error.errno) from error


def require_free_bytes(folder: Path, needed_bytes: int) -> None:
    """Raise :class:`DiskFullError` before any work when `folder`'s disk cannot take `needed_bytes`."""
    free = free_bytes(folder)
    if free < needed_bytes:
        raise DiskFullError(str(folder), needed_bytes, free)


def free_bytes(folder: Path) -> int:
    """Bytes that may still be written on the disk of `folder`, or of its nearest existing parent."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def run_in_order(make: Callable[[int], Result], first: int, end: int, workers: int) -> Iterator[Result]:
    """Run ``make(first)``, … ``make(end - 1)`` on threads; yield the results in that order.

    At most one more than `workers` results wait to be yielded.
    """
    with ThreadPoolExecutor(workers) as pool:
        running: deque[Future[Result]] = deque()
        try:
            for number in range(first, end):
                running.append(pool.submit(make, number))
                if len(running) > workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


def _write_chunk(descriptor: int, file: ChunkedFile, make: MakeChunk, chunk: int) -> Result:
    def write(data: memoryview) -> None:
        if len(data) != file.length(chunk):
            raise ValueError(f"chunk {chunk} of {file.path}: {len(data)} bytes, not {file.length(chunk)}")
        write_whole(descriptor, data, len(file.header) + chunk * file.chunk_bytes)

    return make(chunk, write)


def write_whole(descriptor: int, data: memoryview, position: int) -> None:
    """Write all of `data` at a byte of the file."""
    data = data.cast("B")
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written
