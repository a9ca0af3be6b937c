"""When rows are needed again that the window does not reach, from how often an epoch asks for them.

Between epochs a row's count hardly changes: a node that few nodes are joined to is asked for by the same
seeds in every epoch, once each, only at another time. On IGBH-tiny's graph the variance of counts from 1 to 8
is 0.15 of what it were if requests came by chance. So what an epoch asked for so far says what is still to
come. Let a row's count have mean `c` and variance `f c`, and let each request come at any time of the epoch.
When a share `p` of the epoch has passed and the row was asked for `s` times, the best linear estimate of the
requests to come is

    (1 - p) c - k (s - p c)        with  k = (1 - p)(1 - f) / (p f + 1 - p)

which is `c - s` for f = 0 and `(1 - p) c` for f = 1. The more requests are to come, the sooner is the next
one; the order is all that the cache needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gids.fetch.expected_requests import ExpectedRequests, counts_of_levels
from gids.fetch.table import FeatureTable
from gids.fetch.window import HORIZON, RowIds, Uses

#: A row is never taken for dead: that share of its count is always still to come.
_FLOOR = 0.02
_COLDEST = float(HORIZON - 1)


class EpochProgress:
    """How much of its epoch an iteration has announced, and what a level of requests stands for in it.

    Parameters
    ----------
    requests : ExpectedRequests, optional
    n_batches : int
        Mini-batches of the iteration.
    of_batches : int, optional
        Mini-batches of its epoch, of which the iteration is the last part; default: all.

    Attributes
    ----------
    counts : float32 array, shape (256,)
        Requests that each level stands for.
    """

    def __init__(
        self, requests: ExpectedRequests | None, n_batches: int, of_batches: int | None = None
    ) -> None:
        self._n_batches, self._of_batches = max(1, n_batches), max(1, of_batches or n_batches)
        self._foreseen = 0
        self.counts = counts_of_levels()
        if requests is not None:
            # An iteration that takes up an epoch in the middle has seen nothing: what is left of it counts.
            self.counts *= np.float32(self._n_batches / max(1, requests.n_batches))

    def announce(self) -> bool:
        """Another mini-batch; True when it is the first of a new epoch after another."""
        begins = self._foreseen == self._n_batches
        if begins:
            self.counts *= np.float32(self._of_batches / self._n_batches)
            self._foreseen, self._n_batches = 0, self._of_batches
        self._foreseen += 1
        return begins

    @property
    def passed(self) -> float:
        """Share of the epoch that was announced."""
        return min(1.0, self._foreseen / self._n_batches)

    def correction(self, dispersion: float) -> float:
        """`k` of the formula above."""
        passed, left = self.passed, 1 - self.passed
        return left * (1 - dispersion) / (passed * dispersion + left) if left > 0 else 0.0


class Forecast:
    """Estimates for the tables of one iteration. Used by one thread.

    One byte a row counts what was asked for, touched where rows are.

    Parameters
    ----------
    tables : mapping of str to FeatureTable
    requests : ExpectedRequests, optional
        Without, tables estimate by the degrees of hot-first stores.
    n_batches : int
        Mini-batches of the iteration.
    of_batches : int, optional
        Mini-batches of its epoch, of which the iteration is the last part; default: all.
    """

    def __init__(
        self,
        tables: Mapping[str, FeatureTable],
        requests: ExpectedRequests | None,
        n_batches: int,
        of_batches: int | None = None,
    ) -> None:
        self._tables, self._requests = tables, requests
        self._progress = EpochProgress(requests, n_batches, of_batches)
        self._seen: dict[str, npt.NDArray[np.uint8]] = {}
        if requests is not None:
            stored = [
                name for name, table in tables.items() if not table.in_memory and name in requests.levels
            ]
            self._seen = {name: np.zeros(tables[name].n_rows, np.uint8) for name in stored}

    def announce(self, rows: Mapping[str, RowIds]) -> None:
        """The next mini-batch reads these rows. After the last of an epoch the next epoch begins."""
        if self._progress.announce():
            for seen in self._seen.values():
                seen.fill(0)
        for name, seen in self._seen.items():
            _count(rows[name], seen)

    def estimates(self, name: str, rows: RowIds) -> Uses:
        """As :meth:`gids.fetch.table.FeatureTable.estimates`, of the pages that rows begin in."""
        table = self._tables[name]
        if name not in self._seen or self._requests is None:
            return table.estimates(rows)
        uses = np.empty(len(rows), np.uint64)
        _estimate(
            rows,
            table.row_bytes,
            table.page_bytes,
            self._requests.levels[name],
            self._progress.counts,
            self._seen[name],
            self._progress.passed,
            self._progress.correction(self._requests.dispersion),
            uses,
        )
        return uses


@njit(cache=True, nogil=True)
def _count(rows: Any, seen: Any) -> None:
    for row in rows:
        if seen[row] < 255:
            seen[row] += 1


@njit(cache=True, nogil=True)
def _to_come(count: Any, seen: Any, passed: Any, correction: Any) -> Any:
    left = (1 - passed) * count - correction * (seen - passed * count)
    return max(left, _FLOOR * count)


@njit(cache=True, nogil=True)
def _estimate(
    rows: Any,
    row_bytes: Any,
    page_bytes: Any,
    levels: Any,
    counts: Any,
    seen: Any,
    passed: Any,
    correction: Any,
    uses: Any,
) -> None:
    for i in range(len(rows)):
        page = rows[i] * row_bytes // page_bytes
        first = (page * page_bytes + row_bytes - 1) // row_bytes
        end = min(len(levels), ((page + 1) * page_bytes + row_bytes - 1) // row_bytes)
        left = 0.0
        for row in range(min(first, rows[i]), max(end, rows[i] + 1)):
            left += _to_come(counts[levels[row]], seen[row], passed, correction)
        uses[i] = np.uint64(HORIZON) + np.uint64(_COLDEST / (1.0 + left))
