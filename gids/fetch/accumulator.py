"""The storage access accumulator: how many mini-batches are read together.

Reads that are submitted together keep the device busy until the last of them; then it idles for one latency.
So mini-batches are added to a group until the reads it will issue reach the number that the device needs
(:mod:`gids.fetch.device_model`), and further, as long as their pages lie so near each other that reading them
together takes clearly less time than one after the other. A budget of bytes bounds both.

Source: the storage access accumulator of GIDS (Park et al., VLDB 2024). There requests are counted, less an
estimate of those that the constant buffer serves; here reads, after hits of every kind and after merging.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bam.config import parse_bytes
from gids.fetch.memory import available_memory_bytes
from gids.fetch.read_plan import Pages, ReadRules, read_lengths
from gids.fetch.storage_model import StorageModel
from gids.fetch.window import united

#: Most mini-batches of a group, however small they are.
MAX_BATCHES = 1024
#: A mini-batch joins a group for nearness alone when that saves this share of its device time.
WORTHWHILE_GAIN = 0.1
#: Expected reads of a group over those needed: what is expected is a few percent off.
MARGIN = 1.1
#: Weight of the last group in the share of planned reads that were really issued.
NEWEST = 0.5
#: Expected reads below this are none.
NOTHING = 0.5
_HISTORY = 400
#: Of ``accumulate = "auto"``: this part of the available memory, at most so many bytes.
_AUTO_PART = 16
_AUTO_BYTES = 256 * 2**20


@dataclass(frozen=True)
class GroupMember:
    """What a mini-batch would add to a group.

    Attributes
    ----------
    pages : mapping of str to int64 array
        Pages of stored rows by table, rising; pages of constant rows are not in it.
    feature_bytes : int
        Memory of its features.
    """

    pages: Mapping[str, Pages]
    feature_bytes: int


@dataclass(frozen=True)
class GroupSize:
    """How many of the mini-batches that wait are read together; `complete`: more would not be taken."""

    n_batches: int
    complete: bool


@dataclass(frozen=True)
class AccumulatorReport:
    """What the accumulator did.

    Attributes
    ----------
    reads_needed : float
        Reads that must be under way for the wanted share of the device's peak.
    source : str
        Where the device's facts are from: ``calibration``, ``settings`` or ``default``.
    groups, batches, reads : int
        Groups read so far, their mini-batches, and the reads that were issued.
    history : tuple of (int, int)
        Mini-batches and reads of the last groups.
    """

    reads_needed: float
    source: str
    groups: int = 0
    batches: int = 0
    reads: int = 0
    history: tuple[tuple[int, int], ...] = ()


class GroupPages:
    """Mini-batches that are read together so far: their pages, and what reading those takes.

    Parameters
    ----------
    storage : StorageModel

    Attributes
    ----------
    n_batches : int
    n_bytes : int
        Memory of their features.
    """

    def __init__(self, storage: StorageModel) -> None:
        self._storage = storage
        self._pages: dict[str, Pages] = {}
        self._tried: tuple[GroupMember, dict[str, Pages]] | None = None
        self.n_batches = self.n_bytes = 0

    def add(self, member: GroupMember) -> None:
        """One mini-batch more."""
        self._pages, self._tried = self._with(member), None
        self.n_batches += 1
        self.n_bytes += member.feature_bytes

    def _with(self, member: GroupMember) -> dict[str, Pages]:
        if self._tried is None or self._tried[0] is not member:
            self._tried = member, _united(self._pages, member.pages)
        return self._tried[1]

    @property
    def n_pages(self) -> int:
        """Distinct ones."""
        return sum(map(len, self._pages.values()))

    def is_full(self, budget_bytes: int) -> bool:
        """The next one is as large as those so far, most likely; so nothing waits for it to find that out."""
        too_much = self.n_bytes * (self.n_batches + 1) > budget_bytes * self.n_batches
        return budget_bytes == 0 or too_much or self.n_batches == MAX_BATCHES

    def planned_reads(self) -> int:
        """Reads, if none of the pages are in memory."""
        return sum(len(read_lengths(pages, self._storage.rules)) for pages in self._pages.values())

    def gain(self, member: GroupMember) -> float:
        """Share of the member's own device time that is saved by reading it together with the group."""
        if self._storage.cost is None or self._storage.rules == _page_by_page(self._storage.rules):
            return 0.0
        alone = self._cost_us(member.pages)
        together = self._cost_us(self._with(member))
        return 1 - (together - self._cost_us(self._pages)) / alone if alone else 0.0

    def _cost_us(self, pages: Mapping[str, Pages]) -> float:
        assert self._storage.cost is not None
        rules, cost = self._storage.rules, self._storage.cost
        return sum(float(cost.cost_us(read_lengths(each, rules)).sum()) for each in pages.values())


