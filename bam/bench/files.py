"""Benchmark files: their content is a function of the position, so any read can be checked."""

from __future__ import annotations

import logging
import os
from ctypes import c_uint64, c_void_p
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bam.errors import ConfigError, SourceError
from bam.native import function

log = logging.getLogger(__name__)

_CHUNK_BYTES = 8 * 2**20
_UNIT_BYTES = 4096


def expected_words(first_word: int, n_words: int) -> npt.NDArray[np.uint64]:
    """The 8-byte words of a benchmark file from `first_word` on."""
    out = np.empty(n_words, np.uint64)
    function("bam_bench_fill", None, [c_void_p, c_uint64, c_uint64])(out.ctypes.data, first_word, n_words)
    return out


def ensure_file(path: Path, n_bytes: int) -> bool:
    """Make the benchmark file unless it is there in that size; returns whether it was made.

    Raises
    ------
    ConfigError
        The size is not a multiple of 4096 bytes, or 0.
    SourceError
        Something else is there, which is left alone.
    OSError
        The disk is full, or the folder cannot be written; nothing is left behind.
    """
    if n_bytes <= 0 or n_bytes % _UNIT_BYTES:
        raise ConfigError("size", n_bytes, f"a multiple of {_UNIT_BYTES} bytes, more than none")
    if path.exists():
        if not _is_benchmark_file(path):
            raise SourceError(
                str(path), "a benchmark file or none", "something else; give a path that is free"
            )
        if path.stat().st_size == n_bytes:
            return False
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb", buffering=0) as file:
            for offset in tqdm(
                range(0, n_bytes, _CHUNK_BYTES), desc=f"write {path.name}", unit="chunk", disable=None
            ):
                words = min(_CHUNK_BYTES, n_bytes - offset) // 8
                file.write(expected_words(offset // 8, words).data)
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


def _is_benchmark_file(path: Path) -> bool:
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(_UNIT_BYTES) == expected_words(0, _UNIT_BYTES // 8).tobytes()


def drop_page_cache(path: Path) -> None:
    """Drop the file's clean pages from the page cache, so that the next reads are cold."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
