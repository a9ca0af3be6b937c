"""Counters and histograms against plain counting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bam
from bam.native import available
from bam.storage.monitored import MonitoredEngine
from gids.bench.distinct import DistinctNodes
from gids.bench.loaders import LOADERS, LoaderData, Work
from gids.bench.measured import Measured, StepTimes
from gids.bench.observe import (
    MAX_POINTS,
    EngineRecorder,
    ProcessCounters,
    _thinned,
    anonymous_bytes,
    latency_histogram,
    peak_rss_bytes,
)
from gids.bench.sources import BatchPlan
from gids.config import RunConfig
from gids.graph.schema import Schema


def _bucket(latency_ns: int) -> int:
    """As the engine counts: each ns up to 15, then 16 steps an octave."""
    if latency_ns < 16:
        return latency_ns
    power = latency_ns.bit_length() - 1
    return 16 * (power - 3) + (latency_ns >> (power - 4)) - 16


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 10**11), max_size=30))
def test_histogram_keeps_every_read_in_its_step(latencies_ns: list[int]) -> None:
    buckets = np.zeros(976, np.uint64)
    for latency in latencies_ns:
        buckets[_bucket(latency)] += 1
    histogram = latency_histogram(buckets)
    upper = np.array(histogram["upper_us"]) * 1000
    expected = np.zeros(len(upper))
    for latency in latencies_ns:
        expected[np.searchsorted(upper, max(latency, 16), side="right")] += 1
    assert histogram["reads"] == expected.tolist()
    assert sum(histogram["reads"]) == len(latencies_ns)


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_recorder_sees_the_reads_between_its_ends(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(4096 * 8, dtype=np.int64).reshape(-1, 8))
    monitors: list[MonitoredEngine] = []

    def wrap(engine: bam.storage.engine.Engine) -> MonitoredEngine:
        monitors.append(MonitoredEngine(engine))
        return monitors[-1]

    with bam.open_array(tmp_path / "rows.npy", engine="file", cache="16 lines", wrap=wrap) as array:
        array.gather(np.arange(0, 512, 64))
        before = array.stats()
        with EngineRecorder(monitors) as recorder:
            array.gather(np.arange(2000, 4000, 64))
        read = array.stats() - before
    report = recorder.report()
    assert report is not None
    assert (report["reads"], report["errors"]) == (read.reads, 0)
    assert sum(report["latency_histogram"]["reads"]) == read.reads
    assert list(report["latency_us"]) == ["p50", "p90", "p99", "p99.9"]
    assert len(report["in_flight"]["t_s"]) == len(report["in_flight"]["reads"])


def test_recorder_without_engines() -> None:
    with EngineRecorder([]) as recorder:
        pass
    assert recorder.report() is None


def test_thinned_values_keep_their_mean() -> None:
    values = list(np.random.default_rng(0).random(MAX_POINTS * 4))
    thin = _thinned(values)
    assert len(thin) == MAX_POINTS
    assert np.isclose(np.mean(thin), np.mean(values))
    assert _thinned([]) == []


def test_process_counters(tmp_path: Path) -> None:
    assert 0 < anonymous_bytes() <= peak_rss_bytes()
    before = ProcessCounters.now()
    assert sum(number * number for number in range(10**5)) > 0
    assert (ProcessCounters.now() - before).cpu_s > 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=30), max_size=6))
def test_distinct_nodes_are_counted_once(batches: list[list[int]]) -> None:
    distinct = DistinctNodes(Schema({"a": 41, "b": 41}, [("a", "to", "b")]))
    for ids in batches:
        distinct.add({"a": np.array(ids, np.int64), "b": np.array(ids[:2], np.int64)})
    firsts = {each for ids in batches for each in ids[:2]}
    assert len(distinct) == len({each for ids in batches for each in ids}) + len(firsts)


def test_measured_sums(data: LoaderData, config: RunConfig) -> None:
    plan = BatchPlan({"paper": np.arange(128)}, (4, 3), 64)
    measured = Measured({"paper": 96, "author": 96}, DistinctNodes(data.dataset.graph.schema))
    with LOADERS["in-memory"](data, config) as loader:
        batches = list(loader.deliver(Work(plan)).epoch(0))
    for batch in batches:
        timed = replace(batch, sample_s=0.25, feature_wait_s=0.5, copy_s=0.25, adapt_s=0.125)
        measured.add(timed, StepTimes(wait_s=1.0, device_wait_s=0.25, compute_s=2.0, busy_s=1.4375), None)
    result = measured.result(ProcessCounters(4096, 1, 0.5))
    assert (result["steps"], result["end_to_end_s"], result["compute_s"]) == (2, 2 * 2.875, 4.0)
    assert (result["sample_s"], result["feature_wait_s"], result["adapt_s"]) == (0.5, 1.5, 0.25)
    assert (result["copy_s"], result["busy_s"], result["busy_share"]) == (0.5, 2.875, 0.5)
    nodes = [batch.sampled.nodes[name] for batch in batches for name in ("paper", "author")]
    assert result["rows_requested"] == sum(map(len, nodes))
    distinct = [
        np.unique(np.concatenate([batch.sampled.nodes[name] for batch in batches]))
        for name in ("paper", "author")
    ]
    assert result["rows_distinct"] == sum(map(len, distinct))
    assert result["process"] == {"device_bytes_read": 4096, "major_faults": 1, "cpu_s": 0.5}
