"""How many reads must be under way for a device to run near its peak.

A group of N reads that is submitted at once and awaited takes N / peak + latency: the device works for the
first part and waits for the second. So the share of the peak that is reached is N / (N + peak * latency), and

    N = p / (1 - p) * peak * latency

reads reach the share p. Source: the storage access accumulator of GIDS (Park et al., VLDB 2024), which puts
the peak as bandwidth over page size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from bam.errors import ConfigError

#: Share of a device's peak that is aimed at.
PEAK_SHARE = 0.95
_MIB_PER_GIB = 1024


@dataclass(frozen=True)
class SsdFacts:
    """What the model needs to know of the storage.

    Attributes
    ----------
    iops : float
        Peak of one device at reads of one page, per second.
    latency_us : float
        Fixed part of a read's latency, software included: one read at a time takes that long.
    n_ssd : int
        Devices that the reads are spread over.

    Raises
    ------
    ConfigError
    """

    iops: float
    latency_us: float
    n_ssd: int = 1

    def __post_init__(self) -> None:
        for name in ("iops", "latency_us", "n_ssd"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(name, getattr(self, name), "a number above 0")

    def reads_needed(self, share: float = PEAK_SHARE) -> float:
        """Reads under way that reach `share` of the peak of all devices together."""
        return _odds(share) * self.iops * self.n_ssd * self.latency_us / 1e6


#: Without a calibration: a usual NVMe drive.
USUAL_SSD = SsdFacts(iops=500_000, latency_us=100)


def published_reads_needed(
    share: float, bandwidth: float, page_bytes: int, ssd_us: float, system_us: float, n_ssd: int
) -> float:
    """The same number by the published form, with its units.

    Parameters
    ----------
    share : float
    bandwidth : float
        Of one device, in thousands of MiB/s: times 1024 over the page size it is reads per microsecond.
    page_bytes : int
    ssd_us, system_us : float
        Latency of the device, and of the way to it.
    n_ssd : int
    """
    reads_per_us = bandwidth * _MIB_PER_GIB / page_bytes
    return _odds(share) * reads_per_us * (ssd_us + system_us) * n_ssd


def _odds(share: float) -> float:
    if not 0 < share < 1:
        raise ConfigError("peak_share", share, "a share above 0 and below 1")
    return share / (1 - share)
