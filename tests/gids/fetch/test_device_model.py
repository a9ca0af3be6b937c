"""Reads that must be under way, by the model and by the published form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.fetch.device_model import SsdFacts, published_reads_needed


def test_the_published_number_for_one_optane_drive() -> None:
    # An Optane P5800X at 4 KiB: 11 us, 20 us of system, 5.8 thousand MiB/s, for 95 % of its peak.
    needed = published_reads_needed(0.95, 5.8, 4096, ssd_us=11, system_us=20, n_ssd=1)
    assert round(needed) == 854


@given(st.floats(0.01, 0.99), st.integers(1, 8), st.floats(1, 1000), st.floats(0.1, 20))
def test_both_forms_say_the_same(share: float, n_ssd: int, latency_us: float, bandwidth: float) -> None:
    iops = bandwidth * 1024 / 4096 * 1e6
    published = published_reads_needed(share, bandwidth, 4096, latency_us / 2, latency_us / 2, n_ssd)
    assert SsdFacts(iops, latency_us, n_ssd).reads_needed(share) == pytest.approx(published)


@given(st.floats(0.05, 0.99), st.floats(1e3, 1e7), st.floats(1, 1000))
def test_a_group_of_so_many_reads_reaches_the_share(share: float, iops: float, latency_us: float) -> None:
    needed = SsdFacts(iops, latency_us).reads_needed(share)
    seconds = needed / iops + latency_us / 1e6
    assert needed / seconds == pytest.approx(share * iops)


@pytest.mark.parametrize(("iops", "latency_us", "n_ssd"), [(0, 1, 1), (1, -1, 1), (1, 1, 0)])
def test_facts_that_cannot_be(iops: float, latency_us: float, n_ssd: int) -> None:
    with pytest.raises(ConfigError):
        SsdFacts(iops, latency_us, n_ssd)


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5])
def test_a_share_that_cannot_be_reached(share: float) -> None:
    with pytest.raises(ConfigError, match="peak_share"):
        SsdFacts(1e6, 10).reads_needed(share)
