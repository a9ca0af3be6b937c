"""Rows in plain Python, page by page: the oracle of the native reader, and the path without a compiler."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.range_reader import RangeReader
from bam.array.reader import RowReader
from bam.cache.page_cache import NEVER, ByteArray, Outcome, PageCache
from bam.cache.pin import pin_page
from bam.config import StoreConfig
from bam.errors import ClosedError, RowOutOfRange, StorageError
from bam.layout import Layout
from bam.stats import ReaderStats
from bam.storage.enclosing_reads import RangeCounters
from bam.storage.engine import Engine, EngineInfo

_COUNTER_OF = {
    Outcome.HIT: ("hits",),
    Outcome.JOINED: ("joins",),
    Outcome.CLAIMED: ("misses",),
    Outcome.BYPASS: ("misses", "bypasses"),
}


class ReferenceReader(RowReader):
    """One page after the other through any engine and cache; nothing is merged or overlapped.

    Parameters
    ----------
    layout : Layout
        Where the logical bytes lie; its file numbers are the engine's.
    engine : Engine
    cache : PageCache
        Its `page_bytes` is the store's.
    config : StoreConfig
        Of which `timeout_s` is used.
    first_page_id : int
        What the cache calls page 0 of this layout; arrays that share a cache have disjoint page ids.
    """

    def __init__(
        self,
        layout: Layout,
        engine: Engine,
        cache: PageCache,
        config: StoreConfig,
        first_page_id: int = 0,
    ) -> None:
        self._layout, self._cache, self._config = layout, cache, config
        self._first_page_id = first_page_id
        self._ranges: RangeReader | None = RangeReader(layout, engine)
        self._engine = engine
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def gather(
        self,
        ids: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        next_use: npt.NDArray[np.uint64] | None = None,
        out_rows: npt.NDArray[np.int64] | None = None,
    ) -> None:
        ranges = self._ranges
        if ranges is None:
            raise ClosedError("reader")
        n_ids, row_bytes = len(ids), out.shape[1]
        if n_ids == 0 or row_bytes == 0:
            return
        n_rows = self._layout.logical_bytes // row_bytes
        for position, row_id in enumerate(ids.tolist()):
            if not 0 <= row_id < n_rows:
                raise RowOutOfRange(row_id, n_rows, position)
        call = _Call(ranges, self._cache, self._config.timeout_s, self._first_page_id)
        call.counts.update(gathers=1, rows=n_ids, bytes_useful=n_ids * row_bytes)
        uses = [NEVER] * n_ids if next_use is None else next_use.tolist()
        try:
            places = range(n_ids) if out_rows is None else out_rows.tolist()
            for row_id, place, use in zip(ids.tolist(), places, uses, strict=True):
                call.copy_row(row_id, out[place], use)
        finally:
            with self._lock:
                self._counts.update(call.counts)
                self._counts.update(vars(call.read))

    def note_next_use(
        self, ids: npt.NDArray[np.int64], row_bytes: int, next_use: npt.NDArray[np.uint64]
    ) -> None:
        if self._ranges is None:
            raise ClosedError("reader")
        page_bytes = self._cache.page_bytes
        for row_id, use in zip(ids.tolist(), next_use.tolist(), strict=True):
            begin = row_id * row_bytes
            for page_id in range(begin // page_bytes, (begin + row_bytes - 1) // page_bytes + 1):
                self._cache.note_use(self._first_page_id + page_id, use)

    def forget_next_uses(self, horizon: int, instead: int) -> None:
        if self._ranges is None:
            raise ClosedError("reader")
        self._cache.forget_uses(horizon, instead)

    def stats(self) -> ReaderStats:
        if self._ranges is None:
            raise ClosedError("reader")
        with self._lock:
            counts: dict[str, Any] = {name: self._counts[name] for name in _COUNTERS}
        return ReaderStats(**counts)

    def info(self) -> EngineInfo:
        return self._engine.info()

    def close(self) -> None:
        self._ranges = None


_COUNTERS = tuple(counter.name for counter in fields(ReaderStats) if counter.name != "info")


class _Call:
    """One gather."""

    def __init__(self, ranges: RangeReader, cache: PageCache, timeout_s: float, first_page_id: int) -> None:
        self._ranges, self._cache, self._timeout_s = ranges, cache, timeout_s
        self._first_page_id = first_page_id
        self.counts: Counter[str] = Counter()
        self.read = RangeCounters()

    def copy_row(self, row_id: int, row: ByteArray, next_use: int) -> None:
        """Copy one row, which may begin and end anywhere in a page."""
        page_bytes = self._cache.page_bytes
        offset = row_id * len(row)
        outcomes = set()
        done = 0
        while done < len(row):
            page_id, inside = divmod(offset + done, page_bytes)
            length = min(len(row) - done, page_bytes - inside)
            outcomes.add(self._copy_piece(page_id, inside, row[done : done + length], next_use))
            done += length
        if outcomes & {Outcome.CLAIMED, Outcome.BYPASS}:
            self.counts["rows_storage"] += 1
        else:
            self.counts["rows_joined" if Outcome.JOINED in outcomes else "rows_hit"] += 1

    def _copy_piece(self, page_id: int, inside: int, destination: ByteArray, next_use: int) -> Outcome:
        def read_page(page: ByteArray) -> None:
            start = page_id * len(page)
            length = min(len(page), self._ranges.layout.logical_bytes - start)
            self._ranges.read(start, length, page, page_id, self.read)

        self.counts["pages"] += 1
        try:
            with pin_page(
                self._cache,
                self._first_page_id + page_id,
                read_page,
                next_use=next_use,
                timeout_s=self._timeout_s,
            ) as pin:
                destination[:] = pin.bytes[inside : inside + len(destination)]
                outcome = pin.outcome
        except StorageError:
            # The page cannot be read, but perhaps the part of it that this row needs.
            start = page_id * self._cache.page_bytes + inside
            self._ranges.read(start, len(destination), destination, page_id, self.read)
            outcome = Outcome.BYPASS
        self.counts.update(_COUNTER_OF[outcome])
        return outcome
