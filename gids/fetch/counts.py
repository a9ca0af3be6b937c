"""What fetching a mini-batch cost, per node type: every requested row came from exactly one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from bam.stats import ReaderStats


@dataclass(frozen=True)
class FetchCounts:
    """Counters of one node type, or their sum over types or mini-batches.

    Attributes
    ----------
    rows_requested : int
        Rows of input nodes, once for each mini-batch that asks for them.
    rows_constant, rows_cache, rows_joined, rows_storage : int
        Where they came from; they add up to `rows_requested`. Rows of tables in memory count as constant.
    pages_requested, pages_hit, pages_joined, pages_read : int
        Look-ups in the page cache and what they found.
    pages_bypassed : int
        The pages read that were not cached.
    reads, bytes_read : int
        Reads issued, which merge neighbouring pages, and their bytes.
    bytes_useful : int
        Bytes of the rows that were not constant.
    rows_resident : int
        Of `rows_constant`: those in the GPU's memory for good.
    """

    rows_requested: int = 0
    rows_constant: int = 0
    rows_cache: int = 0
    rows_joined: int = 0
    rows_storage: int = 0
    pages_requested: int = 0
    pages_hit: int = 0
    pages_joined: int = 0
    pages_read: int = 0
    pages_bypassed: int = 0
    reads: int = 0
    bytes_read: int = 0
    bytes_useful: int = 0
    rows_resident: int = 0

    def __add__(self, other: FetchCounts) -> FetchCounts:
        if not isinstance(other, FetchCounts):
            return NotImplemented
        return FetchCounts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @classmethod
    def of(cls, rows_constant: int, stored: ReaderStats | None = None) -> FetchCounts:
        """Of rows found in memory and of what a virtual array counted for the others."""
        if stored is None:
            return cls(rows_requested=rows_constant, rows_constant=rows_constant)
        return cls(
            rows_requested=rows_constant + stored.rows,
            rows_constant=rows_constant,
            rows_cache=stored.rows_hit,
            rows_joined=stored.rows_joined,
            rows_storage=stored.rows_storage,
            pages_requested=stored.pages,
            pages_hit=stored.hits,
            pages_joined=stored.joins,
            pages_read=stored.misses,
            pages_bypassed=stored.bypasses,
            reads=stored.reads,
            bytes_read=stored.bytes_read,
            bytes_useful=stored.bytes_useful,
        )

    @property
    def hit_rate(self) -> float:
        """1 - storage / requested rows, as in published tables; 0 without rows."""
        return 1 - self.rows_storage / self.rows_requested if self.rows_requested else 0.0

    @property
    def read_amplification(self) -> float:
        """Bytes read per byte of the rows that were not constant; 0 without such rows."""
        return self.bytes_read / self.bytes_useful if self.bytes_useful else 0.0


def total(counts: Iterable[FetchCounts]) -> FetchCounts:
    """Their sum."""
    return sum(counts, FetchCounts())


def merged(first: Mapping[str, FetchCounts], second: Mapping[str, FetchCounts]) -> dict[str, FetchCounts]:
    """Sum by node type."""
    none = FetchCounts()
    return {name: first.get(name, none) + second.get(name, none) for name in {**first, **second}}
