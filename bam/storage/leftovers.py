"""Reads that do not end: what is said of them when their reader closes without them. C++: leftovers.h."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from ctypes import c_uint64

from bam.errors import WaitTimeout
from bam.native import function
from bam.storage.engine import FileInfo

logger = logging.getLogger(__name__)

_kept: list[object] = []


def keep_for_good(memory: object) -> None:
    """Keep an object, to whose memory reads left behind may still be written, for the life of the process."""
    _kept.append(memory)


def bytes_left_behind() -> int:
    """Memory that reads without an end keep in use in this process."""
    found: int = function("bam_bytes_left_behind", c_uint64, [])()
    return found


def left_behind(n_reads: int, files: Sequence[FileInfo], timeout_s: float) -> WaitTimeout:
    """The error, logged too, for reads of `files` that had not ended `timeout_s` after closing began."""
    path = files[0].path
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    error = WaitTimeout(
        f"the end of {n_reads} reads of {path}{more}",
        timeout_s,
        f"They are left behind, and keep {bytes_left_behind()} bytes of memory and the files open until the "
        "process ends. Check the disk",
        file=path,
    )
    logger.warning("%s", error)
    return error
