"""Reads the features of mini-batches that were sampled on a GPU, looking ahead over those that follow.

The counterpart of :mod:`gids.fetch.fetcher`: the same window, the same next uses. All of it is queued on the
store's stream; the host only waits for the mini-batch that it hands out.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch

from bam.array.device_group import DeviceGroupGather, GroupCounts
from bam.cache.device.gpu import DeviceTensor
from bam.errors import BamError, StorageError
from gids.fetch.accumulator import GroupMember, GroupSize
from gids.fetch.counts import FetchCounts
from gids.fetch.cuda.ahead import ReadAhead
from gids.fetch.cuda.grouping import GROUPS, Grouping
from gids.fetch.cuda.next_uses import NextUses, WindowPages
from gids.fetch.cuda.plan import GpuPlan
from gids.fetch.cuda.store import GpuFeatureStore, Tier
from gids.fetch.cuda.streams import Streams
from gids.fetch.cuda.tables import GpuTable
from gids.fetch.cuda.union import RowUnion, unite
from gids.fetch.fetcher import Fetched
from gids.fetch.forecast import EpochProgress
from gids.fetch.foresight import ForesightDepth
from gids.fetch.read_plan import Pages
from gids.fetch.window import HORIZON, UNKNOWN_USE
from gids.fetch.window_size import WindowSize, parse_window
from gids.sampling.tensor_batch import TensorBatch

logger = logging.getLogger(__name__)

NO_FORESIGHT = ForesightDepth(0)
#: Mini-batches that are announced for each that is handed out, while none may be begun.
FORESIGHT_PACE = 2


@dataclass(frozen=True, eq=False)
class _Announced:
    plan: GpuPlan
    number: int


@dataclass(frozen=True, eq=False)
class _Begun:
    """Mini-batches that are being read together, most often one.

    Attributes
    ----------
    plans : tuple of GpuPlan
    gather : DeviceGroupGather
    tensors : mapping of str to tensor
        Features of the one, or of the distinct rows of all.
    union : RowUnion, optional
        Of several.
    n_pages : int
        As :meth:`Grouping.begun`.
    """

    plans: tuple[GpuPlan, ...]
    gather: DeviceGroupGather
    tensors: Mapping[str, torch.Tensor]
    union: RowUnion | None
    n_pages: int


@dataclass(frozen=True, eq=False)
class _Read:
    """A mini-batch whose rows are there: number `place` of those that were read with it."""

    begun: _Begun
    place: int
    counts: Mapping[str, FetchCounts]

    @property
    def plan(self) -> GpuPlan:
        return self.begun.plans[self.place]


class GpuFetcher:
    """Reads mini-batches in the order they were announced; one for each iteration.

    :meth:`plan` is called by the thread that samples, everything else by the one that reads.

    Parameters
    ----------
    store : GpuFeatureStore
    streams : Streams
        Of this iteration.
    ahead : ReadAhead
    grouping : Grouping
        Which are read together.
    window : int or WindowSize
        Mini-batches beyond those that are begun next which are announced before them.
    n_batches : int
        Mini-batches of the iteration, the last ones of an epoch of `of_batches`.
    foresight : ForesightDepth
        How much farther than the window the cache knows pages. A sampled mini-batch takes little of a GPU's
        memory, so none is sampled twice, as on the host: they wait.

    Attributes
    ----------
    last_group : int
        1: of those that were read together, each gets memory of its own when it is handed out.
    """

    last_group = 1

    def __init__(
        self,
        store: GpuFeatureStore,
        streams: Streams,
        ahead: ReadAhead,
        grouping: Grouping,
        window: int | WindowSize,
        n_batches: int,
        of_batches: int,
        foresight: ForesightDepth = NO_FORESIGHT,
    ) -> None:
        self._store, self._streams, self._ahead, self._grouping = store, streams, ahead, grouping
        self._window = parse_window(window, 0)
        self._foresight = foresight
        if foresight.max_pages is None and foresight.max_batches:
            self._foresight = ForesightDepth(foresight.max_batches + self._window.max_batches)
        self._stored = [table for table in store.ordered if not table.in_memory]
        self._sorts = store.merges and len(self._stored) > 0
        self._looks_ahead = not store.keeps_all and len(self._stored) > 0
        self._announced: deque[_Announced] = deque()
        self._begun: deque[_Begun] = deque()
        self._read: deque[_Read | BamError] = deque()
        self._to_foresee = FORESIGHT_PACE  # more may be announced before the next is handed out
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
        return len(self._announced) + self._n_under_way()

    def _n_under_way(self) -> int:
        return sum(len(each.plans) for each in self._begun) + len(self._read)

    def wants_more(self, window: int | WindowSize) -> bool:
        """Whether another mini-batch is to be announced before the next one is waited for."""
        if self._may_begin():
            return True
        # Nothing is begun for those now, so the next mini-batch is not kept waiting for all of them.
        return self._to_foresee > 0 and (not self._window_is_full() or self._sees_farther())

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
            member = GroupMember(self._pages_to_read(parts), feature_bytes)
            return GpuPlan(batch, rows, tuple(firsts), places, pages, member, self._streams.mark())

    def _pages_to_read(self, parts: list[torch.Tensor]) -> dict[str, Pages]:
        """Of rows that are not constant, some; whether they are cached only the GPU knows."""
        if not self._grouping.on or self._store.settled:
            return {}
        found: list[torch.Tensor] = []
        for table, rows in zip(self._store.ordered, parts, strict=True):
            if not table.in_memory:
                stored = rows[self._store.tiers_of(table, rows) == Tier.STORED.value]
                found += table.pages_of(stored, self._store.page_bytes)
        return {"": torch.unique(self._grouping.sampled(torch.cat(found))).cpu().numpy()}

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
                stored = self._slices(plan.rows, plan.firsts[: len(self._stored) + 1])
                self._store.note_next_use(stored, number)
        self._announced.append(_Announced(plan, number))
        if not self._may_begin():
            self._to_foresee -= 1
        while self._announced and self._may_begin() and self._window_is_full():
            self._begin_group()

    def fetch(self) -> tuple[TensorBatch, Fetched]:
        """The mini-batch that was announced first, when its features are there.

        Raises
        ------
        StorageError
            Its own features cannot be read.
        WaitTimeout
            Those that are read together do not arrive; the first of them says so.
        """
        while self._announced and self._may_begin():
            self._begin_group()
        under_way = self._n_under_way()
        self._to_foresee = FORESIGHT_PACE
        if not self._read:
            self._read_next()
        result = self._read.popleft()
        if isinstance(result, BamError):
            raise result
        self._ahead.observe(under_way, sum(each.reads for each in result.counts.values()))
        return result.plan.batch, Fetched(self._features(result), result.counts)

    def _read_next(self) -> None:
        """Wait for the mini-batches that were begun first."""
        begun = self._begun.popleft()
        try:
            self._read += self._finish(begun)
        except StorageError as error:
            if len(begun.plans) == 1:
                raise
            logger.warning("%s; %d mini-batches are read one by one", error, len(begun.plans))
            self._read += self._read_one_by_one(begun.plans)

    def _read_one_by_one(self, plans: Sequence[GpuPlan]) -> list[_Read | BamError]:
        """So that an error reaches the mini-batch that needs the bytes, and none before it."""
        results: list[_Read | BamError] = []
        try:
            for plan in plans:
                results += self._finish(self._begin((plan,), 0))
        except BamError as error:
            results.append(error)
        return results

    def _finish(self, begun: _Begun) -> list[_Read]:
        with self._streams.waiting("gids wait"):
            begun.gather.wait()
            if not len(begun.plans[0].rows):  # no gather has waited for the sampling
                self._streams.wait(begun.plans[0].ready)
        found = begun.gather.counts()
        counts = {
            name: _counts(found.get(name), table, self._store.page_bytes)
            for name, table in self._store.tables.items()
        }
        reads = sum(each.reads for each in counts.values())
        requested = sum(each.pages_requested for each in counts.values())
        self._store.mostly_kept = self._store.keeps_all and 2 * reads <= requested
        self._store.settled = self._store.keeps_all and reads == 0
        self._grouping.observe(begun.n_pages, reads)
        if begun.union is None:
            return [_Read(begun, 0, counts)]
        with self._streams.handing("gids counts"):
            shares = begun.union.shares(counts, self._store)
        return [_Read(begun, place, share) for place, share in enumerate(shares)]

    def _features(self, read: _Read) -> Mapping[str, torch.Tensor]:
        """Of a mini-batch that was read."""
        if read.begun.union is None:
            return read.begun.tensors
        with self._streams.handing("gids divide"):
            features = read.begun.union.divide(read.begun.tensors, self._store, read.place)
            self._streams.wait(self._streams.mark())
        return features

    def close(self) -> None:
        """Wait for what was begun and forget what was announced."""
        unread = len(self) > 0
        while self._begun:
            try:
                self._begun.popleft().gather.wait()
            except BamError:  # nobody waits for these rows any more
                continue
        self._announced.clear()
        self._read.clear()
        if unread and self._looks_ahead:
            self._store.group.forget_next_uses(HORIZON, UNKNOWN_USE)

    def _depth(self) -> int:
        """Mini-batches that are to be under way."""
        if self._announced:
            plan = self._announced[0].plan
        elif self._begun:
            plan = self._begun[0].plans[0]
        else:
            return 1
        return self._ahead.depth(plan.feature_bytes, len(plan.rows))

    def _may_begin(self) -> bool:
        groups = len(self._begun) + (len(self._read) > 0)
        return self._n_under_way() < self._depth() or (self._grouping.on and groups < GROUPS)

    def _group_size(self) -> GroupSize:
        """Of those that are announced, which are begun next."""
        if self._store.is_filling:  # or could not be filled: nobody could say how many rows are constant
            return GroupSize(min(1, len(self._announced)), len(self._announced) > 0)
        size = self._grouping.size
        # Asked several times for each mini-batch, and a complete group does not change.
        return (
            size if size.complete else self._grouping.extend([each.plan.member for each in self._announced])
        )

    def _beyond(self) -> list[GpuPlan]:
        """Mini-batches that are announced, but for those that are begun next."""
        return [each.plan for each in islice(self._announced, self._group_size().n_batches, None)]

    def _window_is_full(self) -> bool:
        """Beyond the mini-batches that are begun next."""
        if not self._group_size().complete:
            return False
        beyond = self._beyond()
        return not self._window.wants_more(len(beyond), sum(plan.feature_bytes for plan in beyond))

    def _sees_farther(self) -> bool:
        """Whether mini-batches beyond the window are worth to be known."""
        if not self._looks_ahead or not self._announced:
            return False
        beyond = self._beyond()
        return self._foresight.wants_more(len(beyond), sum(plan.n_pages for plan in beyond))

    def _begin_group(self) -> None:
        size = self._group_size().n_batches
        n_pages = self._grouping.begun()
        self._ahead.begun()
        self._begun.append(self._begin(tuple(self._announced.popleft().plan for _ in range(size)), n_pages))

    def _begin(self, plans: tuple[GpuPlan, ...], n_pages: int) -> _Begun:
        union, ready = None, plans[0].ready
        rows, firsts, out_rows = plans[0].rows, plans[0].firsts, plans[0].out_rows
        if len(plans) > 1:
            with self._streams.sampling("gids group"):
                union = unite(plans, self._store)
                rows, firsts, out_rows, ready = union.rows, union.firsts, None, self._streams.mark()
        with self._streams.reading("gids submit"):
            self._streams.follow(ready)
            next_use = None
            if self._uses is not None:
                uses = self._uses.find(rows, firsts[: len(self._stored) + 1], self._later())
                next_use = self._slices(uses, firsts, np.uint64)
            tensors = {
                table.name: torch.empty(
                    (end - begin, *table.row_shape), dtype=table.dtype, device=rows.device
                )
                for table, begin, end in self._places(firsts)
            }
            gather = self._store.begin(
                self._slices(rows, firsts),
                {name: _device_bytes(tensor) for name, tensor in tensors.items()},
                next_use,
                None if out_rows is None else self._slices(out_rows, firsts),
            )
        return _Begun(plans, gather, tensors, union, n_pages)

    def _later(self) -> list[WindowPages]:
        return [
            WindowPages(each.number, each.plan.pages)
            for each in self._announced
            if each.plan.pages is not None
        ]

    def _places(self, firsts: Sequence[int]) -> Iterator[tuple[GpuTable, int, int]]:
        """Where the rows of each table begin and end; stored ones first."""
        return zip(self._store.ordered, firsts, firsts[1:], strict=False)

    def _slices(
        self, numbers: torch.Tensor, firsts: Sequence[int], dtype: npt.DTypeLike = np.int64
    ) -> dict[str, DeviceTensor]:
        return {
            table.name: _device_tensor(numbers[begin:end], dtype)
            for table, begin, end in self._places(firsts)
        }


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
