"""Reads the features of mini-batches that were sampled on a GPU, looking ahead over those that follow.

The counterpart of :mod:`gids.fetch.fetcher`: the same window, the same next uses. All of it is queued on the
store's stream; the host only waits for the mini-batch that it hands out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from bam.array.device_group import DeviceGroupGather, GroupCounts
from bam.cache.device.gpu import DeviceTensor
from bam.errors import BamError
from gids.fetch.counts import FetchCounts
from gids.fetch.cuda.ahead import ReadAhead
from gids.fetch.cuda.next_uses import NextUses, WindowPages
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.cuda.streams import Streams
from gids.fetch.cuda.tables import GpuTable
from gids.fetch.fetcher import Fetched
from gids.fetch.forecast import EpochProgress
from gids.fetch.foresight import ForesightDepth
from gids.fetch.window import HORIZON, UNKNOWN_USE
from gids.fetch.window_size import WindowSize, parse_window
from gids.sampling.tensor_batch import TensorBatch

NO_FORESIGHT = ForesightDepth(0)
#: Mini-batches that foresight announces for each that is handed out: the first one waits for none of them.
FORESIGHT_PACE = 2


@dataclass(frozen=True, eq=False)
class GpuPlan:
    """Where the features of a mini-batch lie. Tensors were made on the stream that samples.

    Attributes
    ----------
    batch : TensorBatch
    rows : int64 tensor
        Of all tables, in the store's order.
    firsts : tuple of int
        Where the rows of each table begin; then their end.
    out_rows : int64 tensor, optional
        Place of each row among those of its table in the mini-batch; None: rows are in its order.
    pages : int64 tensor, optional
        Rising; None where nothing is looked ahead for.
    feature_bytes : int
    ready : object
        Mark after all of it.
    """

    batch: TensorBatch
    rows: torch.Tensor
    firsts: tuple[int, ...]
    out_rows: torch.Tensor | None
    pages: torch.Tensor | None
    feature_bytes: int
    ready: object

    @property
    def n_pages(self) -> int:
        """Pages of its rows; one that several rows lie in counts for each."""
        return 0 if self.pages is None else len(self.pages)


@dataclass(frozen=True, eq=False)
class _Announced:
    plan: GpuPlan
    number: int


@dataclass(frozen=True, eq=False)
class _Begun:
    plan: GpuPlan
    gather: DeviceGroupGather
    tensors: Mapping[str, torch.Tensor]


class GpuFetcher:
    """Reads mini-batches in the order they were announced; one for each iteration.

    :meth:`plan` is called by the thread that samples, everything else by the one that reads.

    Parameters
    ----------
    store : GpuFeatureStore
    streams : Streams
        Of this iteration.
    ahead : ReadAhead
    window : int or WindowSize
        Mini-batches beyond the one that is begun next which are announced before it.
    n_batches : int
        Mini-batches of the iteration, the last ones of an epoch of `of_batches`.
    foresight : ForesightDepth
        How much farther than the window the cache knows pages. A sampled mini-batch takes little of a GPU's
        memory, so none is sampled twice, as on the host: they wait.

    Attributes
    ----------
    last_group : int
        1: each mini-batch is handed out when it is there.
    """

    last_group = 1

    def __init__(
        self,
        store: GpuFeatureStore,
        streams: Streams,
        ahead: ReadAhead,
        window: int | WindowSize,
        n_batches: int,
        of_batches: int,
        foresight: ForesightDepth = NO_FORESIGHT,
    ) -> None:
        self._store, self._streams, self._ahead = store, streams, ahead
        self._window = parse_window(window, 0)
        self._foresight = foresight
        if foresight.max_pages is None and foresight.max_batches:
            self._foresight = ForesightDepth(foresight.max_batches + self._window.max_batches)
        self._stored = [table for table in store.ordered if not table.in_memory]
        self._sorts = store.merges and len(self._stored) > 0
        self._looks_ahead = not store.keeps_all and len(self._stored) > 0
        self._announced: deque[_Announced] = deque()
        self._announced_bytes = self._announced_pages = 0  # of those
        self._begun: deque[_Begun] = deque()
        self._to_foresee = FORESIGHT_PACE  # mini-batches, before the next is handed out
        self._uses: NextUses | None = None
        if self._looks_ahead:
            progress = EpochProgress(store.requests, n_batches, of_batches)
            with streams.reading("gids open"):
                self._uses = NextUses(
                    store.group.store.gpu,
                    self._stored,
                    store.page_bytes,
                    store.requests,
                    progress,
                    store.device,
                )

    def __len__(self) -> int:
        """Mini-batches announced and not yet handed out."""
        return len(self._announced) + len(self._begun)

    def wants_more(self, window: int | WindowSize) -> bool:
        """Whether another mini-batch is to be announced before the next one is waited for."""
        if len(self._begun) < self._depth() or not self._window_is_full():
            return True
        return self._to_foresee > 0 and self._sees_farther()

    def plan(self, batch: TensorBatch) -> GpuPlan:
        """Find out where its features lie, on the stream that samples."""
        with self._streams.sampling("gids plan"):
            parts = [table.rows_of(batch.nodes[table.name]) for table in self._store.ordered]
            places = None
            if self._sorts and not self._store.settled:
                # Pages in rising order, so that near ones are asked for together and become one read.
                found = [torch.sort(part) for part in parts]
                parts, places = [each.values for each in found], torch.cat([each.indices for each in found])
            rows = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=self._store.device)
            firsts = np.cumsum([0, *map(len, parts)]).tolist()
            sizes = zip(parts, self._store.ordered, strict=True)
            feature_bytes = sum(len(part) * table.row_bytes for part, table in sizes)
            pages = self._pages(parts) if self._looks_ahead else None
            return GpuPlan(batch, rows, tuple(firsts), places, pages, feature_bytes, self._streams.mark())

    def _pages(self, parts: list[torch.Tensor]) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for table, rows in zip(self._store.ordered, parts, strict=True):
            if not table.in_memory:
                found += table.pages_of(rows, self._store.page_bytes)
        return torch.sort(torch.cat(found)).values

    def announce(self, plan: GpuPlan) -> None:
        """The mini-batch will be read after all that were announced before it."""
        number = self._store.next_number()
        with self._streams.reading("gids announce"):
            self._streams.follow(plan.ready)
            if self._uses is not None:
                self._uses.announce(plan.rows, plan.firsts[: len(self._stored) + 1])
                stored = self._parts(plan)[: len(self._stored)]
                self._store.note_next_use(
                    {table.name: _device_tensor(part) for table, part in stored}, number
                )
        self._announced.append(_Announced(plan, number))
        if self._window_is_full():
            self._to_foresee -= 1
        self._announced_bytes += plan.feature_bytes
        self._announced_pages += plan.n_pages
        self._begin_what_may()

    def fetch(self) -> tuple[TensorBatch, Fetched]:
        """The mini-batch that was announced first, when its features are there.

        Raises
        ------
        StorageError, WaitTimeout
            Its own features cannot be read.
        """
        while self._announced and len(self._begun) < self._depth():
            self._begin(self._announced.popleft())
        under_way, begun = len(self._begun), self._begun.popleft()
        self._to_foresee = FORESIGHT_PACE
        with self._streams.waiting("gids wait"):
            begun.gather.wait()
            if not len(begun.plan.rows):  # no gather has waited for the sampling
                self._streams.wait(begun.plan.ready)
        found = begun.gather.counts()
        counts = {
            name: _counts(found.get(name), table, self._store.page_bytes)
            for name, table in self._store.tables.items()
        }
        reads = sum(each.reads for each in counts.values())
        self._store.settled = self._store.keeps_all and reads == 0
        self._ahead.observe(under_way, reads)
        return begun.plan.batch, Fetched(begun.tensors, counts)

    def close(self) -> None:
        """Wait for what was begun and forget what was announced."""
        unread = len(self) > 0
        while self._begun:
            try:
                self._begun.popleft().gather.wait()
            except BamError:  # nobody waits for these rows any more
                continue
        self._announced.clear()
        if unread and self._looks_ahead:
            self._store.group.forget_next_uses(HORIZON, UNKNOWN_USE)

    def _begin_what_may(self) -> None:
        while self._announced and len(self._begun) < self._depth() and self._window_is_full():
            self._begin(self._announced.popleft())

    def _depth(self) -> int:
        known = self._announced[0] if self._announced else None
        plan = known.plan if known is not None else self._begun[0].plan if self._begun else None
        if plan is None:
            return 1
        return self._ahead.depth(plan.feature_bytes, len(plan.rows))

    def _window_is_full(self) -> bool:
        """Beyond the mini-batch that is begun next."""
        if not self._announced:
            return False
        n_bytes = self._announced_bytes - self._announced[0].plan.feature_bytes
        return not self._window.wants_more(len(self._announced) - 1, n_bytes)

    def _sees_farther(self) -> bool:
        """Whether mini-batches beyond the window are worth to be known."""
        if not self._looks_ahead or not self._announced:
            return False
        n_pages = self._announced_pages - self._announced[0].plan.n_pages
        return self._foresight.wants_more(len(self._announced) - 1, n_pages)

    def _begin(self, announced: _Announced) -> None:
        plan = announced.plan
        self._announced_bytes -= plan.feature_bytes
        self._announced_pages -= plan.n_pages
        with self._streams.reading("gids submit"):
            next_use = None
            if self._uses is not None:
                uses = self._uses.find(plan.rows, plan.firsts[: len(self._stored) + 1], self._later())
                next_use = {
                    table.name: _device_tensor(uses[begin:end], np.uint64)
                    for table, begin, end in self._places(plan)
                }
            tensors = {
                table.name: torch.empty((len(part), *table.row_shape), dtype=table.dtype, device=part.device)
                for table, part in self._parts(plan)
            }
            gather = self._store.begin(
                {table.name: _device_tensor(part) for table, part in self._parts(plan)},
                {name: _device_bytes(tensor) for name, tensor in tensors.items()},
                next_use,
                None if plan.out_rows is None else self._slices(plan, plan.out_rows),
            )
        self._begun.append(_Begun(plan, gather, tensors))

    def _later(self) -> list[WindowPages]:
        return [
            WindowPages(each.number, each.plan.pages)
            for each in self._announced
            if each.plan.pages is not None
        ]

    def _places(self, plan: GpuPlan) -> Iterator[tuple[GpuTable, int, int]]:
        """Where the rows of each table begin and end; stored ones first."""
        return zip(self._store.ordered, plan.firsts, plan.firsts[1:], strict=False)

    def _slices(self, plan: GpuPlan, numbers: torch.Tensor) -> dict[str, DeviceTensor]:
        return {table.name: _device_tensor(numbers[begin:end]) for table, begin, end in self._places(plan)}

    def _parts(self, plan: GpuPlan) -> list[tuple[GpuTable, torch.Tensor]]:
        return [(table, plan.rows[begin:end]) for table, begin, end in self._places(plan)]


def _device_tensor(tensor: torch.Tensor, dtype: npt.DTypeLike = np.int64) -> DeviceTensor:
    """Numbers of 8 bytes, without the detour over DLPack."""
    return DeviceTensor(tensor.data_ptr(), tuple(tensor.shape), np.dtype(dtype), tensor)


def _device_bytes(tensor: torch.Tensor) -> DeviceTensor:
    return DeviceTensor(tensor.data_ptr(), (tensor.nbytes,), np.dtype(np.uint8), tensor)


def _counts(found: GroupCounts | None, table: GpuTable, page_bytes: int) -> FetchCounts:
    if found is None:
        return FetchCounts()
    stored = found.rows_hit + found.rows_joined + found.rows_read
    pages_read = found.pages_claimed + found.pages_bypassed
    return FetchCounts(
        rows_requested=found.rows_resident + found.rows_constant + stored,
        rows_constant=found.rows_resident + found.rows_constant,
        rows_cache=found.rows_hit,
        rows_joined=found.rows_joined,
        rows_storage=found.rows_read,
        pages_requested=found.pages_hit + found.pages_joined + pages_read,
        pages_hit=found.pages_hit,
        pages_joined=found.pages_joined,
        pages_read=pages_read,
        pages_bypassed=found.pages_bypassed,
        reads=pages_read,
        bytes_read=pages_read * page_bytes,
        bytes_useful=stored * table.row_bytes,
        rows_resident=found.rows_resident,
    )
