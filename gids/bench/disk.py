"""The disk under the files of a benchmark: dropping its cached pages, and its read-ahead."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

logger = logging.getLogger(__name__)

_DROP_CACHES = Path("/proc/sys/vm/drop_caches")
#: More of a file than this in the page cache, and it does not count as cold.
COLD_SHARE = 0.01


@dataclass(frozen=True)
class ColdState:
    """How cold files are.

    Attributes
    ----------
    cold : bool
    cached_share : float
        Share of their pages that is in the page cache.
    drop_caches : bool
        Whether the whole machine's clean pages had to be dropped.
    """

    cold: bool
    cached_share: float
    drop_caches: bool


def make_cold(paths: Iterable[str]) -> ColdState:
    """Drop the files' clean pages; where another process keeps them, those of the whole machine.

    That takes root, and pages that a process has mapped stay even then; the result says what came of it.
    """
    files = list(paths)
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    share = cached_share(files)
    dropped = False
    if share > COLD_SHARE:
        try:
            _DROP_CACHES.write_text("1")
            dropped = True
        except OSError as error:
            logger.warning("%s: %s; %.0f %% of the files stay cached", _DROP_CACHES, error, 100 * share)
        share = cached_share(files)
    return ColdState(share <= COLD_SHARE, share, dropped)


def cached_share(paths: Iterable[str]) -> float:
    """Share of the files' pages that is in the page cache (mincore)."""
    resident = total = 0
    for path in paths:
        pages = _resident_pages(path)
        resident, total = resident + int(np.count_nonzero(pages & 1)), total + len(pages)
    return resident / total if total else 0.0


def _resident_pages(path: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    n_bytes = os.path.getsize(path)
    pages = np.zeros(-(-n_bytes // mmap.PAGESIZE), np.uint8)
    if n_bytes == 0:
        return pages
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        del view
        status = libc.mincore(address, ctypes.c_size_t(n_bytes), ctypes.c_void_p(pages.ctypes.data))
        if status:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), path)
    return pages


@dataclass(frozen=True)
class ReadAhead:
    """Read-ahead of the disk while a loader ran.

    Attributes
    ----------
    kib : int or None
        What it was; None where the kernel does not say.
    asked_kib : int or None
        What it was to be; None: as the machine has it.
    note : str
        Why it is not what it was to be.
    """

    kib: int | None
    asked_kib: int | None = None
    note: str = ""


@contextmanager
def read_ahead(path: str, kib: int | None) -> Iterator[ReadAhead]:
    """Set the read-ahead of the disk that holds `path`, for files opened within the `with` block.

    What it was comes back in any case. The kernel has no such setting for one file: posix_fadvise only
    doubles it or turns it off. So where it may not be set the result says why.

    Parameters
    ----------
    path : str
    kib : int, optional
        None: leave it as it is.
    """
    file = _read_ahead_file(path)
    own = None if file is None else int(file.read_text())
    if kib is None or kib == own:
        yield ReadAhead(own, kib)
        return
    if file is None:
        yield ReadAhead(None, kib, f"the disk of {path} has no read-ahead setting")
        return
    try:
        file.write_text(str(kib))
    except OSError as error:
        yield ReadAhead(own, kib, f"{file} cannot be written: {error.strerror}")
        return
    try:
        yield ReadAhead(kib, kib)
    finally:
        file.write_text(str(own))


def _read_ahead_file(path: str) -> Path | None:
    device = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for folder in (block, block.parent):  # a partition has the setting of its disk
        file = folder / "queue" / "read_ahead_kb"
        if file.is_file():
            return file
    return None
