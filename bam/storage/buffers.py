"""Memory that direct reads can go to, and the checks every engine makes of what it is given."""

from __future__ import annotations

import mmap
from collections.abc import Sequence

import numpy as np

from bam.errors import ConfigError
from bam.storage.engine import ByteArray, ReadSpan

_MAX_SPAN_BYTES = 2**31 - 4096  # what one Linux read transfers at most, less a page so that it stays aligned


def aligned_buffer(n_bytes: int, alignment: int = mmap.PAGESIZE) -> ByteArray:
    """Zeroed memory of `n_bytes` bytes that starts at a multiple of `alignment` (a power of two)."""
    # Private: a forked child must not write to it.
    memory = mmap.mmap(-1, max(1, n_bytes) + alignment, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole: ByteArray = np.frombuffer(memory, dtype=np.uint8)
    start = -whole.ctypes.data % alignment
    return whole[start : start + n_bytes]


def check_spans(spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> None:
    """Refuse what would write outside a buffer.

    Raises
    ------
    ConfigError
        As many buffers as spans are needed, each writable, contiguous and of its span's length.
    """
    if len(spans) != len(buffers):
        raise ConfigError("buffers", len(buffers), f"one for each of the {len(spans)} spans")
    for span, buffer in zip(spans, buffers, strict=True):
        if span.file < 0 or span.offset < 0 or not 0 <= span.length <= _MAX_SPAN_BYTES:
            raise ConfigError("spans", span, f"file and offset from 0, 0 to {_MAX_SPAN_BYTES} bytes")
        usable = buffer.dtype == np.uint8 and buffer.flags.c_contiguous and buffer.flags.writeable
        if not usable or buffer.nbytes != span.length:
            found = f"{buffer.nbytes} bytes of {buffer.dtype}"
            expected = f"{span.length} contiguous, writable bytes of uint8 for {span}"
            raise ConfigError("buffers", found, expected)
