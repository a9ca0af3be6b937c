"""What a fetcher on a GPU counts, in plain Python: exact where one warp looks pages up, and no read fails.

The counterpart of :mod:`gids.fetch.fetch_model`. Nothing is read: the cache is the reference one, what a
gather counts is predicted by :mod:`bam.array.device_gather_model`, and sets stand for sorted tensors. For
stores that do not keep all pages, with all tables in files and all constant rows in their buffers.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bam.array.device_gather_model import DeviceGatherModel, PlainArray, PlainGather, PlainRow
from gids.fetch.cuda.fetcher import FORESIGHT_PACE
from gids.fetch.cuda.group_model import PlainAhead, PlainGrouping
from gids.fetch.cuda.grouping import GROUPS
from gids.fetch.fetch_model import Batch, PlainForecast
from gids.fetch.reference import next_uses, row_pages
from gids.fetch.window import UNKNOWN_USE


@dataclass(frozen=True)
class _Begun:
    """Mini-batches that are read together: their numbers, a gather for each row size, pages of all."""

    numbers: tuple[int, ...]
    gathers: tuple[PlainGather, ...]
    n_pages: int


class GpuFetchModel:
    """Predicts what reading mini-batches counts.

    Parameters
    ----------
    arrays : mapping of str to PlainArray
        Of each table; all in files.
    gathers : DeviceGatherModel
        Of the same arrays, with an empty cache.
    page_bytes : int
    ahead : PlainAhead
    grouping : PlainGrouping
    in_page_order : bool
        Whether rows of a mini-batch are asked for in rising order.
    forecast : PlainForecast, optional

    Attributes
    ----------
    counts : dict of str to Counter
        By table, as :class:`gids.fetch.counts.FetchCounts` names them.
    groups : list of int
        Mini-batches of each group.
    """

    def __init__(
        self,
        arrays: Mapping[str, PlainArray],
        gathers: DeviceGatherModel,
        page_bytes: int,
        ahead: PlainAhead,
        grouping: PlainGrouping,
        in_page_order: bool,
        forecast: PlainForecast | None = None,
    ) -> None:
        self._arrays = dict(sorted(arrays.items(), key=lambda item: (item[1].row_bytes, item[0])))
        self._gathers, self._page_bytes = gathers, page_bytes
        self._ahead, self._grouping, self._forecast = ahead, grouping, forecast
        self._in_page_order = in_page_order
        self.counts: dict[str, Counter[str]] = {name: Counter() for name in arrays}
        self.groups: list[int] = []

    def run(self, batches: Sequence[Batch], window: int, foresight: int = 0) -> None:
        """Count all mini-batches of an epoch, of which so many beyond those begun next are announced."""
        self._batches, self._window, self._known = batches, window, window + foresight
        self._next, self._to_foresee = 0, FORESIGHT_PACE
        self._announced: deque[int] = deque()
        self._begun: deque[_Begun] = deque()
        self._read: deque[int] = deque()  # reads of each mini-batch that is there
        while self._next < len(batches) or self._announced or self._begun or self._read:
            while self._next < len(batches) and self._wants_more():
                self._announce()
            self._fetch()

    def _wants_more(self) -> bool:
        return self._may_begin() or (self._to_foresee > 0 and not self._knows(self._known))

    def _announce(self) -> None:
        number, self._next = self._next, self._next + 1
        batch = self._batches[number]
        if self._forecast is not None:
            self._forecast.announce(batch)
        for name, rows in batch.items():
            self._gathers.note_use([PlainRow(name, row, number + 1) for row in rows])
        self._announced.append(number)
        if not self._may_begin():
            self._to_foresee -= 1
        while self._announced and self._may_begin() and self._knows(self._window):
            self._begin_group()

    def _fetch(self) -> None:
        while self._announced and self._may_begin():
            self._begin_group()
        self._to_foresee = FORESIGHT_PACE
        if not self._read:
            self._finish(self._begun.popleft())
        self._ahead.observe(self._read.popleft())

    def _may_begin(self) -> bool:
        under_way = sum(len(each.numbers) for each in self._begun) + len(self._read)
        groups = len(self._begun) + (len(self._read) > 0)
        return under_way < self._depth() or (self._grouping.on and groups < GROUPS)

    def _depth(self) -> int:
        next_ones = [*self._announced, *(each.numbers[0] for each in self._begun)]
        if not next_ones:
            return 1
        batch = self._batches[next_ones[0]]
        return self._ahead.depth(self._bytes(batch), sum(map(len, batch.values())))

    def _bytes(self, batch: Batch) -> int:
        return sum(len(rows) * self._arrays[name].row_bytes for name, rows in batch.items())

    def _knows(self, n_batches: int) -> bool:
        """Whether the next group is complete, and so many are announced beyond it."""
        self._look_at_those_that_wait()
        beyond = len(self._announced) - len(self._grouping.members)
        return self._grouping.complete and beyond >= n_batches

    def _look_at_those_that_wait(self) -> None:
        batches = [self._batches[number] for number in self._announced]
        self._grouping.extend([(self._stored_pages(batch), self._bytes(batch)) for batch in batches])

    def _stored_pages(self, batch: Batch) -> set[int]:
        """First and last pages of rows that are not constant."""
        return {page for name in batch for page in self._ends(name, self._stored(name, batch[name]))}

    def _stored(self, name: str, rows: Sequence[int]) -> list[int]:
        array = self._arrays[name]
        return [row for row in rows if row not in array.resident and row not in array.constant]

    def _ends(self, name: str, rows: Sequence[int]) -> set[int]:
        return set[int]().union(*self._row_ends(name, rows))

    def _row_ends(self, name: str, rows: Sequence[int]) -> list[set[int]]:
        array, size = self._arrays[name], self._page_bytes
        found = row_pages(np.array(rows, np.int64), array.row_bytes, size)
        return [{array.first_byte // size + page for page in each} for each in found]

    def _begin_group(self) -> None:
        self._look_at_those_that_wait()
        numbers = tuple(self._announced.popleft() for _ in self._grouping.members)
        n_pages = self._grouping.begun()
        self.groups.append(len(numbers))
        asked: dict[int, list[PlainRow]] = {}
        for name, array in self._arrays.items():
            asked.setdefault(array.row_bytes, []).extend(self._asked(name, numbers))
        gathers = tuple(self._gathers.begin(rows) for rows in asked.values())
        self._begun.append(_Begun(numbers, gathers, n_pages))

    def _asked(self, name: str, numbers: Sequence[int]) -> list[PlainRow]:
        """Rows of a table in the order asked for, each once, and when they are needed again."""
        rows = [row for number in numbers for row in self._batches[number][name]]
        if self._in_page_order or len(numbers) > 1:
            rows = sorted(set(rows))
        beyond = np.full(len(rows), UNKNOWN_USE, np.uint64)
        if self._forecast is not None:
            beyond = self._forecast.estimates(name, rows)
        # Announced with their constant rows, whose pages count, too.
        later = [(each + 1, {name: self._ends(name, self._batches[each][name])}) for each in self._announced]
        uses = next_uses({name: self._row_ends(name, rows)}, later, {name: beyond})[name].tolist()
        return [PlainRow(name, row, use) for row, use in zip(rows, uses, strict=True)]

    def _finish(self, begun: _Begun) -> None:
        for gather in begun.gathers:
            self._gathers.wait(gather)
        shares, total = [0] * len(begun.numbers), 0
        for name in self._arrays:
            found = sum((gather.counts.get(name, Counter()) for gather in begun.gathers), Counter[str]())
            reads = found["pages_claimed"] + found["pages_bypassed"]
            stored = [len(self._stored(name, self._batches[number][name])) for number in begun.numbers]
            self._count(name, begun.numbers, found, sum(stored))
            total += reads
            for place, rows in enumerate(stored):  # in proportion to rows; what is left over goes to the last
                share = reads * rows // sum(stored[place:]) if rows else 0
                shares[place] += share
                reads -= share
        self._grouping.observe(begun.n_pages, total)
        self._read.extend(shares)

    def _count(self, name: str, numbers: Sequence[int], found: Counter[str], n_stored: int) -> None:
        array, rows = self._arrays[name], [row for number in numbers for row in self._batches[number][name]]
        reads = found["pages_claimed"] + found["pages_bypassed"]
        # A row that several mini-batches of a group ask for is joined by all but one.
        joined = n_stored - found["rows_hit"] - found["rows_read"]
        self.counts[name].update(
            rows_requested=len(rows),
            rows_constant=len(rows) - n_stored,
            rows_resident=sum(row in array.resident for row in rows),
            rows_cache=found["rows_hit"],
            rows_joined=joined,
            rows_storage=found["rows_read"],
            pages_requested=found["pages_hit"] + found["pages_joined"] + reads,
            pages_hit=found["pages_hit"],
            pages_joined=found["pages_joined"],
            pages_read=reads,
            pages_bypassed=found["pages_bypassed"],
            reads=reads,
            bytes_read=reads * self._page_bytes,
            bytes_useful=n_stored * array.row_bytes,
        )
