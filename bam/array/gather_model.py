"""What the native reader counts, in plain Python: exact for one thread, as long as no read fails.

The rules are those of gatherer.h: rows that follow each other are looked up as one run; pages a call has
claimed stay pinned for one to two chunks; fetches are sorted and merged block by block, over small holes too.
Bytes read are those of the ranges, without what the alignment of direct reads adds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bam.cache.page_cache import NEVER, Outcome
from bam.cache.reference import ReferenceCache
from bam.layout import Layout

# As in gather_plan.cc and gather_read.cc.
RUN_PAGES = 64
BLOCK_FETCHES = 256
CHUNK_BYTES = 2 * 2**20
MIN_CHUNK_FETCHES, MAX_CHUNK_FETCHES = 64, 512
MAX_FETCHES_HELD = 65536


@dataclass
class _Chunk:
    """Fetches of which the lines (where there is one) stay pinned together."""

    pages: dict[int, int | None] = field(default_factory=dict)


class GatherModel:
    """Predicts the counters of gathers, one after the other.

    Parameters
    ----------
    layout : Layout
    cache : ReferenceCache
        Changed by :meth:`gather` as the native cache is.
    row_bytes, merge_bytes, bridge_bytes : int
    first_page_id : int
        What the cache calls page 0, where arrays share it.
    """

    def __init__(
        self,
        layout: Layout,
        cache: ReferenceCache,
        row_bytes: int,
        merge_bytes: int,
        bridge_bytes: int = 0,
        first_page_id: int = 0,
    ) -> None:
        self._first_page_id = first_page_id
        self._layout, self._cache = layout, cache
        self._row_bytes, self._page_bytes = row_bytes, cache.page_bytes
        self._merge_pages = max(1, merge_bytes // cache.page_bytes)
        self._bridged_pages = bridge_bytes // cache.page_bytes
        fetches = CHUNK_BYTES // cache.page_bytes
        self._chunk_fetches = min(max(fetches, MIN_CHUNK_FETCHES), MAX_CHUNK_FETCHES)
        self.counts: Counter[str] = Counter()

    def gather(
        self, ids: list[int], next_use: list[int] | None = None, out_rows: list[int] | None = None
    ) -> None:
        """Count one call; `ids` are rows, which go to rows `out_rows` of the output."""
        self._out_rows = out_rows
        self.counts.update(gathers=1, rows=len(ids), bytes_useful=len(ids) * self._row_bytes)
        self._current, self._before = _Chunk(), _Chunk()
        self._block: list[int] = []
        self._held = 0
        position = 0
        while position < len(ids):
            end = self._end_of_run(ids, position)
            self._plan_run(
                ids[position], None if next_use is None else next_use[position:end], end - position
            )
            position = end
            self._stay_in_bounds()
        self._finish()

    def _stay_in_bounds(self) -> None:
        if len(self._block) >= BLOCK_FETCHES:
            self._close_block()
        if len(self._current.pages) >= self._chunk_fetches:
            self._close_chunk()
        if self._held >= MAX_FETCHES_HELD:
            self._finish()

    def _end_of_run(self, ids: list[int], position: int) -> int:
        most = max(1, RUN_PAGES * self._page_bytes // self._row_bytes)
        end = position + 1
        while end < min(len(ids), position + most) and ids[end] == ids[end - 1] + 1 and self._follows(end):
            end += 1
        return end

    def _follows(self, position: int) -> bool:
        """Whether the row goes right behind the one before it."""
        return self._out_rows is None or self._out_rows[position] == self._out_rows[position - 1] + 1

    def _plan_run(self, row_id: int, next_use: list[int] | None, n_rows: int) -> None:
        first = row_id * self._row_bytes
        last = first + n_rows * self._row_bytes - 1
        pages = range(first // self._page_bytes, last // self._page_bytes + 1)
        sources = {}
        for planned, page_id in enumerate(pages, 1):
            begin, end = page_id * self._page_bytes // self._row_bytes, (page_id + 1) * self._page_bytes - 1
            rows = slice(max(0, begin - row_id), end // self._row_bytes + 1 - row_id)
            use = NEVER if next_use is None else max(next_use[rows])
            sources[page_id] = self._plan_page(page_id, use)
            if planned % RUN_PAGES == 0:
                self._stay_in_bounds()
        for row in range(row_id, row_id + n_rows):
            begin, end = row * self._row_bytes, (row + 1) * self._row_bytes - 1
            mine = {sources[page] for page in range(begin // self._page_bytes, end // self._page_bytes + 1)}
            worst = next(source for source in ("storage", "joined", "hit") if source in mine)
            self.counts[f"rows_{worst}"] += 1

    def _plan_page(self, page_id: int, next_use: int) -> str:
        self.counts["pages"] += 1
        for chunk in (self._current, self._before):
            if page_id in chunk.pages:
                self.counts["joins"] += 1
                self._touch(chunk.pages[page_id], next_use)
                return "joined"
        acquired = self._cache.acquire(self._first_page_id + page_id, next_use)
        if acquired.outcome is Outcome.HIT:
            assert acquired.line_id is not None
            self._cache.unpin(acquired.line_id)
            self.counts["hits"] += 1
            return "hit"
        self.counts["misses"] += 1
        self.counts["bypasses"] += acquired.line_id is None
        self._current.pages[page_id] = acquired.line_id
        self._block.append(page_id)
        self._held += 1
        return "storage"

    def _touch(self, line_id: int | None, next_use: int) -> None:
        """A second request for a page that the call has claimed."""
        if line_id is not None:
            set_id, way = divmod(line_id, self._cache.ways)
            self._cache.touch(set_id, way, next_use)

    def _close_block(self) -> None:
        run: list[int] = []
        for page_id in [*sorted(self._block), None]:
            if run and (page_id is None or not self._extends(run, page_id)):
                begin = run[0] * self._page_bytes
                end = min((run[-1] + 1) * self._page_bytes, self._layout.logical_bytes)
                self.counts["reads"] += len(list(self._layout.runs(begin, end - begin)))
                self.counts["bytes_read"] += end - begin
                run = []
            if page_id is not None:
                run.append(page_id)
        self._block = []

    def _extends(self, run: list[int], page_id: int) -> bool:
        """Whether the page is near enough to the last of the read's, and the read does not get too long."""
        near = page_id - run[-1] <= 1 + self._bridged_pages
        return near and page_id - run[0] < self._merge_pages

    def _close_chunk(self) -> None:
        self._close_block()
        self._retire(self._before)
        self._before, self._current = self._current, _Chunk()

    def _finish(self) -> None:
        self._close_block()
        self._retire(self._before)
        self._retire(self._current)
        self._before, self._current, self._held = _Chunk(), _Chunk(), 0

    def _retire(self, chunk: _Chunk) -> None:
        for line_id in chunk.pages.values():
            if line_id is not None:
                self._cache.publish(line_id)
                self._cache.unpin(line_id)
