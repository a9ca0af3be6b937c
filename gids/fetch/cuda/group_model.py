"""Which mini-batches a GPU reads ahead and which together, in plain Python and made from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gids.fetch.accumulator import MARGIN, MAX_BATCHES, WORTHWHILE_GAIN
from gids.fetch.cost_model import CostModel
from gids.fetch.fetch_model import plain_read_lengths
from gids.fetch.read_plan import ReadRules


class PlainAhead:
    """The decisions of :class:`gids.fetch.cuda.ahead.ReadAhead`.

    Parameters
    ----------
    reads_needed : float
    budget_bytes : int
    """

    def __init__(self, reads_needed: float, budget_bytes: int) -> None:
        self._needed, self._budget = reads_needed, budget_bytes
        self._reads: list[float] = []

    def depth(self, feature_bytes: int, most_reads: int) -> int:
        """Mini-batches that are to be under way."""
        if self._budget == 0:
            return 1
        expected = self._expected() if self._reads else most_reads
        wanted = 1 + math.ceil(MARGIN * self._needed / expected) if expected >= 1 else 2
        return max(2, min(wanted, self._budget // max(1, feature_bytes), MAX_BATCHES))

    def observe(self, reads: int) -> None:
        """A mini-batch needed so many."""
        self._reads.append(reads)

    def _expected(self) -> float:
        """Each weighs as much as all before it."""
        expected = float(self._reads[0])
        for reads in self._reads[1:]:
            expected += 0.5 * (reads - expected)
        return expected


class PlainGrouping:
    """The decisions of :class:`gids.fetch.cuda.grouping.Grouping`, for stores so small that all pages count.

    Parameters
    ----------
    rules : ReadRules
    cost : CostModel, optional
        None: nothing is grouped.
    budget_bytes : int
    """

    def __init__(self, rules: ReadRules, cost: CostModel | None, budget_bytes: int) -> None:
        self._rules, self._cost, self._budget = rules, cost, budget_bytes
        self.on = cost is not None and budget_bytes > 0
        self.members: list[tuple[set[int], int]] = []
        self.complete = False
        self._read_share = 1.0

    def extend(self, waiting: Sequence[tuple[set[int], int]]) -> None:
        """Look at those that wait (pages and bytes of each), of which the first are in the group already."""
        while not self.complete and len(self.members) < len(waiting):
            member = waiting[len(self.members)]
            if self.members and not self._takes(member):
                self.complete = True
                return
            self.members.append(member)
            self.complete = not self.on or self._is_full()

    def begun(self) -> int:
        """The next group begins; distinct pages of the last one."""
        n_pages = len(self._pages())
        self.members, self.complete = [], False
        return n_pages

    def observe(self, n_pages: int, reads: int) -> None:
        """Of the pages of a group so many were read."""
        if self.on and n_pages:
            self._read_share += 0.5 * (min(1.0, reads / n_pages) - self._read_share)

    def _pages(self) -> set[int]:
        return set[int]().union(*(pages for pages, _ in self.members))

    def _is_full(self) -> bool:
        count, n_bytes = len(self.members), sum(each for _, each in self.members)
        return n_bytes * (count + 1) > self._budget * count or count == MAX_BATCHES

    def _takes(self, member: tuple[set[int], int]) -> bool:
        pages, n_bytes = member
        too_much = sum(each for _, each in self.members) + n_bytes > self._budget
        if too_much or len(self._pages()) * self._read_share < 0.5:
            return False
        alone, before = self._cost_us(pages), self._cost_us(self._pages())
        return alone > 0 and 1 - (self._cost_us(self._pages() | pages) - before) / alone >= WORTHWHILE_GAIN

    def _cost_us(self, pages: set[int]) -> float:
        assert self._cost is not None
        return float(self._cost.cost_us(plain_read_lengths(pages, self._rules)).sum())
