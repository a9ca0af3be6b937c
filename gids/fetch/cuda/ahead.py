"""The storage access accumulator of a GPU: how many mini-batches are begun before the first has arrived.

Their commands stand in the queues together, so the device has work from all of them. A mini-batch is begun
when the reads under way are expected to fall below the number that the device needs for the wanted share of
its peak (:mod:`gids.fetch.device_model`), within a budget of bytes.

Source: the storage access accumulator of GIDS (Park et al., VLDB 2024).
"""

from __future__ import annotations

import math

from gids.fetch.accumulator import MARGIN, MAX_BATCHES, AccumulatorReport
from gids.fetch.storage_model import StorageModel

_NEWEST = 0.5
_HISTORY = 400


class ReadAhead:
    """Decides from counts alone, never from time. Used by one thread.

    Parameters
    ----------
    storage : StorageModel
    budget_bytes : int
        Memory of the features of mini-batches under way; two are always begun. 0: one after the other.
    share : float
        Of the device's peak.
    """

    def __init__(self, storage: StorageModel, budget_bytes: int, share: float) -> None:
        self._source, self._budget_bytes = storage.source, budget_bytes
        self.reads_needed = storage.facts.reads_needed(share)
        self._expected: float | None = None
        self._groups = self._batches = self._reads = 0
        self._history: list[tuple[int, int]] = []

    def depth(self, feature_bytes: int, most_reads: int) -> int:
        """Mini-batches that are to be under way.

        Parameters
        ----------
        feature_bytes : int
            Memory of the features of one.
        most_reads : int
            Rows of one: more reads than it can need.
        """
        if self._budget_bytes == 0:
            return 1
        reads = most_reads if self._expected is None else self._expected
        wanted = 1 + math.ceil(MARGIN * self.reads_needed / reads) if reads >= 1 else 2
        return max(2, min(wanted, self._budget_bytes // max(1, feature_bytes), MAX_BATCHES))

    def begun(self) -> None:
        """Some mini-batches, or one, were begun together."""
        self._groups += 1

    def observe(self, under_way: int, reads: int) -> None:
        """A mini-batch has arrived.

        Parameters
        ----------
        under_way : int
            Mini-batches that were, with this one.
        reads : int
            It needed.
        """
        self._expected = (
            float(reads) if self._expected is None else self._expected + _NEWEST * (reads - self._expected)
        )
        self._batches += 1
        self._reads += reads
        self._history = [*self._history[1 - _HISTORY :], (under_way, reads)]

    def report(self) -> AccumulatorReport:
        """What was done so far; its history is of mini-batches, with the reads of all that were under way."""
        history, summed = [], 0
        recent = [reads for _, reads in self._history]
        for number, (under_way, _) in enumerate(self._history):
            summed = sum(recent[max(0, number + 1 - under_way) : number + 1])
            history.append((under_way, summed))
        return AccumulatorReport(
            self.reads_needed, self._source, self._groups, self._batches, self._reads, tuple(history)
        )
