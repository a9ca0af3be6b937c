"""What a fetcher counts, in plain Python: exact for one thread, as long as no read fails. No bytes are read.

Sets and loops in place of sorted arrays; the cache is the reference one, and what a gather counts is
predicted by :mod:`bam.array.gather_model`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bam.array.gather_model import GatherModel
from bam.cache.reference import ReferenceCache
from bam.layout import Layout
from gids.fetch.accumulator import MARGIN, MAX_BATCHES, WORTHWHILE_GAIN
from gids.fetch.cost_model import CostModel
from gids.fetch.foresight import PACE
from gids.fetch.read_plan import ReadRules
from gids.fetch.reference import forecast_uses, next_uses, row_pages
from gids.fetch.window import UNKNOWN_USE, Uses

#: Rows of one mini-batch by table, in the order asked for.
Batch = Mapping[str, Sequence[int]]
#: When pages outside the window are used again, where nothing is known of their hotness.


def plain_read_lengths(pages: set[int], rules: ReadRules) -> list[int]:
    """What :func:`gids.fetch.read_plan.read_lengths` must give."""
    reads: list[list[int]] = []
    for page in sorted(pages):
        near = reads and page - reads[-1][-1] <= 1 + rules.bridge_bytes // rules.page_bytes
        if near and page - reads[-1][0] < rules.merge_bytes // rules.page_bytes:
            reads[-1].append(page)
        else:
            reads.append([page])
    return [(read[-1] - read[0] + 1) * rules.page_bytes for read in reads]


@dataclass(frozen=True)
class PlainAccumulator:
    """The decisions of :class:`gids.fetch.accumulator.Accumulator`, made from scratch each time.

    Attributes
    ----------
    rules : ReadRules
    cost : CostModel or None
    reads_needed : float
    budget_bytes : int
    """

    rules: ReadRules
    cost: CostModel | None
    reads_needed: float
    budget_bytes: int

    def group(
        self, waiting: Sequence[tuple[Mapping[str, set[int]], int]], issued_share: float
    ) -> tuple[int, bool]:
        """Mini-batches of the group, and whether it is complete; `waiting` has pages and bytes of each."""
        for count in range(1, len(waiting) + 1):
            total = sum(n_bytes for _, n_bytes in waiting[:count])
            too_much = total * (count + 1) > self.budget_bytes * count
            if self.budget_bytes == 0 or too_much or count == MAX_BATCHES:
                return count, True
            if count < len(waiting) and not self._takes(waiting[:count], waiting[count], issued_share):
                return count, True
        return len(waiting), False

    def planned_reads(self, members: Sequence[tuple[Mapping[str, set[int]], int]]) -> int:
        """Reads of the members together, were nothing in memory."""
        return sum(len(plain_read_lengths(pages, self.rules)) for pages in _united(members).values())

    def _takes(
        self,
        members: Sequence[tuple[Mapping[str, set[int]], int]],
        member: tuple[Mapping[str, set[int]], int],
        issued_share: float,
    ) -> bool:
        if sum(n_bytes for _, n_bytes in [*members, member]) > self.budget_bytes:
            return False
        expected = self.planned_reads(members) * issued_share
        if expected < 0.5:
            return False
        if expected < MARGIN * self.reads_needed:
            return True
        if self.cost is None or self.rules == ReadRules.page_by_page(self.rules.page_bytes):
            return False
        alone = self._cost_us([member])
        added = self._cost_us([*members, member]) - self._cost_us(members)
        return alone > 0 and 1 - added / alone >= WORTHWHILE_GAIN

    def _cost_us(self, members: Sequence[tuple[Mapping[str, set[int]], int]]) -> float:
        assert self.cost is not None
        lengths = [plain_read_lengths(pages, self.rules) for pages in _united(members).values()]
        return sum(float(self.cost.cost_us(each).sum()) for each in lengths)


def _united(members: Sequence[tuple[Mapping[str, set[int]], int]]) -> dict[str, set[int]]:
    pages: dict[str, set[int]] = {}
    for mine, _ in members:
        for name, each in mine.items():
            pages[name] = pages.get(name, set()) | each
    return pages


class PlainForecast:
    """Estimates of :class:`gids.fetch.forecast.Forecast`, from counts in plain lists.

    Parameters
    ----------
    counts : mapping of str to sequence of float
        Requests that the epoch makes for each row, of each table.
    dispersion : float
    row_bytes : mapping of str to int
    page_bytes, n_batches : int
    """

    def __init__(
        self,
        counts: Mapping[str, Sequence[float]],
        dispersion: float,
        row_bytes: Mapping[str, int],
        page_bytes: int,
        n_batches: int,
    ) -> None:
        self._counts, self._dispersion = counts, dispersion
        self._row_bytes, self._page_bytes, self._n_batches = row_bytes, page_bytes, n_batches
        self._seen = {name: [0.0] * len(each) for name, each in counts.items()}
        self._foreseen = 0

    def announce(self, stored: Batch) -> None:
        """The next mini-batch reads these rows."""
        self._foreseen += 1
        for name, rows in stored.items():
            for row in rows:
                self._seen[name][row] += 1

    def estimates(self, name: str, rows: Sequence[int]) -> Uses:
        """As if the window did not reach them."""
        passed = min(1.0, self._foreseen / self._n_batches)
        sizes = self._row_bytes[name], self._page_bytes
        uses = forecast_uses(rows, *sizes, self._counts[name], self._seen[name], passed, self._dispersion)
        return np.array(uses, np.uint64)


class FetchModel:
    """Predicts what reading mini-batches counts.

    Parameters
    ----------
    row_bytes, n_rows : mapping of str to int
        Of each table, in the order in which the tables were opened.
    cache : ReferenceCache
        As the loader's, empty; changed.
    rules : ReadRules
    accumulator : PlainAccumulator, optional
    constant : mapping of str to set of int, optional
        Rows in constant buffers.
    forecast : PlainForecast, optional
    """

    def __init__(
        self,
        row_bytes: Mapping[str, int],
        n_rows: Mapping[str, int],
        cache: ReferenceCache,
        rules: ReadRules,
        accumulator: PlainAccumulator | None = None,
        constant: Mapping[str, set[int]] | None = None,
        forecast: PlainForecast | None = None,
    ) -> None:
        self._forecast = forecast
        self._row_bytes, self._cache, self._rules = row_bytes, cache, rules
        self._accumulator, self._constant = accumulator, constant or {}
        self._first_page: dict[str, int] = {}
        self._gathers: dict[str, GatherModel] = {}
        next_page = 0
        for name, size in row_bytes.items():
            layout = Layout.single(name, 0, n_rows[name] * size)
            self._first_page[name] = next_page
            self._gathers[name] = GatherModel(
                layout, cache, size, rules.merge_bytes, rules.bridge_bytes, next_page
            )
            next_page += -(-layout.logical_bytes // rules.page_bytes)
        self.groups: list[tuple[int, int]] = []
        self._issued_share = 1.0

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """By table, as :class:`bam.stats.ReaderStats` names them."""
        return {name: gather.counts for name, gather in self._gathers.items()}

    def run(self, batches: Sequence[Batch], window: int, foresight: int = 0) -> None:
        """Count all mini-batches of an epoch, of which so many beyond those in the window are known."""
        stored = [self._stored(batch) for batch in batches]
        out_rows = self._places(batches)
        members = [self._member(batch, mine) for batch, mine in zip(batches, stored, strict=True)]
        first = announced = known = 0
        while first < len(batches):
            size, complete = self._group(members[first:announced])
            while announced < len(batches) and (not complete or announced - first < size + window):
                announced += 1
                while known < min(len(batches), announced + foresight, max(1, PACE * announced)):
                    if self._forecast is not None:
                        self._forecast.announce(stored[known])
                    self._foresee(stored[known], known + 1)
                    known += 1
                size, complete = self._group(members[first:announced])
            self._read(stored, out_rows, first, size, known)
            first += size

    def _gather(
        self,
        name: str,
        group: Sequence[Batch],
        out_rows: Sequence[Batch],
        later: Sequence[tuple[int, Mapping[str, set[int]]]],
    ) -> None:
        rows = [row for batch in group for row in batch[name]]
        places = [place for batch in out_rows for place in batch[name]]
        estimated = np.full(len(rows), UNKNOWN_USE, np.uint64)
        if self._forecast is not None:
            estimated = self._forecast.estimates(name, rows)
        beyond = {name: estimated}
        uses = next_uses({name: self._pages(name, rows)}, later, beyond)[name].tolist()
        order = list(range(len(rows)))
        if self._rules.merge_bytes > self._rules.page_bytes:
            order.sort(key=rows.__getitem__)
        if rows:
            self._gathers[name].gather(*([each[i] for i in order] for each in (rows, uses, places)))

    def _stored(self, batch: Batch) -> dict[str, list[int]]:
        return {
            name: [row for row in rows if row not in self._constant.get(name, ())]
            for name, rows in batch.items()
        }

    def _places(self, batches: Sequence[Batch]) -> list[dict[str, list[int]]]:
        """Where stored rows go, as if all mini-batches were of one group; only differences matter."""
        places: list[dict[str, list[int]]] = []
        begin: Counter[str] = Counter()
        for batch in batches:
            places.append({})
            for name, rows in batch.items():
                held = self._constant.get(name, ())
                places[-1][name] = [begin[name] + i for i, row in enumerate(rows) if row not in held]
                begin[name] += len(rows)
        return places

    def _member(self, batch: Batch, stored: Batch) -> tuple[dict[str, set[int]], int]:
        pages = {name: set().union(*self._pages(name, rows)) for name, rows in stored.items()}
        return pages, sum(len(rows) * self._row_bytes[name] for name, rows in batch.items())

    def _pages(self, name: str, rows: Sequence[int]) -> list[set[int]]:
        return row_pages(np.array(rows, np.int64), self._row_bytes[name], self._rules.page_bytes)

    def _group(self, waiting: Sequence[tuple[dict[str, set[int]], int]]) -> tuple[int, bool]:
        if self._accumulator is None:
            return 1, True
        return self._accumulator.group(waiting, self._issued_share) if waiting else (0, False)

    def _foresee(self, stored: Batch, number: int) -> None:
        for name, rows in stored.items():
            size, page_bytes = self._row_bytes[name], self._rules.page_bytes
            for row in rows:
                for page in range(row * size // page_bytes, ((row + 1) * size - 1) // page_bytes + 1):
                    self._cache.note_use(self._first_page[name] + page, number)

    def _read(
        self, stored: Sequence[Batch], out_rows: Sequence[Batch], first: int, size: int, known: int
    ) -> None:
        later = [
            (
                number + 1,
                {name: set().union(*self._pages(name, rows)) for name, rows in stored[number].items()},
            )
            for number in range(first + size, known)
        ]
        reads = sum(counts["reads"] for counts in self.counts.values())
        planned = 0
        if self._accumulator is not None:
            planned = self._accumulator.planned_reads(
                [self._member({}, each) for each in stored[first : first + size]]
            )
        for name in self._row_bytes:
            self._gather(name, stored[first : first + size], out_rows[first : first + size], later)
        reads = sum(counts["reads"] for counts in self.counts.values()) - reads
        if planned:
            self._issued_share += 0.5 * (reads / planned - self._issued_share)
        self.groups.append((size, reads))
