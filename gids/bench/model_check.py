"""Reads recorded mini-batches with some of the techniques, and compares every count with the plain model's.

What reads is behind :class:`TracePath`, so that a path other than the host's is held against the same model.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

import bam
from bam.array.sources import MemorySource
from bam.cache.page_cache import PolicyKind
from bam.cache.reference import ReferenceCache
from gids.fetch.accumulator import Accumulator
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.counts import FetchCounts, merged
from gids.fetch.device_model import SsdFacts
from gids.fetch.expected_requests import ExpectedRequests, HotnessMethod, counts_of_levels, levels_of_counts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetch_model import FetchModel, PlainAccumulator, PlainForecast
from gids.fetch.fetcher import Fetcher
from gids.fetch.forecast import Forecast
from gids.fetch.foresight import Foresight, ForesightDepth
from gids.fetch.output_pool import OutputPool
from gids.fetch.read_plan import ReadRules
from gids.fetch.storage_model import StorageModel
from gids.fetch.table import StoredTable

#: A device that groups of some mini-batches keep busy.
SSD = SsdFacts(iops=1000.0, latency_us=1000.0)
PEAK_SHARE = 0.9
DISPERSION = 0.2

RowIds = npt.NDArray[np.int64]
#: Distinct rows of each table, in the order asked for.
Batch = Mapping[str, RowIds]


@dataclass(frozen=True)
class Techniques:
    """Which are on.

    Attributes
    ----------
    window, foresight : int
        Mini-batches.
    constant, forecast, accumulate, contiguous : bool
        Constant buffer, estimates beyond the window, several mini-batches together, merged reads.
    """

    window: int = 0
    foresight: int = 0
    constant: bool = False
    forecast: bool = False
    accumulate: bool = False
    contiguous: bool = False


def all_combinations(window: int, foresight: int) -> list[Techniques]:
    """Each technique on and off."""
    choices = [(0, window), (0, foresight), *[(False, True)] * 4]
    return [Techniques(*cast(Any, each)) for each in itertools.product(*choices)]


@dataclass(frozen=True, eq=False)
class Trace:
    """What is read, from where, through how large a cache.

    Attributes
    ----------
    tables : mapping of str to array, shape (rows, row bytes)
    batches : sequence of mapping of str to int64 array
    constant : mapping of str to int64 array
        Rows of constant buffers, where those are on; ascending.
    lines, page_bytes : int
        Of the cache.
    budget_bytes : int
        Of features that may be read together.
    """

    tables: Mapping[str, npt.NDArray[Any]]
    batches: Sequence[Batch]
    constant: Mapping[str, RowIds]
    lines: int
    page_bytes: int
    budget_bytes: int

    def rules(self, techniques: Techniques) -> ReadRules:
        """Which pages become one read."""
        if techniques.contiguous:
            return ReadRules(self.page_bytes, 4 * self.page_bytes, self.page_bytes)
        return ReadRules.page_by_page(self.page_bytes)

    def requests(self) -> ExpectedRequests:
        """Counts of this very trace, though not of where in it the requests are."""
        levels = {}
        for name, rows in self.tables.items():
            asked = np.concatenate([batch[name] for batch in self.batches])
            levels[name] = levels_of_counts(np.bincount(asked, minlength=len(rows)).astype(float))
        return ExpectedRequests(HotnessMethod.MEASURED, len(self.batches), 1, DISPERSION, levels, {})


@dataclass(frozen=True, eq=False)
class Delivered:
    """Bytes of each mini-batch's rows by table, and what all of them cost."""

    features: Sequence[Mapping[str, npt.NDArray[np.uint8]]]
    counts: Mapping[str, FetchCounts]


class TracePath(ABC):
    """Something that reads traces."""

    @abstractmethod
    def read(self, trace: Trace, techniques: Techniques) -> Delivered:
        """Read all mini-batches, from an empty cache."""

    @abstractmethod
    def predict(self, trace: Trace, techniques: Techniques) -> dict[str, FetchCounts]:
        """What the plain model foretells, by table."""


class HostTracePath(TracePath):
    """The loader's own stages on the host."""

    def read(self, trace: Trace, techniques: Techniques) -> Delivered:
        requests = trace.requests() if techniques.forecast else None
        model = StorageModel(SSD, trace.rules(techniques))
        store = _open_store(trace, techniques, requests, model)
        accumulator = Accumulator(model, trace.budget_bytes, PEAK_SHARE) if techniques.accumulate else None
        forecast = Forecast(store.tables, requests, len(trace.batches)) if techniques.forecast else None
        fetcher = Fetcher(store, OutputPool(), accumulator, forecast)
        if techniques.foresight:
            depth = ForesightDepth(techniques.foresight)
            fetcher.look_beyond(Foresight(iter(_sampled(trace)), depth))
        try:
            return delivered_by(fetcher, _sampled(trace), techniques.window)
        finally:
            fetcher.close()
            store.close()

    def predict(self, trace: Trace, techniques: Techniques) -> dict[str, FetchCounts]:
        return predict(trace, techniques)


