"""What was counted, and which path really runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bam.storage.engine import EngineInfo


@dataclass(frozen=True)
class ArrayInfo:
    """Which path really runs under an array.

    Attributes
    ----------
    reader : str
        ``native`` or ``reference``.
    cache : str
        ``host`` or ``reference``.
    policy : str
    page_bytes, cache_lines : int
        Lines that can be used, which may be fewer than asked for.
    engine : EngineInfo
    notes : tuple of str
        Why something asked for is not what runs.
    """

    reader: str
    cache: str
    policy: str
    page_bytes: int
    cache_lines: int
    engine: EngineInfo
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReaderStats:
    """Counters of one reader since it was opened; the difference of two snapshots covers the time between.

    Attributes
    ----------
    gathers : int
        Calls.
    rows : int
        Rows requested, duplicates included.
    rows_hit, rows_joined, rows_storage : int
        A row counts as storage if a page had to be read for it, else as joined if it waited for a read under
        way, else as a hit.
    pages : int
        Look-ups in the cache: one per page and row, or per page and run of neighbouring rows.
    hits, joins, misses : int
        Of look-ups: in the cache; being read already; to be read.
    bypasses : int
        The misses that were read but not cached.
    reads : int
        Reads the engine completed, retries included.
    bytes_read, bytes_useful : int
        Bytes those reads returned; bytes of the rows requested.
    retries : int
        Reads repeated after a short read, EINTR or EAGAIN.
    failures : int
        Reads that failed for good.
    info : EngineInfo, optional
        Which engine did it; in snapshots of arrays.
    """

    gathers: int
    rows: int
    rows_hit: int
    rows_joined: int
    rows_storage: int
    pages: int
    hits: int
    joins: int
    misses: int
    bypasses: int
    reads: int
    bytes_read: int
    bytes_useful: int
    retries: int
    failures: int
    info: EngineInfo | None = None

    def __sub__(self, earlier: ReaderStats) -> ReaderStats:
        """What was counted after the snapshot `earlier` of the same array."""
        if not isinstance(earlier, ReaderStats):
            return NotImplemented
        counts = {
            counter.name: getattr(self, counter.name) - getattr(earlier, counter.name)
            for counter in fields(self)
            if counter.name != "info"
        }
        return ReaderStats(**counts, info=self.info)

    @property
    def hit_rate(self) -> float:
        """Share of rows for which nothing had to be read, as published tables count it; 0 without rows."""
        return _ratio(self.rows_hit + self.rows_joined, self.rows)

    @property
    def page_hit_rate(self) -> float:
        """Share of look-ups for which nothing had to be read; 0 without look-ups."""
        return _ratio(self.hits + self.joins, self.pages)

    @property
    def read_amplification(self) -> float:
        """Bytes read per byte of the rows requested; below 1 where the cache helps, 0 without rows."""
        return _ratio(self.bytes_read, self.bytes_useful)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
