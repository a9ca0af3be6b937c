"""Neighbouring rows of a cold file: a GPU asks for them one by one, the controller reads them together."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from bam.array.open import open_array
from bam.bench.files import drop_page_cache, ensure_file, expected_words
from bam.bench.gpu_figures import Figure, median
from bam.bench.random_reads import random_reads_per_s
from bam.cache.device.settings import GpuSettings

ROW_BYTES = 4096
MOST_ROWS = 120_000
VERIFIED_ROWS = 5_000
MERGED_BYTES = 65536


def merged_figure(path: Path, n_bytes: int, rounds: int) -> Figure:
    """`cold_merged` against reads of the merged length by one host thread.

    Its note `rows_per_s_alone` is the same with a read for each row.
    """
    ensure_file(path, n_bytes)
    pages_per_read, words = MERGED_BYTES // ROW_BYTES, ROW_BYTES // 8
    ceilings: list[float] = []
    rates: list[float] = []
    alone: list[float] = []
    served: list[float] = []
    for number in range(rounds):
        found = random_reads_per_s(str(path), 64, MERGED_BYTES, seed=number, seconds=1.0)
        ceilings.append(found * pages_per_read)
        n_rows = min(int(2 * found * pages_per_read), MOST_ROWS, n_bytes // ROW_BYTES)
        ids = np.arange(n_rows) + np.random.default_rng(number).integers(0, n_bytes // ROW_BYTES - n_rows + 1)
        for merge_bytes, times in ((0, alone), (MERGED_BYTES, rates)):
            drop_page_cache(path)
            settings = GpuSettings(read_depth=256, merge_bytes=merge_bytes)
            with open_array(
                path,
                dtype=np.uint64,
                shape=(n_bytes // ROW_BYTES, words),
                engine="uring",
                cache="1024 lines",
                device="cuda",
                gpu=settings,
            ) as array:
                begin = time.perf_counter()
                out = array.gather(ids)
                times.append(n_rows / (time.perf_counter() - begin))
                rows = out[:VERIFIED_ROWS].get()
                np.testing.assert_array_equal(
                    rows.reshape(-1), expected_words(int(ids[0]) * words, rows.size)
                )
                served.append(array.store.controller_stats().commands_per_read)
    notes = {"rows_per_s_alone": median(alone), "pages_per_read": median(served[1::2])}
    return Figure(median(rates), "rows/s", max(ceilings), notes)
