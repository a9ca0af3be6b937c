"""Checks of what a fetcher on a GPU counts, for the emulated one and a real one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bam.cache.page_cache import PolicyKind
from gids.bench.gpu_model_check import GpuTracePath
from gids.bench.model_check import Delivered, Techniques, Trace, TracePath, all_combinations, differences
from gids.bench.random_traces import FORESIGHT, GPU_TABLES, LINES, WINDOW, random_trace
from gids.fetch.counts import FetchCounts

EXAMPLES = int(os.environ.get("GIDS_MODEL_EXAMPLES", "24"))
#: One warp looks up, or (False) as many as the GPU's grid has.
OpenPath = Callable[[PolicyKind, bool], GpuTracePath]
GLOBAL = PolicyKind.LOOK_AHEAD_GLOBAL
#: Whatever the order in which pages find room.
ALWAYS_EXACT = ("rows_requested", "rows_constant", "rows_resident", "pages_requested", "bytes_useful")


def check_random_traces(open_path: OpenPath) -> None:
    """Bytes are the tables', and every counter is foretold, whatever is on and however small the cache is."""

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.integers(0, 2**32),
        st.sampled_from(LINES),
        st.sampled_from(all_combinations(WINDOW, FORESIGHT)),
        # The one that a loader with a window has, half of the time.
        st.sampled_from([*PolicyKind, GLOBAL, GLOBAL, GLOBAL]),
    )
    def check(seed: int, lines: int, techniques: Techniques, policy: PolicyKind) -> None:
        trace = random_trace(GPU_TABLES, seed, lines)
        assert differences(trace, techniques, open_path(policy, True)) == []

    check()


def busy_trace(lines: int) -> Trace:
    """Of ten random ones that with most requests."""
    traces = [random_trace(GPU_TABLES, seed, lines) for seed in range(10)]
    return max(traces, key=lambda each: sum(len(ids) for batch in each.batches for ids in batch.values()))


def total(counts: Mapping[str, FetchCounts]) -> FetchCounts:
    """Of all tables."""
    return sum(counts.values(), FetchCounts())


def check_pages_are_given_up(open_path: OpenPath) -> None:
    """What is foretold has all of it: pages read again, or for nobody else; mini-batches grouped."""
    trace, path = busy_trace(20), open_path(GLOBAL, True)
    alone = total(path.predict(trace, Techniques(window=WINDOW)))
    kept = total(path.predict(replace(trace, lines=10_000), Techniques(window=WINDOW)))
    assert alone.pages_requested == kept.pages_requested
    assert alone.pages_read > 1.5 * kept.pages_read
    assert min(alone.pages_hit, alone.pages_joined, alone.pages_bypassed) > 0
    together = total(path.predict(trace, Techniques(accumulate=True, contiguous=True)))
    assert together.pages_requested < alone.pages_requested


def check_a_difference_is_found(open_path: OpenPath) -> None:
    """The check itself can fail: on counts of another cache."""
    trace, path = busy_trace(40), open_path(GLOBAL, True)

    class Smaller(TracePath):
        def read(self, trace: Trace, techniques: Techniques) -> Delivered:
            return path.read(replace(trace, lines=20), techniques)

        def predict(self, trace: Trace, techniques: Techniques) -> dict[str, FetchCounts]:
            return path.predict(trace, techniques)

    found = differences(trace, Techniques(), Smaller())
    assert any("pages_read" in each for each in found)
    assert not any("rows_requested" in each for each in found)


def check_many_warps(open_path: OpenPath) -> None:
    """What does not follow from the order is foretold for any number of warps, and the rest nearly."""
    trace, techniques = busy_trace(40), Techniques(window=WINDOW, constant=True, forecast=True)
    path = open_path(GLOBAL, False)
    counted, foretold = path.read(trace, techniques).counts, path.predict(trace, techniques)
    for name, expected in foretold.items():
        mine = counted[name]
        for counter in ALWAYS_EXACT:
            assert getattr(mine, counter) == getattr(expected, counter), (name, counter)
        assert mine.pages_hit + mine.pages_joined + mine.pages_read == expected.pages_requested
        assert (
            mine.rows_cache + mine.rows_joined + mine.rows_storage == mine.rows_requested - mine.rows_constant
        )
    assert total(counted).pages_read == pytest.approx(total(foretold).pages_read, rel=0.1)
