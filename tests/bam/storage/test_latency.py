"""The model of an SSD, on its own clock: what it says does not depend on how fast the test runs."""

from __future__ import annotations

import numpy as np
import pytest
from engine_contract import random_bytes

from bam.errors import ConfigError
from bam.layout import Layout
from bam.native import available
from bam.storage import (
    LatencyEngine,
    LognormalLatency,
    NativeMemoryEngine,
    PercentileLatency,
    SsdModel,
    read_ranges,
)
from bam.storage.latency import LatencyDistribution

native = pytest.mark.skipif(not available(), reason="the native library was not built")

CONTENT = random_bytes(2**20, 1)
FAST = LognormalLatency(60)


def elapsed_us(model: SsdModel, n_reads: int, n_bytes: int, depth: int, seed: int = 0) -> float:
    """Time the model takes for reads of which `depth` are kept in flight; checks their bytes."""
    offsets = [i * n_bytes % (len(CONTENT) - n_bytes + 1) for i in range(n_reads)]
    with (
        NativeMemoryEngine([CONTENT]) as inner,
        LatencyEngine(inner, model, seed=seed, manual_clock=True) as engine,
    ):
        layout = Layout.single("f", 0, len(CONTENT))
        reads = read_ranges(engine, layout, offsets, [n_bytes] * n_reads, depth=depth)
        assert not any(reads.errors)
        for offset, found in zip(offsets[:50], reads.bytes[:50], strict=False):
            assert (found == CONTENT[offset : offset + n_bytes]).all()
        return engine.now_ns() / 1000


@native
class TestModel:
    def test_one_read_at_a_time_takes_its_latency(self) -> None:
        assert elapsed_us(SsdModel(3e6, 12.5e9, FAST), 100, 4096, depth=1) == pytest.approx(6000, rel=0.01)

    def test_many_reads_reach_the_rate(self) -> None:
        """3 M reads a second need 180 in flight at 60 us."""
        taken = elapsed_us(SsdModel(3e6, 12.5e9, FAST), 6000, 4096, depth=512)
        assert 6000 / taken == pytest.approx(3.0, rel=0.05)

    def test_too_few_in_flight_do_not(self) -> None:
        taken = elapsed_us(SsdModel(3e6, 12.5e9, FAST), 3000, 4096, depth=60)
        assert 3000 / taken == pytest.approx(1.0, rel=0.05)

    def test_large_reads_are_limited_by_bandwidth(self) -> None:
        taken = elapsed_us(SsdModel(3e6, 12.5e9, FAST), 2000, 65536, depth=64)
        assert 2000 * 65536 / taken == pytest.approx(12_500, rel=0.05)

    def test_the_devices_queue_limits_what_is_in_flight(self) -> None:
        taken = elapsed_us(SsdModel(3e6, 12.5e9, FAST, queue_depth=30), 3000, 4096, depth=512)
        assert 3000 / taken == pytest.approx(0.5, rel=0.05)

    @pytest.mark.parametrize(
        ("latency", "mean_us"),
        [
            (LognormalLatency(10, 50, 0.5), 10 + 50 * np.exp(0.125)),
            (PercentileLatency({0: 20, 50: 60, 100: 140}), (20 + 60) / 4 + (60 + 140) / 4),
            (PercentileLatency({50: 80}), 80),
        ],
    )
    def test_latencies_follow_the_distribution(self, latency: LatencyDistribution, mean_us: float) -> None:
        taken = elapsed_us(SsdModel(1e9, 1e15, latency), 4000, 64, depth=1)
        assert taken / 4000 == pytest.approx(mean_us, rel=0.03)

    def test_the_same_seed_gives_the_same_times(self) -> None:
        model = SsdModel(1e6, 1e10, LognormalLatency(10, 50, 1.0))
        taken = [elapsed_us(model, 300, 512, depth=8, seed=seed) for seed in (1, 1, 2)]
        assert taken[0] == taken[1]
        assert taken[0] != taken[2]

    def test_a_real_clock_moves_by_itself(self) -> None:
        with (
            NativeMemoryEngine([CONTENT]) as inner,
            LatencyEngine(inner, SsdModel(3e6, 12.5e9, FAST)) as engine,
        ):
            first = engine.now_ns()
            reads = read_ranges(engine, Layout.single("f", 0, 4096), [0, 100], [512, 512])
            assert not any(reads.errors)
            assert engine.now_ns() >= first + 60_000


@pytest.mark.parametrize(
    "make",
    [
        lambda: SsdModel(0, 1e9, FAST),
        lambda: SsdModel(1e6, float("inf"), FAST),
        lambda: SsdModel(1e6, 1e9, FAST, queue_depth=-1),
        lambda: LognormalLatency(-1),
        lambda: LognormalLatency(1, 1, float("nan")),
        lambda: PercentileLatency({}),
        lambda: PercentileLatency({50: 10, 99: 5}),
        lambda: PercentileLatency({101: 10}),
    ],
)
def test_models_that_cannot_be(make: object) -> None:
    assert callable(make)
    with pytest.raises(ConfigError):
        make()
