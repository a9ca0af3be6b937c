"""What the monitor counts."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from engine_contract import random_bytes, run_threads

from bam.errors import ClosedError
from bam.native import available
from bam.storage import (
    FaultKind,
    FaultRule,
    LatencyEngine,
    LognormalLatency,
    MonitoredEngine,
    NativeFaultEngine,
    NativeMemoryEngine,
    ReadSpan,
    SsdModel,
)
from bam.storage.buffers import aligned_buffer
from bam.storage.monitored import _bucket_end_ns

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")

CONTENT = random_bytes(10_000, 1)


def read(engine: MonitoredEngine, n_reads: int, length: int = 100) -> list[int]:
    spans = [ReadSpan(0, i * length % len(CONTENT), length) for i in range(n_reads)]
    return engine.read(spans, list(aligned_buffer(n_reads * length).reshape(n_reads, length)))


def test_reads_bytes_errors_and_differences() -> None:
    rules = [
        FaultRule(FaultKind.ERROR, nth=2, errno=errno.EIO),
        FaultRule(FaultKind.SHORT_READ, nth=3, n_bytes=7),
    ]
    with NativeFaultEngine(NativeMemoryEngine([CONTENT]), rules) as inner, MonitoredEngine(inner) as engine:
        assert engine.snapshot().reads == 0
        results = read(engine, 10)
        first = engine.snapshot()
        assert (first.reads, first.bytes, first.errors) == (10, sum(r for r in results if r > 0), 1)
        assert int(first.latency_reads.sum()) == 10
        assert int(first.depth_ns.sum()) == first.elapsed_ns
        assert (first.in_flight, first.max_in_flight) == (0, 10)
        read(engine, 5)
        since = engine.snapshot() - first
        assert (since.reads, since.bytes, since.errors) == (5, 500, 0)
        assert int(since.latency_reads.sum()) == 5


def test_depth_and_latency_of_a_known_device() -> None:
    """The device is slower than any scheduling here by far, so its latency is the least that can be seen."""
    model = SsdModel(1e6, 1e12, LognormalLatency(20_000))
    with LatencyEngine(NativeMemoryEngine([CONTENT]), model) as inner, MonitoredEngine(inner) as engine:
        read(engine, 16)
        seen = engine.snapshot()
    assert seen.max_in_flight == 16
    assert 1 < seen.mean_in_flight_busy <= 16
    assert (
        seen.in_flight_ns == seen.latency_sum_ns
    )  # Little's law: both add up the time each read was in flight
    assert seen.mean_in_flight <= seen.mean_in_flight_busy
    assert seen.mean_latency_us >= 20_000
    p50, p90, p99, longest = (seen.latency_us(percent) for percent in (50, 90, 99, 100))
    assert 20_000 <= p50 <= p90 <= p99 <= longest == seen.max_latency_ns / 1000


def test_several_threads_add_up() -> None:
    with NativeMemoryEngine([CONTENT]) as inner, MonitoredEngine(inner) as engine:

        def work(_: int) -> None:
            for _ in range(20):
                assert read(engine, 50) == [100] * 50

        run_threads(work, 4)
        seen = engine.snapshot()
    assert (seen.reads, seen.bytes, seen.in_flight) == (4000, 400_000, 0)
    assert int(seen.latency_reads.sum()) == 4000


def test_nothing_read() -> None:
    with NativeMemoryEngine([CONTENT]) as inner, MonitoredEngine(inner) as engine:
        seen = engine.snapshot()
    assert (seen.mean_latency_us, seen.latency_us(99), seen.mean_in_flight_busy) == (0, 0, 0)
    with pytest.raises(ClosedError):
        engine.snapshot()


def test_latency_buckets_follow_each_other() -> None:
    ends = np.array([_bucket_end_ns(bucket) for bucket in range(976)], object)
    steps = ends[1:] - ends[:-1]
    assert (steps > 0).all()
    assert all(step <= max(1, end / 16) for step, end in zip(steps, ends[1:], strict=True))
    assert ends[-1] == 2**64 - 1
