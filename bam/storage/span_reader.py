"""Many logical ranges at once through the C++ span reader (span_reader.h)."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np

from bam.config import check_seconds
from bam.errors import ClosedError, ConfigError, FileChangedError, StorageError, TruncatedFileError
from bam.layout import Layout
from bam.native import function
from bam.native.structs import CLayout
from bam.storage.engine import ByteArray
from bam.storage.native import NativeEngine

_ERROR_BYTES = 1024
_MAX_RANGE_BYTES = 2**30


class _Failure(ctypes.Structure):
    _fields_ = [("error", c_int32), ("file", c_uint32), ("file_offset", c_uint64)]


class _Counters(ctypes.Structure):
    _fields_ = [("reads", c_uint64), ("bytes_read", c_uint64), ("retries", c_uint64), ("failures", c_uint64)]


@dataclass(frozen=True)
class RangeReads:
    """What became of a list of ranges, in its order.

    Attributes
    ----------
    bytes : tuple of uint8 arrays
        Of a range that failed: undefined.
    errors : tuple of StorageError or None
        None: the range was read.
    reads, bytes_read, retries, failures : int
        Requests the engine completed and the bytes they brought; reads asked for again; ranges that failed.
    """

    bytes: tuple[ByteArray, ...]
    errors: tuple[StorageError | None, ...]
    reads: int
    bytes_read: int
    retries: int
    failures: int


def read_ranges(
    engine: NativeEngine,
    layout: Layout,
    offsets: Sequence[int],
    lengths: Sequence[int],
    *,
    depth: int = 64,
    timeout_s: float = 60.0,
) -> RangeReads:
    """Read ``lengths[i]`` logical bytes from ``offsets[i]`` on, for every i; returns when all are done.

    Parameters
    ----------
    engine : NativeEngine
    layout : Layout
        Its file numbers are the engine's.
    offsets, lengths : sequence of int
        Ranges of the layout, each at most 1 GiB.
    depth : int
        Most ranges being read at a time.
    timeout_s : float
        When no read ends for so long, the ranges that are left fail with ETIMEDOUT.

    Raises
    ------
    ConfigError
        The layout does not fit the engine, or there is no memory for so many ranges.
    ClosedError, ForkedError
    """
    _check(layout, offsets, lengths, depth, timeout_s)
    destinations = [np.empty(length, np.uint8) for length in lengths]
    failures = (_Failure * len(offsets))()
    counters = _Counters()
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    starts, sizes = np.array(offsets, np.uint64), np.array(lengths, np.uint32)
    addresses = np.array([array.ctypes.data for array in destinations], np.uint64)
    read = function(
        "bam_span_reader_read",
        c_int32,
        [c_void_p, POINTER(CLayout), c_uint32, c_uint32, c_uint64, *[c_void_p] * 5, c_char_p, c_size_t],
    )
    status = read(
        engine.handle,
        CLayout.from_layout(layout),
        depth,
        int(timeout_s * 1000),
        len(offsets),
        starts.ctypes.data,
        sizes.ctypes.data,
        addresses.ctypes.data,
        ctypes.addressof(failures),
        ctypes.addressof(counters),
        text,
        _ERROR_BYTES,
    )
    if status == errno.EBADF:
        raise ClosedError("engine")
    if status:
        raise ConfigError("layout, depth", depth, text.value.decode(errors="replace"))
    paths = [file.path for file in engine.files]
    errors = [
        storage_error(paths[failed.file], failed.file_offset, length, failed.error) if failed.error else None
        for failed, length in zip(failures, lengths, strict=True)
    ]
    counts = (counters.reads, counters.bytes_read, counters.retries, counters.failures)
    return RangeReads(tuple(destinations), tuple(errors), *counts)


def storage_error(path: str, offset: int, length: int, code: int) -> StorageError:
    """The typed error for an errno that the span reader reports."""
    if code == errno.ENODATA:
        note = "the file ends before these bytes; restore it"
        return TruncatedFileError(path, offset, length, code, note=note)
    if code == errno.ESTALE:
        note = "the file was rewritten since it was opened; open it again"
        return FileChangedError(path, offset, length, code, note=note)
    return StorageError(path, offset, length, code, note="check the disk; the array stays usable")


def _check(
    layout: Layout, offsets: Sequence[int], lengths: Sequence[int], depth: int, timeout_s: float
) -> None:
    if len(offsets) != len(lengths):
        raise ConfigError("lengths", len(lengths), f"one for each of the {len(offsets)} offsets")
    check_seconds("timeout_s", timeout_s)
    if depth < 1:
        raise ConfigError("depth", depth, "at least 1")
    for offset, length in zip(offsets, lengths, strict=True):
        if offset < 0 or not 0 <= length <= _MAX_RANGE_BYTES or offset + length > layout.logical_bytes:
            raise ConfigError("ranges", (offset, length), f"bytes of the layout's {layout.logical_bytes}")
