"""Opens features for a loader on a GPU: one cache for all node types, and the constant rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import bam
from bam.cache.device.gpu import Gpu
from bam.cache.geometry import MOST_STATE_BYTES
from bam.errors import ConfigError
from bam.storage.bulk.settings import Destination
from gids.fetch.buffer_load import BufferLoad
from gids.fetch.constant_buffer import parse_share
from gids.fetch.cuda.budget import check_budget, usable_bytes
from gids.fetch.cuda.buffers import PlacedRows, hold_pinned, hold_resident
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.cuda.structs import MAX_TABLES
from gids.fetch.cuda.tables import RowSource
from gids.fetch.expected_requests import ExpectedRequests, load_expected_of
from gids.fetch.memory import available_memory_bytes
from gids.fetch.open import FeatureSettings, rows_to_hold, start_load
from gids.fetch.read_plan import ReadRules
from gids.fetch.storage_model import storage_model
from gids.fetch.window import RowIds
from gids.graph.dataset import Dataset

#: Of a `cache` of "auto": this share of the memory that can be used.
AUTO_CACHE_SHARE = 0.5
#: Room for this many times the pages is enough for all of them, whichever sets they fall into. "auto" takes
#: little more than that.
SPARE = 1.25
AUTO_SPARE, AUTO_LEAST_BYTES = 1.3, 2**20


@dataclass(frozen=True)
class GpuFeatureSettings:
    """What a loader on a GPU has beside :class:`gids.fetch.open.FeatureSettings`.

    Attributes
    ----------
    features : FeatureSettings
        `cache` is of the GPU's memory, `cpu_buffer` of pinned host memory.
    gpu_buffer : int, str or float
        Constant rows in the GPU's memory, as `cpu_buffer`.
    read_path : bam.GpuSettings
        Queues, staging memory and threads of the controller.
    batch_bytes : int
        The GPU's memory that mini-batches under way take.
    """

    features: FeatureSettings = field(default_factory=FeatureSettings)
    gpu_buffer: int | str | float = 0
    read_path: bam.GpuSettings = field(default_factory=bam.GpuSettings)
    batch_bytes: int = 0


def row_sources(
    given: Dataset | Mapping[str, torch.Tensor | npt.NDArray[Any]] | None,
) -> dict[str, RowSource]:
    """Rows of each node type.

    Raises
    ------
    ConfigError
    """
    if given is None:
        return {}
    if isinstance(given, Dataset):
        return {name: RowSource.of_features(each) for name, each in given.features.items()}
    return {name: RowSource.of_rows(name, rows) for name, rows in given.items()}


def open_gpu_features(
    given: Dataset | Mapping[str, torch.Tensor | npt.NDArray[Any]] | None,
    settings: GpuFeatureSettings,
    device: torch.device,
    gpu: Gpu | None = None,
) -> GpuFeatureStore:
    """Features of all node types on a GPU. Rows in memory stay there, and the GPU reads them in place.

    Parameters
    ----------
    given : Dataset, or mapping of str to array or CPU tensor
    settings : GpuFeatureSettings
    device : torch.device
        With an index.
    gpu : Gpu, optional
        By default `device`, through CuPy. Owned by the store.

    Raises
    ------
    ConfigError, StorageError, EngineUnavailable
    GpuMemoryExceeded
        Before anything is made.
    """
    if gpu is None:
        from bam.cache.device.cupy_gpu import CupyGpu

        gpu = CupyGpu(device.index)
    try:
        opening = _Opening(given, settings, device, gpu)
        opening.check()
    except BaseException:
        gpu.close()
        raise
    return opening.open()


class _Opening:
    """One call of :func:`open_gpu_features`."""

    def __init__(
        self,
        given: Dataset | Mapping[str, torch.Tensor | npt.NDArray[Any]] | None,
        settings: GpuFeatureSettings,
        device: torch.device,
        gpu: Gpu,
    ) -> None:
        self._settings, self._device, self._gpu = settings, device, gpu
        self._dataset = given if isinstance(given, Dataset) else None
        self._sources = row_sources(given)
        self._stored = {name: each for name, each in self._sources.items() if each.rows is None}
        self._requests = self._load_requests()
        features = settings.features
        self._total_bytes = sum(each.n_rows * each.row_bytes for each in self._stored.values())
        self._pinned_bytes = self._buffer_bytes(features.cpu_buffer, "cpu_buffer")
        self._resident_bytes = self._buffer_bytes(settings.gpu_buffer, "gpu_buffer")
        self._table_bytes = sum(each.device_bytes(self._requests) for each in self._sources.values())
        self._free_bytes = gpu.free_bytes()
        self._cache_bytes = self._parse_cache()
        if self._cache_bytes >= self._total_bytes:  # all of it: the last page of each type, too
            self._cache_bytes = max(self._cache_bytes, self._n_pages() * features.page_bytes)

    def _load_requests(self) -> ExpectedRequests | None:
        return None if self._dataset is None else load_expected_of(self._dataset)

    def _buffer_bytes(self, value: int | str | float, name: str) -> int:
        if value == "auto":
            if name == "gpu_buffer":
                raise ConfigError(name, value, "bytes or a share of the features")
            return min(available_memory_bytes() // 4, self._total_bytes)
        return min(parse_share(value, self._total_bytes, name), self._total_bytes)

    def _parse_cache(self) -> int:
        if self._settings.features.cache != "auto":
            return parse_share(self._settings.features.cache, self._total_bytes, "cache")
        others = self._resident_bytes + self._table_bytes + self._settings.batch_bytes
        room = max(0, usable_bytes(self._free_bytes) - others)
        return min(int(AUTO_CACHE_SHARE * room), int(AUTO_SPARE * self._total_bytes) + AUTO_LEAST_BYTES)

    def _n_pages(self) -> int:
        page_bytes = self._settings.features.page_bytes
        return sum(-(-each.n_rows * each.row_bytes // page_bytes) for each in self._stored.values())

    def _keeps_all(self) -> bool:
        """Whether nothing is ever given up: sets are filled unevenly, so there must be room to spare."""
        return SPARE * self._n_pages() * self._settings.features.page_bytes <= self._cache_bytes

    def _in_place(self) -> dict[str, npt.NDArray[Any]]:
        """Rows in memory. Where there are no features at all, rows that nobody asks for: a store has some."""
        found = {name: each.rows for name, each in self._sources.items() if each.rows is not None}
        return found if self._sources else {"": np.zeros((1, 64), np.uint8)}

    def check(self) -> None:
        """Raise where it does not fit."""
        page_bytes = self._settings.features.page_bytes
        if len(self._stored) > MAX_TABLES and not self._keeps_all():
            expected = f"at most {MAX_TABLES} in files, where the cache does not hold all of them"
            raise ConfigError("features", f"{len(self._stored)} node types", expected)
        parts = {
            "cache": self._cache_bytes + MOST_STATE_BYTES * (self._cache_bytes // page_bytes),
            "gpu_buffer": self._resident_bytes,
            "node types (rank and hotness of their rows)": self._table_bytes,
            "batch_size, fanouts, prefetch, accumulate, window or foresight": self._settings.batch_bytes,
        }
        check_budget(parts, self._free_bytes)
        staging = self._settings.read_path.staging
        assert isinstance(staging, int)
        pinned, available = self._pinned_bytes + staging, available_memory_bytes()
        if pinned > available:
            expected = f"less: {pinned:,} bytes would be pinned, and {available:,} of memory are available"
            raise ConfigError("cpu_buffer", self._settings.features.cpu_buffer, expected)

    def open(self) -> GpuFeatureStore:
        """Everything is closed again if it fails."""
        features = self._settings.features
        model = storage_model(
            None if self._dataset is None else self._dataset.path,
            features.page_bytes,
            contiguous=features.contiguous,
            ssd=features.ssd,
            calibration=features.calibration,
        )
        group = bam.open_group(
            {name: each.features.source for name, each in self._stored.items() if each.features is not None},
            engine=features.engine,
            cache=max(self._cache_bytes, features.page_bytes),
            policy=features.policy,
            page_bytes=features.page_bytes,
            gpu=self._read_path(model.rules),
            wrap=features.wrap,
            in_place=self._in_place(),
            on=self._gpu,
        )
        load: BufferLoad | None = None
        try:
            pinned, resident = self._hold_rows()
            load = self._start_load(pinned, resident, model.bulk)
            tables = [
                each.to_gpu(group.first_byte(name), self._requests, self._device)
                for name, each in self._sources.items()
            ]
        except BaseException:
            if load is not None:
                load.stop()
            group.close()
            raise
        return GpuFeatureStore(
            group,
            tables,
            self._device,
            pinned=pinned,
            resident=resident,
            storage=model,
            keeps_all=self._keeps_all(),
            requests=self._requests,
            load=load,
        )

    def _read_path(self, rules: ReadRules) -> bam.GpuSettings:
        """As asked for; where nothing is said of merging, by what longer reads cost."""
        asked = self._settings.read_path
        if asked.merge_bytes or rules.merge_bytes <= rules.page_bytes:
            return asked
        return replace(asked, merge_bytes=rules.merge_bytes, bridge_bytes=rules.bridge_bytes)

    def _hold_rows(self) -> tuple[dict[str, PlacedRows], dict[str, PlacedRows]]:
        """The hottest rows in the GPU's memory, the next in pinned memory; both still to be filled."""
        if self._dataset is None or not self._resident_bytes + self._pinned_bytes:
            return {}, {}
        first = rows_to_hold(self._dataset, self._stored, self._requests, self._resident_bytes)
        both = rows_to_hold(
            self._dataset, self._stored, self._requests, self._resident_bytes + self._pinned_bytes
        )
        resident = {
            name: hold_resident(self._gpu, self._stored[name], rows)
            for name, rows in first.items()
            if len(rows)
        }
        pinned = {}
        for name, rows in both.items():
            others = _without(rows, first.get(name))
            if self._pinned_bytes and len(others):
                pinned[name] = hold_pinned(self._gpu, self._stored[name], others)
        return pinned, resident

    def _start_load(
        self,
        pinned: Mapping[str, PlacedRows],
        resident: Mapping[str, PlacedRows],
        measured: Mapping[Destination, bam.BulkSettings],
    ) -> BufferLoad | None:
        stored = {name: each.features for name, each in self._stored.items() if each.features is not None}
        buffers = [(name, placed.filled) for held in (resident, pinned) for name, placed in held.items()]
        return start_load(stored, buffers, self._settings.features, measured)


def _without(rows: RowIds, others: RowIds | None) -> RowIds:
    return rows if others is None or not len(others) else np.setdiff1d(rows, others, assume_unique=True)
