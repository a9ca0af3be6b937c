"""Window, foresight, constant buffer, forecast and accumulator, each on and off: the same bytes, and counts
as predicted.

    GIDS_MODEL_EXAMPLES=1000 python -m pytest tests/gids/fetch/test_combinations.py

draws a thousand random traces instead of a few.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bam
from bam.cache.page_cache import PolicyKind
from bam.cache.reference import ReferenceCache
from bam.native import available
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

EXAMPLES = int(os.environ.get("GIDS_MODEL_EXAMPLES", "5"))
PAGE = 512
RULES = ReadRules(PAGE, 4 * PAGE, PAGE)
SSD = SsdFacts(iops=1000.0, latency_us=1000.0)
BUDGET = 60_000
DATA = {
    "a": np.random.default_rng(0).integers(-128, 128, (150, 700), np.int8),
    "b": np.random.default_rng(1).integers(-128, 128, (300, 64), np.int8),
}
#: window, constant buffer, forecast, accumulator, foresight
COMBINATIONS = list(itertools.product((0, 4), (False, True), (False, True), (False, True), (0, 3)))

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")

Batches = list[dict[str, np.ndarray]]


class Nodes:
    """As much of a mini-batch as reading features needs."""

    def __init__(self, nodes: dict[str, np.ndarray]) -> None:
        self.nodes = nodes


def requests_of(batches: Batches) -> ExpectedRequests:
    """Counts of this very trace, though not of where in it the requests are."""
    levels = {}
    for name, rows in DATA.items():
        counts = np.bincount(np.concatenate([batch[name] for batch in batches]), minlength=len(rows))
        levels[name] = levels_of_counts(counts.astype(float))
    return ExpectedRequests(HotnessMethod.MEASURED, len(batches), 1, 0.2, levels, {})


class Run:
    """A loader's fetch stages over fresh tables, with some of the techniques."""

    def __init__(
        self,
        batches: Batches,
        lines: int,
        window: int,
        constant: bool,
        forecast: bool,
        accumulate: bool,
        foresight: int,
    ) -> None:
        shared = bam.SharedCache(f"{lines} lines", policy="look_ahead_global", page_bytes=PAGE)
        tables = {
            name: StoredTable(
                name,
                bam.open_array(each, cache=shared, page_bytes=PAGE, merge_bytes=4 * PAGE, bridge_bytes=PAGE),
            )
            for name, each in DATA.items()
        }
        buffers = {}
        if constant:
            buffers["a"] = ConstantBuffer(tables["a"], np.arange(0, 150, 7), load=False)
            for _ in buffers["a"].fill(lambda rows, out: np.copyto(out, DATA["a"][rows].view(np.uint8))):
                pass
        requests = requests_of(batches) if forecast else None
        model = StorageModel(SSD, RULES)
        store = FeatureStore(tables, buffers, model, requests=requests)
        accumulator = Accumulator(model, BUDGET, 0.9) if accumulate else None
        fetcher = Fetcher(
            store,
            OutputPool(),
            accumulator,
            Forecast(tables, requests, len(batches)) if forecast else None,
        )
        if foresight:
            fetcher.look_beyond(Foresight(map(Nodes, batches), ForesightDepth(foresight)))
        waiting, self.bytes = [Nodes(batch) for batch in batches], []
        self.counts: dict[str, FetchCounts] = {}
        while waiting or len(fetcher):
            while waiting and fetcher.wants_more(window):
                fetcher.announce(waiting.pop(0))
            fetched = fetcher.fetch()[1]
            self.bytes.append({name: tensor.numpy().tobytes() for name, tensor in fetched.tensors.items()})
            self.counts = merged(self.counts, fetched.counts)
        fetcher.close()
        store.close()


def predicted(
    batches: Batches,
    lines: int,
    window: int,
    constant: bool,
    forecast: bool,
    accumulate: bool,
    foresight: int,
) -> FetchModel:
    row_bytes = {name: each.shape[1] for name, each in DATA.items()}
    plain_forecast = None
    if forecast:
        requests = requests_of(batches)
        counts = {name: counts_of_levels()[each].tolist() for name, each in requests.levels.items()}
        plain_forecast = PlainForecast(counts, requests.dispersion, row_bytes, PAGE, len(batches))
    model = FetchModel(
        row_bytes,
        {name: len(each) for name, each in DATA.items()},
        ReferenceCache(lines, PAGE, PolicyKind.LOOK_AHEAD_GLOBAL, 0),
        RULES,
        PlainAccumulator(RULES, None, SSD.reads_needed(0.9), BUDGET) if accumulate else None,
        {"a": set(range(0, 150, 7))} if constant else None,
        plain_forecast,
    )
    model.run([{name: ids.tolist() for name, ids in batch.items()} for batch in batches], window, foresight)
    return model


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 20, 40, 100, 300]))
def test_counts_are_as_predicted_and_bytes_are_the_same(seed: int, lines: int) -> None:
    """Of one random trace, in all combinations."""
    random = np.random.default_rng(seed)
    skew = random.integers(1, 5)
    batches = [
        {
            name: np.unique((len(each) * random.random(random.integers(0, 50)) ** skew).astype(np.int64))
            for name, each in DATA.items()
        }
        for _ in range(random.integers(1, 8))
    ]
    check_all(batches, lines)


def check_all(batches: Batches, lines: int) -> None:
    expected = [{name: DATA[name][ids].tobytes() for name, ids in batch.items()} for batch in batches]
    for combination in COMBINATIONS:
        run = Run(batches, lines, *combination)
        assert run.bytes == expected, combination
        model = predicted(batches, lines, *combination)
        for name, counted in run.counts.items():
            asked = sum(len(batch[name]) for batch in batches)
            held = set(range(0, 150, 7)) if combination[1] and name == "a" else set()
            constant = sum(len(held & set(batch[name].tolist())) for batch in batches)
            foretold = model.counts[name]
            assert counted == FetchCounts(
                rows_requested=asked,
                rows_constant=constant,
                rows_cache=foretold["rows_hit"],
                rows_joined=foretold["rows_joined"],
                rows_storage=foretold["rows_storage"],
                pages_requested=foretold["pages"],
                pages_hit=foretold["hits"],
                pages_joined=foretold["joins"],
                pages_read=foretold["misses"],
                pages_bypassed=foretold["bypasses"],
                reads=foretold["reads"],
                bytes_read=foretold["bytes_read"],
                bytes_useful=foretold["bytes_useful"],
            ), (combination, name)


def test_recorded_requests_of_the_reddit_graph(shared_data: Path) -> None:
    """The first ones of a recorded trace, as rows of both tables."""
    trace = np.load(shared_data / "trace-reddit-quiver" / "25_10_workload.npy").ravel()[:600]
    batches = [
        {"a": np.unique(part % 150).astype(np.int64), "b": np.unique(part % 300).astype(np.int64)}
        for part in np.array_split(trace, 8)
    ]
    check_all(batches, 40)
