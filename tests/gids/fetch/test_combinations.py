"""Window, foresight, constant buffer, forecast, accumulator and merged reads, each on and off: the same
bytes, and counts as predicted.

    GIDS_MODEL_EXAMPLES=1000 python -m pytest tests/gids/fetch/test_combinations.py

draws a thousand random traces instead of a few, each for all combinations; `experiments/window/models.py`
takes the combinations in turn, and a graph's mini-batches.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.native import available
from gids.bench.model_check import HostTracePath, Techniques, Trace, all_combinations, differences, predict

EXAMPLES = int(os.environ.get("GIDS_MODEL_EXAMPLES", "3"))
PAGE = 512
TABLES = {
    "a": np.random.default_rng(0).integers(-128, 128, (150, 700), np.int8),
    "b": np.random.default_rng(1).integers(-128, 128, (300, 64), np.int8),
}
CONSTANT = {"a": np.arange(0, 150, 7)}
COMBINATIONS = all_combinations(window=4, foresight=3)

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def trace_of(batches: list[dict[str, np.ndarray]], lines: int) -> Trace:
    return Trace(TABLES, batches, CONSTANT, lines, PAGE, budget_bytes=60_000)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 20, 40, 100, 300]))
def test_counts_are_as_predicted_and_bytes_are_the_same(seed: int, lines: int) -> None:
    """Of one random trace, in all combinations."""
    random = np.random.default_rng(seed)
    skew = random.integers(1, 5)
    batches = [
        {
            name: np.unique((len(each) * random.random(random.integers(0, 50)) ** skew).astype(np.int64))
            for name, each in TABLES.items()
        }
        for _ in range(random.integers(1, 8))
    ]
    check_all(trace_of(batches, lines))


def check_all(trace: Trace) -> None:
    for techniques in COMBINATIONS:
        assert differences(trace, techniques, HostTracePath()) == [], techniques


def test_all_combinations_are_tried() -> None:
    assert len(set(COMBINATIONS)) == 2**6
    assert {Techniques(), Techniques(4, 3, True, True, True, True)} <= set(COMBINATIONS)


def test_a_difference_is_found() -> None:
    """The check itself can fail: on other bytes, and on counts of another cache."""
    trace = trace_of([{"a": np.arange(9), "b": np.arange(9)}] * 2, 20)
    path = HostTracePath()
    other = replace(trace, tables={name: rows + np.int8(1) for name, rows in TABLES.items()})

    class Other(HostTracePath):
        def read(self, trace: Trace, techniques: Techniques) -> object:  # type: ignore[override]
            return path.read(other, techniques)

    assert any("other bytes of 'a'" in each for each in differences(trace, Techniques(), Other()))
    smaller = replace(trace, lines=1)
    assert predict(smaller, Techniques()) != predict(trace, Techniques())


def test_recorded_requests_of_the_reddit_graph(shared_data: Path) -> None:
    """The first ones of a recorded trace, as rows of both tables."""
    trace = np.load(shared_data / "trace-reddit-quiver" / "25_10_workload.npy").ravel()[:600]
    batches = [
        {"a": np.unique(part % 150).astype(np.int64), "b": np.unique(part % 300).astype(np.int64)}
        for part in np.array_split(trace, 8)
    ]
    check_all(trace_of(batches, 40))
