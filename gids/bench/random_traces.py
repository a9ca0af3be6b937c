"""Random mini-batches to hold the loader's stages against their plain models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.bench.model_check import Trace

PAGE_BYTES = 512
WINDOW, FORESIGHT = 4, 3
#: Lines of caches: for a page, for some, and for more pages than there are.
LINES = (1, 20, 40, 100, 300)
_MOST_ROWS, _MOST_BATCHES, _BUDGET_BYTES = 50, 12, 60_000

Rows = npt.NDArray[Any]


def _rows(seed: int, n_rows: int, row_bytes: int) -> Rows:
    return np.random.default_rng(seed).integers(-128, 128, (n_rows, row_bytes), np.int8)


#: Rows that straddle pages, and some to a page.
TABLES: Mapping[str, Rows] = {"a": _rows(0, 150, 700), "b": _rows(1, 300, 64)}
#: Rows of several pages too, of which a warp takes fewer at a time.
GPU_TABLES: Mapping[str, Rows] = {**TABLES, "c": _rows(2, 40, 2064)}


def random_trace(tables: Mapping[str, Rows], seed: int, lines: int) -> Trace:
    """Mini-batches that ask more often for the first rows of each table."""
    random = np.random.default_rng(seed)
    skew = int(random.integers(1, 5))
    batches = [
        {name: _distinct_rows(random, len(rows), skew) for name, rows in tables.items()}
        for _ in range(random.integers(1, _MOST_BATCHES))
    ]
    constant = {"a": np.arange(0, 150, 7)} | ({"c": np.arange(3, 20)} if "c" in tables else {})
    return Trace(tables, batches, constant, lines, PAGE_BYTES, _BUDGET_BYTES)


def _distinct_rows(random: np.random.Generator, n_rows: int, skew: int) -> npt.NDArray[np.int64]:
    shares = random.random(random.integers(0, _MOST_ROWS)) ** skew
    return np.unique((n_rows * shares).astype(np.int64))
