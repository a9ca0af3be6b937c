"""What gathers on a GPU count, in plain Python: exact where one warp looks all pages up, and no read fails.

The counterpart of device_submit.h and of :mod:`bam.cache.device.reads`: rows are cut into chunks, chunks into
pieces, of which a warp looks up some at a time; lines that are being read stay pinned until their chunk is
finished. What failed reads, caches of no lines and kernels of others do is not in it, nor rows that share a
page without straddling any and give different next uses: the policy hears of them in no certain order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from bam.cache.geometry import set_of
from bam.cache.page_cache import NEVER, Acquired, Outcome
from bam.cache.reference import ReferenceCache

#: Pieces that a warp takes at a time: of short rows, of longer ones, and of those where they are many; as in
#: device_copy.h.
WARP_PIECES, LONG_PIECES, MANY_LONG_PIECES = 32, 8, 16
LONG_ROW_BYTES, MANY_PIECES = 2048, 1 << 16
_PAGES = {
    Outcome.HIT: "pages_hit",
    Outcome.JOINED: "pages_joined",
    Outcome.CLAIMED: "pages_claimed",
    Outcome.BYPASS: "pages_bypassed",
}


@dataclass(frozen=True)
class PlainArray:
    """One array of a store.

    Attributes
    ----------
    row_bytes : int
    first_byte : int
        Of the array, in the store; a page's beginning.
    resident, constant : set of int
        Rows in the GPU's memory, which is looked at first, and in pinned memory.
    """

    row_bytes: int
    first_byte: int
    resident: Set[int] = frozenset()
    constant: Set[int] = frozenset()

    def pages(self, row: int, page_bytes: int) -> range:
        """Pages of the store that a row touches."""
        begin = self.first_byte + row * self.row_bytes
        return range(begin // page_bytes, (begin + self.row_bytes - 1) // page_bytes + 1)


@dataclass(frozen=True)
class PlainRow:
    """A row that is asked for, of array `name`, and when it is needed again."""

    name: str
    row: int
    next_use: int = NEVER


@dataclass
class PlainGather:
    """A gather that was begun; `counts` by array, as :class:`bam.array.device_group.GroupCounts` has them."""

    counts: dict[str, Counter[str]]
    unfinished: int = 0


@dataclass
class _Chunk:
    """Part of a gather that is in flight, and the lines that it has pinned."""

    gather: PlainGather
    claimed: list[int] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Piece:
    """A row's share of one page; `place` says which row of the chunk it is of."""

    place: int
    page_id: int
    next_use: int


