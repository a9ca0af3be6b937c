"""What the disk itself can do, measured in the same run: no loader can be faster."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from bam.bench.random_reads import random_reads_per_s
from bam.errors import ConfigError, EngineUnavailable, NativeLibraryMissing

RANDOM_BYTES = 4096
DEPTHS = (128, 256)
SEQUENTIAL_BYTES = 2**20
SEQUENTIAL_THREADS = 4
#: Reading a file once more than this takes no longer to tell its rate.
MAX_SEQUENTIAL_BYTES = 2 * 2**30


def measure_ceilings(path: str, seconds: float = 2.0) -> dict[str, Any]:
    """Rates of direct reads of a file, which go past the page cache.

    Parameters
    ----------
    path : str
        Larger than the disk's own cache, or the rates are those of that cache.
    seconds : float
        Length of each measurement.

    Returns
    -------
    dict
        ``file``, ``file_bytes``, ``random_4k_iops`` (the best queue depth of 128 and 256; None without
        io_uring, and ``note`` says why), ``sequential_mb_per_s`` (1 MiB reads by four threads).
    """
    result: dict[str, Any] = {"file": Path(path).name, "file_bytes": os.path.getsize(path), "note": ""}
    try:
        rates = [
            random_reads_per_s(path, depth, RANDOM_BYTES, seed=depth, seconds=seconds) for depth in DEPTHS
        ]
        result["random_4k_iops"] = max(rates)
    except (ConfigError, EngineUnavailable, NativeLibraryMissing) as error:
        result["random_4k_iops"] = None
        result["note"] = f"random reads were not measured: {error}"
    result["sequential_mb_per_s"] = _sequential(path, seconds) / 1e6
    return result


def mean_ceilings(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of several measurements of one file: rates are means, and ``rounds`` has those of each."""
    rates = [each["random_4k_iops"] for each in rounds]
    return {
        **rounds[0],
        "random_4k_iops": None if None in rates else mean(rates),
        "sequential_mb_per_s": mean(each["sequential_mb_per_s"] for each in rounds),
        "rounds": [{key: each[key] for key in ("random_4k_iops", "sequential_mb_per_s")} for each in rounds],
    }


def _sequential(path: str, seconds: float) -> float:
    """Bytes per second of 1 MiB reads in file order, with O_DIRECT where the file system has it."""
    n_bytes = min(os.path.getsize(path), MAX_SEQUENTIAL_BYTES)
    file = _open_direct(path)
    try:
        offsets = iter(range(0, n_bytes - n_bytes % SEQUENTIAL_BYTES or 1, SEQUENTIAL_BYTES))
        deadline = time.perf_counter() + seconds

        def read(_: int) -> int:
            # Anonymous maps are aligned to a page, as direct reads want it.
            buffer, done = mmap.mmap(-1, SEQUENTIAL_BYTES), 0
            while time.perf_counter() < deadline:
                offset = next(offsets, None)
                if offset is None:
                    break
                done += os.preadv(file, [buffer], offset)
            return done

        begin = time.perf_counter()
        with ThreadPoolExecutor(SEQUENTIAL_THREADS) as executor:
            total = sum(executor.map(read, np.arange(SEQUENTIAL_THREADS)))
        return total / (time.perf_counter() - begin)
    finally:
        os.close(file)


def _open_direct(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return file