def delivered_by(fetcher: Any, waiting: list[Any], window: int) -> Delivered:
    """What a fetcher of either path makes of an epoch's mini-batches."""
    features: list[dict[str, npt.NDArray[np.uint8]]] = []
    counts: dict[str, FetchCounts] = {}
    while waiting or len(fetcher):
        while waiting and fetcher.wants_more(window):
            fetcher.announce(fetcher.plan(waiting.pop(0)))
        fetched = fetcher.fetch()[1]
        # Copies: the memory of the tensors is used again.
        features.append(
            {name: np.array(each.cpu().numpy()).view(np.uint8) for name, each in fetched.tensors.items()}
        )
        counts = merged(counts, fetched.counts)
    return Delivered(features, counts)


def _sampled(trace: Trace) -> list[Any]:
    """As much of mini-batches as reading features needs."""
    return [SimpleNamespace(nodes=batch) for batch in trace.batches]


def _open_store(
    trace: Trace, techniques: Techniques, requests: ExpectedRequests | None, model: StorageModel
) -> FeatureStore:
    cache = bam.SharedCache(
        f"{trace.lines} lines", policy=PolicyKind.LOOK_AHEAD_GLOBAL.value, page_bytes=trace.page_bytes
    )
    tables, buffers = {}, {}
    for name, rows in trace.tables.items():
        array = bam.open_array(
            MemorySource(rows),
            cache=cache,
            page_bytes=trace.page_bytes,
            merge_bytes=model.rules.merge_bytes,
            bridge_bytes=model.rules.bridge_bytes,
        )
        tables[name] = StoredTable(name, array)
        if techniques.constant and name in trace.constant:
            buffers[name] = ConstantBuffer(tables[name], trace.constant[name], load=False)
            for _ in buffers[name].fill(copier(rows)):
                pass
    return FeatureStore(tables, buffers, model, requests=requests)


def copier(rows: npt.NDArray[Any]) -> Any:
    """What fills constant buffers with these rows."""

    def copy(ids: RowIds, out: npt.NDArray[np.uint8]) -> None:
        np.copyto(out, rows[ids].view(np.uint8))

    return copy


def plain_counts(trace: Trace) -> dict[str, list[float]]:
    """Requests that the trace's epoch is expected to make for each row."""
    return {name: counts_of_levels()[each].tolist() for name, each in trace.requests().levels.items()}


def predict(trace: Trace, techniques: Techniques) -> dict[str, FetchCounts]:
    """What the plain model foretells of the host's path, by table."""
    row_bytes = {name: rows.itemsize * rows.shape[1] for name, rows in trace.tables.items()}
    rules, forecast, accumulator = trace.rules(techniques), None, None
    if techniques.forecast:
        sizes = (row_bytes, trace.page_bytes, len(trace.batches))
        forecast = PlainForecast(plain_counts(trace), DISPERSION, *sizes)
    if techniques.accumulate:
        accumulator = PlainAccumulator(rules, None, SSD.reads_needed(PEAK_SHARE), trace.budget_bytes)
    held = {name: set(rows.tolist()) for name, rows in trace.constant.items()} if techniques.constant else {}
    model = FetchModel(
        row_bytes,
        {name: len(rows) for name, rows in trace.tables.items()},
        ReferenceCache(trace.lines, trace.page_bytes, PolicyKind.LOOK_AHEAD_GLOBAL, 0),
        rules,
        accumulator,
        held,
        forecast,
    )
    batches = [{name: ids.tolist() for name, ids in batch.items()} for batch in trace.batches]
    model.run(batches, techniques.window, techniques.foresight)
    foretold = {}
    for name, counts in model.counts.items():
        asked = [row for batch in batches for row in batch[name]]
        constant = sum(row in held.get(name, ()) for row in asked)
        foretold[name] = FetchCounts(
            rows_requested=len(asked),
            rows_constant=constant,
            rows_cache=counts["rows_hit"],
            rows_joined=counts["rows_joined"],
            rows_storage=counts["rows_storage"],
            pages_requested=counts["pages"],
            pages_hit=counts["hits"],
            pages_joined=counts["joins"],
            pages_read=counts["misses"],
            pages_bypassed=counts["bypasses"],
            reads=counts["reads"],
            bytes_read=counts["bytes_read"],
            bytes_useful=counts["bytes_useful"],
        )
    return foretold


def differences(trace: Trace, techniques: Techniques, path: TracePath) -> list[str]:
    """Where rows or counts are not as they must be; empty: nowhere."""
    delivered, foretold = path.read(trace, techniques), path.predict(trace, techniques)
    found = []
    for number, (batch, features) in enumerate(zip(trace.batches, delivered.features, strict=True)):
        for name, ids in batch.items():
            rows = np.ascontiguousarray(trace.tables[name][ids]).view(np.uint8)
            if not np.array_equal(features[name], rows.reshape(features[name].shape)):
                found.append(f"mini-batch {number}: other bytes of {name!r}")
    for name, expected in foretold.items():
        counted = delivered.counts.get(name, FetchCounts())
        for each in fields(FetchCounts):
            mine, theirs = getattr(counted, each.name), getattr(expected, each.name)
            if mine != theirs:
                found.append(f"{name!r}: {mine:,} {each.name}, {theirs:,} foretold")
    return found
