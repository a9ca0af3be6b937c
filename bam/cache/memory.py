"""Memory that direct reads can go to."""

from __future__ import annotations

import mmap

import numpy as np

from bam.cache.page_cache import ByteArray


def page_aligned_zeros(n_bytes: int) -> ByteArray:
    """`n_bytes` zero bytes at a multiple of the system's page size; memory is taken when first touched."""
    # Private: a forked child must not share it.
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, dtype=np.uint8)
