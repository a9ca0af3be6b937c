"""Recorded mini-batches through a loader's stages on a GPU, and what their plain model foretells.

One warp looks all pages up, so that the order in which pages find room is known (device_submit.h); everything
else is as it always is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy.typing as npt
import torch

import bam
from bam.array.device_gather_model import DeviceGatherModel, PlainArray
from bam.array.device_group import DeviceGroup
from bam.array.sources import MemorySource
from bam.cache.device.gpu import Gpu, Grid
from bam.cache.page_cache import PolicyKind
from bam.cache.reference import ReferenceCache
from gids.bench.model_check import (
    DISPERSION,
    PEAK_SHARE,
    SSD,
    Delivered,
    Techniques,
    Trace,
    TracePath,
    copier,
    delivered_by,
    plain_counts,
)
from gids.fetch.cost_model import CostModel
from gids.fetch.counts import FetchCounts
from gids.fetch.cuda.ahead import ReadAhead
from gids.fetch.cuda.buffers import PlacedRows, hold_pinned, hold_resident
from gids.fetch.cuda.fetch_model import GpuFetchModel
from gids.fetch.cuda.fetcher import GpuFetcher
from gids.fetch.cuda.group_model import PlainAhead, PlainGrouping
from gids.fetch.cuda.grouping import Grouping
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.cuda.tables import GpuTable
from gids.fetch.fetch_model import PlainForecast
from gids.fetch.foresight import ForesightDepth
from gids.fetch.storage_model import StorageModel
from gids.fetch.table import MemoryTable
from gids.fetch.window import RowIds

#: Block 0 drains, and block 1 is the one warp that looks up.
ONE_WARP = Grid(2, 32)
#: Reads so dear that mini-batches are worth reading together.
COST = CostModel.linear(7.0, 0.4)
_FLIGHTS = 2


class GpuTracePath(TracePath):
    """The loader's own stages on a GPU.

    Parameters
    ----------
    make_gpu : callable
        A new one for each trace; owned by the store.
    device : torch.device
        Where its tensors are.
    policy : PolicyKind
    slots : int
        Pages of staging memory in each flight.
    one_warp : bool
        False: as many look up as the GPU's own grid has, and counts are not foretold exactly.
    """

    def __init__(
        self,
        make_gpu: Callable[[], Gpu],
        device: torch.device,
        policy: PolicyKind = PolicyKind.LOOK_AHEAD_GLOBAL,
        slots: int = 64,
        one_warp: bool = True,
    ) -> None:
        self._make_gpu, self._device, self._policy = make_gpu, device, policy
        self._slots, self._one_warp = slots, one_warp

    def read(self, trace: Trace, techniques: Techniques) -> Delivered:
        store = self._open(trace, techniques)
        fetcher = _fetcher(store, trace, techniques)
        waiting = [SimpleNamespace(nodes=self._on_device(batch)) for batch in trace.batches]
        store.group.store.gpu.mark().wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # streams of the fetcher do not wait for torch's own
        try:
            return delivered_by(fetcher, waiting, techniques.window)
        finally:
            fetcher.close()
            store.close()

    def predict(self, trace: Trace, techniques: Techniques) -> dict[str, FetchCounts]:
        budget = trace.budget_bytes if techniques.accumulate else 0
        rules, arrays = trace.rules(techniques), _plain_arrays(trace, techniques)
        cache = ReferenceCache(trace.lines, trace.page_bytes, self._policy)
        forecast = None
        if techniques.forecast:
            row_bytes = {name: each.row_bytes for name, each in arrays.items()}
            sizes = row_bytes, trace.page_bytes, len(trace.batches)
            forecast = PlainForecast(plain_counts(trace), DISPERSION, *sizes)
        model = GpuFetchModel(
            arrays,
            DeviceGatherModel(arrays, cache, _FLIGHTS, self._slots),
            trace.page_bytes,
            PlainAhead(SSD.reads_needed(PEAK_SHARE), budget),
            PlainGrouping(rules, COST if techniques.contiguous else None, budget),
            techniques.contiguous,
            forecast,
        )
        batches = [{name: ids.tolist() for name, ids in batch.items()} for batch in trace.batches]
        model.run(batches, techniques.window, techniques.foresight)
        return {name: FetchCounts(**found) for name, found in model.counts.items()}

    def _on_device(self, batch: Mapping[str, RowIds]) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(ids).to(self._device) for name, ids in batch.items()}

    def _open(self, trace: Trace, techniques: Techniques) -> GpuFeatureStore:
        gpu, rules = self._make_gpu(), trace.rules(techniques)
        if self._one_warp:
            gpu.grids["bam_submit_rows"] = ONE_WARP
        settings = bam.GpuSettings(
            queue_pairs=4,
            queue_slots=64,
            staging=_FLIGHTS * self._slots * trace.page_bytes,
            flights=_FLIGHTS,
            merge_bytes=rules.merge_bytes,
            bridge_bytes=rules.bridge_bytes,
        )
        group = bam.open_group(
            {name: MemorySource(rows) for name, rows in trace.tables.items()},
            cache=f"{trace.lines} lines",
            policy=self._policy,
            page_bytes=trace.page_bytes,
            gpu=settings,
            on=gpu,
        )
        tables = {name: self._table(group, trace, techniques, name) for name in trace.tables}
        pinned, resident = {}, {}
        for name, rows in _resident(trace, techniques).items():
            resident[name] = _filled(hold_resident(gpu, tables[name], rows), trace.tables[name])
        for name, rows in _pinned(trace, techniques).items():
            pinned[name] = _filled(hold_pinned(gpu, tables[name], rows), trace.tables[name])
        return GpuFeatureStore(
            group,
            list(tables.values()),
            self._device,
            pinned=pinned,
            resident=resident,
            storage=StorageModel(SSD, rules, COST if techniques.contiguous else None),
            keeps_all=False,
            requests=trace.requests() if techniques.forecast else None,
            load=None,
        )

    def _table(self, group: DeviceGroup, trace: Trace, techniques: Techniques, name: str) -> GpuTable:
        table, levels = MemoryTable(name, trace.tables[name]), None
        if techniques.forecast:
            levels = torch.from_numpy(trace.requests().levels[name]).to(self._device)
        shape, first = (table.n_rows, table.row_shape, table.dtype), group.first_byte(name)
        return GpuTable(name, *shape, first, in_memory=False, levels=levels)


def _fetcher(store: GpuFeatureStore, trace: Trace, techniques: Techniques) -> GpuFetcher:
    budget = trace.budget_bytes if techniques.accumulate else 0
    return GpuFetcher(
        store,
        store.streams(),
        ReadAhead(store.storage, budget, PEAK_SHARE),
        Grouping(store.storage, budget, store.n_pages, merges=store.merges),
        techniques.window,
        len(trace.batches),
        len(trace.batches),
        ForesightDepth(techniques.foresight),
    )


def _filled(placed: PlacedRows, rows: npt.NDArray[Any]) -> PlacedRows:
    for _ in placed.buffer.fill(copier(rows)):
        pass
    return placed


def _resident(trace: Trace, techniques: Techniques) -> dict[str, RowIds]:
    """Every other constant row."""
    return {name: rows[::2] for name, rows in trace.constant.items() if techniques.constant}


def _pinned(trace: Trace, techniques: Techniques) -> dict[str, RowIds]:
    return {name: rows[1::2] for name, rows in trace.constant.items() if techniques.constant}


def _plain_arrays(trace: Trace, techniques: Techniques) -> dict[str, PlainArray]:
    """Each from a page of its own."""
    resident, pinned = _resident(trace, techniques), _pinned(trace, techniques)
    found, first_page = {}, 0
    for name, rows in trace.tables.items():
        held = [set(each[name].tolist()) if name in each else set() for each in (resident, pinned)]
        found[name] = PlainArray(rows.itemsize * rows.shape[1], first_page * trace.page_bytes, *held)
        first_page += -(-rows.nbytes // trace.page_bytes)
    return found