class Groups(ABC):
    """Mini-batches that are read together, one group after the other.

    Decided from counts alone, never from time, so that the same mini-batches are always read together. Used
    by one thread.

    Parameters
    ----------
    storage : StorageModel
    budget_bytes : int
        Memory of the features that are read together; one mini-batch is always read. 0: each alone.
    """

    def __init__(self, storage: StorageModel, budget_bytes: int) -> None:
        self._storage, self._budget_bytes = storage, budget_bytes
        self._begin()

    def _begin(self) -> None:
        self._group, self._complete = GroupPages(self._storage), False

    def extend(self, waiting: Sequence[GroupMember]) -> GroupSize:
        """The group so far, after looking at those that wait, in the order of reading.

        Parameters
        ----------
        waiting : sequence of GroupMember
            All of them; it only gets longer until the next group begins.
        """
        while not self._complete and self._group.n_batches < len(waiting):
            member = waiting[self._group.n_batches]
            fits = self._group.n_bytes + member.feature_bytes <= self._budget_bytes
            if self._group.n_batches and not (fits and self._wants(member)):
                self._complete = True
                break
            self._group.add(member)
            self._complete = self._group.is_full(self._budget_bytes)
        return self.size

    @property
    def size(self) -> GroupSize:
        """The group so far."""
        return GroupSize(self._group.n_batches, self._complete)

    @abstractmethod
    def _wants(self, member: GroupMember) -> bool:
        """Whether it is worth reading this one with those of the group, if there is memory for it."""


class Accumulator(Groups):
    """Groups with enough reads for the device, or of mini-batches whose pages lie near each other.

    Parameters
    ----------
    storage, budget_bytes
        As of :class:`Groups`.
    share : float
        Of the device's peak.
    """

    def __init__(self, storage: StorageModel, budget_bytes: int, share: float) -> None:
        super().__init__(storage, budget_bytes)
        self.reads_needed = storage.facts.reads_needed(share)
        self._issued_share = 1.0
        self._groups = self._batches = self._reads = 0
        self._history: list[tuple[int, int]] = []

    def observe(self, reads: int) -> None:
        """The group was read, which took this many reads; the next one begins."""
        planned = self._group.planned_reads()
        if planned > 0:
            self._issued_share += NEWEST * (reads / planned - self._issued_share)
        self._groups += 1
        self._batches += self._group.n_batches
        self._reads += reads
        self._history = [*self._history[1 - _HISTORY :], (self._group.n_batches, reads)]
        self._begin()

    def report(self) -> AccumulatorReport:
        """What was done so far."""
        return AccumulatorReport(
            self.reads_needed,
            self._storage.source,
            self._groups,
            self._batches,
            self._reads,
            tuple(self._history),
        )

    def _wants(self, member: GroupMember) -> bool:
        expected = self._group.planned_reads() * self._issued_share
        if expected < NOTHING:  # all is in memory: there is nothing to wait for
            return False
        if expected < MARGIN * self.reads_needed:
            return True
        return self._group.gain(member) >= WORTHWHILE_GAIN


def accumulate_bytes(value: int | str) -> int:
    """Bytes that the setting `accumulate` stands for.

    Raises
    ------
    ConfigError
    """
    if value == "auto":
        return min(available_memory_bytes() // _AUTO_PART, _AUTO_BYTES)
    return parse_bytes(value, "accumulate")


def _page_by_page(rules: ReadRules) -> ReadRules:
    return ReadRules.page_by_page(rules.page_bytes)


def _united(first: Mapping[str, Pages], second: Mapping[str, Pages]) -> dict[str, Pages]:
    none = np.empty(0, np.int64)
    return {name: united(first.get(name, none), second.get(name, none)) for name in {**first, **second}}