class DeviceGatherModel:
    """Predicts the gathers of one store, in the order in which they are begun.

    Parameters
    ----------
    arrays : mapping of str to PlainArray
    cache : ReferenceCache
        Changed as the GPU's is.
    n_flights, slots_per_flight : int
        Chunks in flight, and most pieces of one.
    """

    def __init__(
        self, arrays: Mapping[str, PlainArray], cache: ReferenceCache, n_flights: int, slots_per_flight: int
    ) -> None:
        self._arrays, self._cache = arrays, cache
        self._n_flights, self._slots = n_flights, slots_per_flight
        self._chunks: deque[_Chunk] = deque()

    def begin(self, rows: Sequence[PlainRow]) -> PlainGather:
        """Begin to gather rows of one size; chunks that are in the way are finished."""
        gather = PlainGather({row.name: Counter() for row in rows})
        if not rows:
            return gather
        pages_per_row = self._pages_per_row(self._arrays[rows[0].name].row_bytes)
        per_chunk = self._slots // pages_per_row
        firsts = range(0, len(rows), per_chunk)
        gather.unfinished = len(firsts)
        for first in firsts:
            if len(self._chunks) == self._n_flights:
                self._finish_oldest()
            self._chunks.append(_Chunk(gather))
            self._submit(self._chunks[-1], rows[first : first + per_chunk], pages_per_row)
        return gather

    def wait(self, gather: PlainGather) -> None:
        """Finish it, and what was begun before."""
        while gather.unfinished:
            self._finish_oldest()

    def note_use(self, rows: Sequence[PlainRow]) -> None:
        """Pages of these rows are needed at their next use, as far as they are cached."""
        for row in rows:
            array = self._arrays[row.name]
            if row.row not in array.resident and row.row not in array.constant:
                for page_id in array.pages(row.row, self._cache.page_bytes):
                    self._cache.note_use(page_id, row.next_use)

    def _pages_per_row(self, row_bytes: int) -> int:
        """Most pages that a row of this size touches, of arrays that begin with a page; or one more."""
        page_bytes = self._cache.page_bytes
        if row_bytes % page_bytes == 0 or page_bytes % row_bytes == 0:
            return max(1, row_bytes // page_bytes)
        return (row_bytes + page_bytes - 2) // page_bytes + 1

    def _submit(self, chunk: _Chunk, rows: Sequence[PlainRow], pages_per_row: int) -> None:
        found: list[list[Outcome]] = [[] for _ in rows]
        for pieces in self._warps(rows, pages_per_row):
            self._look_up(chunk, pieces, found)
        for row, outcomes in zip(rows, found, strict=True):
            self._count(chunk.gather.counts[row.name], row, outcomes)

    def _warps(self, rows: Sequence[PlainRow], pages_per_row: int) -> Iterator[list[_Piece]]:
        """Pieces that a warp looks up together; those of constant rows, and empty ones, leave gaps."""
        share = WARP_PIECES
        if self._arrays[rows[0].name].row_bytes > LONG_ROW_BYTES:
            share = LONG_PIECES if len(rows) * pages_per_row < MANY_PIECES else MANY_LONG_PIECES
        taken: dict[int, list[_Piece]] = {}
        for place, row in enumerate(rows):
            array = self._arrays[row.name]
            if row.row in array.resident or row.row in array.constant:
                continue
            for k, page_id in enumerate(array.pages(row.row, self._cache.page_bytes)):
                warp = (place * pages_per_row + k) // share
                taken.setdefault(warp, []).append(_Piece(place, page_id, row.next_use))
        for _, pieces in sorted(taken.items()):
            yield pieces

    def _look_up(self, chunk: _Chunk, pieces: Sequence[_Piece], found: list[list[Outcome]]) -> None:
        """Pages that are there are pinned before any is given up; the others come in the order of pieces."""
        latest: dict[int, int] = {}
        for piece in pieces:
            latest[piece.page_id] = max(latest.get(piece.page_id, 0), piece.next_use)
        there = {page_id for page_id in latest if self._holds(page_id)}
        hits = []
        for piece in sorted(pieces, key=lambda each: each.page_id not in there):
            acquired = self._cache.acquire(piece.page_id, latest[piece.page_id])
            found[piece.place].append(acquired.outcome)
            hits += self._pin(chunk, acquired)
        for line_id in hits:  # the warp has copied them
            self._cache.unpin(line_id)

    @staticmethod
    def _pin(chunk: _Chunk, acquired: Acquired) -> list[int]:
        """Lines of reads are the chunk's until it is finished; that of a hit is returned."""
        if acquired.line_id is None:
            return []
        if acquired.outcome is Outcome.HIT:
            return [acquired.line_id]
        (chunk.claimed if acquired.outcome is Outcome.CLAIMED else chunk.joined).append(acquired.line_id)
        return []

    def _holds(self, page_id: int) -> bool:
        cache_set = self._cache.sets[set_of(page_id, self._cache.n_sets)]
        return any(line.in_use and line.page_id == page_id for line in cache_set.lines)

    def _count(self, counts: Counter[str], row: PlainRow, outcomes: Sequence[Outcome]) -> None:
        """A row counts by the worst of its pages."""
        array = self._arrays[row.name]
        counts.update(_PAGES[outcome] for outcome in outcomes)
        if not outcomes:
            counts["rows_resident" if row.row in array.resident else "rows_constant"] += 1
        elif Outcome.CLAIMED in outcomes or Outcome.BYPASS in outcomes:
            counts["rows_read"] += 1
        else:
            counts["rows_joined" if Outcome.JOINED in outcomes else "rows_hit"] += 1

    def _finish_oldest(self) -> None:
        chunk = self._chunks.popleft()
        for line_id in chunk.claimed:
            self._cache.publish(line_id)
        for line_id in [*chunk.claimed, *chunk.joined]:
            self._cache.unpin(line_id)
        chunk.gather.unfinished -= 1
