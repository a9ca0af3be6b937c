"""Reads the features of sampled mini-batches in order, looking ahead over those that follow."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from bam.errors import StorageError
from gids.fetch.accumulator import Accumulator, GroupMember, GroupSize
from gids.fetch.constant_buffer import Division
from gids.fetch.counts import FetchCounts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.forecast import Forecast
from gids.fetch.foresight import Foreseen, Foresight
from gids.fetch.output_pool import OutputPool
from gids.fetch.shared_counts import divided
from gids.fetch.table import Bytes
from gids.fetch.window import (
    HORIZON,
    FutureBatch,
    RowIds,
    RowPages,
    Uses,
    Window,
    WindowEntry,
    once_each,
)
from gids.fetch.window_size import WindowSize, parse_window
from gids.sampling.block import SampledBatch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Fetched:
    """Features of one mini-batch.

    Attributes
    ----------
    tensors : mapping of str to tensor
        For every node type that has features: shape (input nodes, *row_shape), on the CPU.
    counts : mapping of str to FetchCounts
        What this mini-batch cost, by node type.
    """

    tensors: Mapping[str, torch.Tensor]
    counts: Mapping[str, FetchCounts]


@dataclass(frozen=True, eq=False)
class _DividedRows:
    """As in :class:`PlannedBatch`."""

    rows: Mapping[str, RowIds]
    stored: Mapping[str, RowIds]
    divisions: Mapping[str, Division]


@dataclass(frozen=True, eq=False)
class PlannedBatch:
    """Where the features of a mini-batch lie.

    Attributes
    ----------
    batch : SampledBatch
    rows, stored : mapping of str to int64 array
        All rows of each type, and those that are not constant.
    divisions : mapping of str to Division
        Which are constant, of the tables that have a constant buffer.
    pages : mapping of str to RowPages
        Of the stored rows; empty where nothing is read any more.
    member : GroupMember
    foreseen : sequence of Foreseen
        Of this mini-batch or later ones, what became known with it.
    """

    batch: SampledBatch
    rows: Mapping[str, RowIds]
    stored: Mapping[str, RowIds]
    divisions: Mapping[str, Division]
    pages: Mapping[str, RowPages]
    member: GroupMember
    foreseen: Sequence[Foreseen] = ()


@dataclass(frozen=True, eq=False)
class _Announced:
    """A mini-batch that waits for its features, and its place in the window."""

    plan: PlannedBatch
    entry: WindowEntry

    @property
    def rows(self) -> Mapping[str, RowIds]:
        return self.plan.rows

    @property
    def divisions(self) -> Mapping[str, Division]:
        return self.plan.divisions


@dataclass(frozen=True, eq=False)
class _Result:
    batch: SampledBatch
    fetched: Fetched

    @property
    def reads(self) -> int:
        """That were issued for it."""
        return sum(each.reads for each in self.fetched.counts.values())


class Fetcher:
    """Reads mini-batches in the order they were announced. Used by one thread; one for each iteration.

    Parameters
    ----------
    store : FeatureStore
    pool : OutputPool
        Memory for the tensors.
    accumulator : Accumulator, optional
        Decides how many are read together; by default each is read alone.
    forecast : Forecast, optional
        When rows are needed that the window does not reach; by default as the tables estimate.

    Attributes
    ----------
    last_group : int
        Mini-batches that were read together last; 0 before the first.
    """

    def __init__(
        self,
        store: FeatureStore,
        pool: OutputPool,
        accumulator: Accumulator | None = None,
        forecast: Forecast | None = None,
    ) -> None:
        self._store, self._pool = store, pool
        self._foresight: Foresight | None = None
        self._forecast = forecast or Forecast(store.tables, None, 1)
        self._accumulator = accumulator
        self._window = Window()
        self._announced: deque[_Announced] = deque()
        self._done: deque[_Result | StorageError] = deque()
        self.last_group = 0

    def __len__(self) -> int:
        """Mini-batches announced and not yet handed out."""
        return len(self._announced) + len(self._done)

    def wants_more(self, window: int | WindowSize) -> bool:
        """Whether another mini-batch is to be announced before the next one is read.

        Reading waits until the group that is read together is complete and the window beyond it is full.
        """
        if self._done:
            return False
        size = self._group_size()
        if not size.complete or len(self._announced) < size.n_batches:
            return True
        beyond = list(self._announced)[size.n_batches :]
        n_bytes = sum(each.plan.member.feature_bytes for each in beyond)
        return parse_window(window, 0).wants_more(len(beyond), n_bytes)

    def look_beyond(self, foresight: Foresight) -> None:
        """Before the first mini-batch: know the pages of later ones than those that are announced.

        Parameters
        ----------
        foresight : Foresight
            Of the same mini-batches; not used where the cache has room for every page.
        """
        self._foresight = None if self._store.keeps_all else foresight

    def plan(self, batch: SampledBatch) -> PlannedBatch:
        """Find out where its features lie; in the thread that samples, so that reading does not wait for it.

        Mini-batches are planned in the order of reading.
        """
        planned = self._plan(batch)
        if self._foresight is None:
            return planned
        return replace(planned, foreseen=self._foresight.next(self._locate))

    def _locate(self, batch: SampledBatch) -> Foreseen:
        stored = self._divide(batch).stored
        tables = self._store.tables
        return Foreseen(stored, {name: tables[name].distinct_pages(ids) for name, ids in stored.items()})

    def _divide(self, batch: SampledBatch) -> _DividedRows:
        rows = {name: table.rows_of(batch.nodes[name]) for name, table in self._store.tables.items()}
        divisions = {name: buffer.divide(rows[name]) for name, buffer in self._store.buffers.items()}
        # Constant rows are not in the window: no page is kept or read for them.
        stored = {**rows, **{name: division.stored_rows for name, division in divisions.items()}}
        return _DividedRows(rows, stored, divisions)

    def _plan(self, batch: SampledBatch) -> PlannedBatch:
        tables = self._store.tables
        found = self._divide(batch)
        planned = {} if self._store.settled else found.stored
        pages = {name: tables[name].pages_of(ids) for name, ids in planned.items()}
        member = GroupMember(
            {name: once_each(each.distinct) for name, each in pages.items() if not tables[name].in_memory},
            sum(len(ids) * tables[name].row_bytes for name, ids in found.rows.items()),
        )
        return PlannedBatch(batch, found.rows, found.stored, found.divisions, pages, member)

    def announce(self, batch: SampledBatch | PlannedBatch) -> None:
        """The mini-batch will be read after all that were announced before it."""
        plan = batch if isinstance(batch, PlannedBatch) else self.plan(batch)
        if plan.stored and bool(plan.pages) == self._store.settled:
            # Planned before the store settled, or after: counts must not depend on which thread was faster.
            plan = self._plan(plan.batch)
        foreseen = plan.foreseen
        if self._foresight is None:
            foreseen = [Foreseen(plan.stored, {name: each.distinct for name, each in plan.pages.items()})]
        for each in foreseen:
            self._foresee(each)
        number = self._window[len(self._announced)].number
        plan = replace(plan, foreseen=())  # the rows of later mini-batches are not kept
        self._announced.append(_Announced(plan, WindowEntry(number, plan.stored, plan.pages)))

    def _foresee(self, foreseen: Foreseen) -> None:
        number = self._store.next_number()
        self._window.push(FutureBatch(number, foreseen.pages))
        if not self._store.keeps_all:
            self._forecast.announce(foreseen.rows)
            for name, ids in foreseen.rows.items():
                self._store.tables[name].foresee(ids, number)

    def fetch(self) -> tuple[SampledBatch, Fetched]:
        """The mini-batch that was announced first; reads it, and those that are read with it.

        Raises
        ------
        StorageError
            Its own features cannot be read.
        """
        if not self._done:
            self._read(max(1, self._group_size().n_batches))
        result = self._done.popleft()
        if isinstance(result, StorageError):
            raise result
        return result.batch, result.fetched

    def _read(self, n_batches: int) -> None:
        group = [self._announced.popleft() for _ in range(n_batches)]
        self.last_group = n_batches
        for _ in group:
            self._window.pop()
        results: list[_Result | StorageError] = []
        try:
            results += self._read_group(group)
        except StorageError as error:
            if n_batches == 1:
                raise
            logger.warning("%s; %d mini-batches are read one by one", error, n_batches)
            results += self._read_one_by_one(group)
        if self._accumulator is not None:
            self._accumulator.observe(sum(each.reads for each in results if isinstance(each, _Result)))
        self._done.extend(results)

    def _read_one_by_one(self, group: Sequence[_Announced]) -> list[_Result | StorageError]:
        """So that an error reaches the mini-batch that needs the bytes, and none before it."""
        results: list[_Result | StorageError] = []
        try:
            for each in group:
                results += self._read_group([each])
        except StorageError as error:
            results.append(error)
        return results

    def _group_size(self) -> GroupSize:
        if self._accumulator is None:
            return GroupSize(min(1, len(self._announced)), len(self._announced) > 0)
        return self._accumulator.extend([each.plan.member for each in self._announced])

    def _read_group(self, group: Sequence[_Announced]) -> list[_Result]:
        tables = self._store.tables
        uses = [self._next_uses(each.entry) for each in group]
        tensors: list[dict[str, torch.Tensor]] = [{} for _ in group]
        counts: list[dict[str, FetchCounts]] = [{} for _ in group]
        for name in tables:
            parts, shares = self._read_table(name, group, [use[name] for use in uses])
            for i in range(len(group)):
                tensors[i][name], counts[i][name] = parts[i], shares[i]
        reads = sum(each.reads for part in counts for each in part.values())
        self._store.settled = self._store.keeps_all and reads == 0
        return [
            _Result(each.plan.batch, Fetched(part, cost))
            for each, part, cost in zip(group, tensors, counts, strict=True)
        ]

    def _next_uses(self, entry: WindowEntry) -> dict[str, Uses]:
        if self._store.keeps_all:
            return {name: np.full(len(rows), HORIZON, np.uint64) for name, rows in entry.rows.items()}
        beyond = {name: self._forecast.estimates(name, rows) for name, rows in entry.rows.items()}
        return self._window.next_uses(entry, beyond)

    def _read_table(
        self, name: str, group: Sequence[_Announced], uses: Sequence[Uses]
    ) -> tuple[list[torch.Tensor], list[FetchCounts]]:
        """Rows of all mini-batches of the group from one table; what that cost, divided among them."""
        table = self._store.tables[name]
        ends = np.cumsum([0, *(len(each.rows[name]) for each in group)])
        tensor = self._pool.empty(int(ends[-1]), table.row_shape, table.dtype)
        out = _as_bytes(tensor, table.row_bytes)
        request = _request(name, group, uses, ends)
        before = table.counts()
        if name in self._store.buffers:
            self._store.buffers[name].copy(request.constant_places, out, request.constant_out)
        if len(request.rows):
            request = request.in_order(self._reading_order(name, request, group))
            table.read(request.rows, out, request.out_rows, request.uses)
        cost = _difference(table.counts(), before)
        if table.in_memory:
            shares = [FetchCounts.of(len(each.rows[name])) for each in group]
        else:
            stored = [len(each.entry.rows[name]) for each in group]
            constant = [len(each.rows[name]) - n for each, n in zip(group, stored, strict=True)]
            shares = divided(cost, stored, constant)
        return [tensor[begin:end] for begin, end in itertools.pairwise(ends.tolist())], shares

    def _reading_order(self, name: str, request: _Request, group: Sequence[_Announced]) -> RowIds | None:
        """Pages in rising order, so that near ones become one read; None: in the order asked for."""
        table, rules = self._store.tables[name], self._store.storage.rules
        if table.in_memory or rules.merge_bytes == rules.page_bytes or self._store.settled:
            return None
        pages = group[0].entry.pages.get(name)
        if len(group) == 1 and table.row_bytes >= rules.page_bytes and pages is not None:
            return pages.by_first
        return np.argsort(request.rows, kind="stable")

    def close(self) -> None:
        """Forget what was announced and not read."""
        # Other loaders share the tables: nothing of theirs is forgotten after an iteration that read it all.
        unread = len(self._announced) > 0 or len(self._window) > 0
        self._announced.clear()
        self._done.clear()
        if unread:
            self._window = Window()
            for table in self._store.tables.values():
                table.forget()


@dataclass(frozen=True, eq=False)
class _Request:
    """What a group asks of one table; positions are rows of the tensor of the whole group."""

    rows: RowIds
    out_rows: RowIds | None
    uses: Uses
    constant_places: RowIds
    constant_out: RowIds

    def in_order(self, order: RowIds | None) -> _Request:
        """The same with stored rows in another order."""
        if order is None:
            return self
        out_rows = order if self.out_rows is None else self.out_rows[order]
        return replace(self, rows=self.rows[order], out_rows=out_rows, uses=self.uses[order])


def _request(
    name: str, group: Sequence[_Announced], uses: Sequence[Uses], ends: npt.NDArray[np.int64]
) -> _Request:
    rows = [each.entry.rows[name] for each in group]
    divisions = [each.divisions.get(name) for each in group]
    none = np.empty(0, np.int64)
    stored_out: list[RowIds] = []
    places, constant_out = [none], [none]
    for division, begin in zip(divisions, ends, strict=False):
        if division is not None:
            stored_out.append(division.stored_out + begin)
            places.append(division.constant_places)
            constant_out.append(division.constant_out + begin)
    # Without a constant buffer all rows are stored, and the tensors follow each other as the requests do.
    out_rows = np.concatenate(stored_out) if stored_out else None
    return _Request(
        np.concatenate(rows),
        out_rows,
        np.concatenate(uses),
        np.concatenate(places),
        np.concatenate(constant_out),
    )


def _as_bytes(tensor: torch.Tensor, row_bytes: int) -> Bytes:
    flat: npt.NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return flat.reshape(len(tensor), row_bytes)


def _difference(now: FetchCounts, before: FetchCounts) -> FetchCounts:
    return FetchCounts(*(getattr(now, each) - getattr(before, each) for each in FetchCounts.__annotations__))
