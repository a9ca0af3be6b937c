"""A model of an SSD: an engine that answers no faster than the device it describes."""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from ctypes import POINTER, byref, c_double, c_int64, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from bam.errors import ClosedError, ConfigError
from bam.native import function
from bam.storage.native import NativeEngine, create

_QUANTILES = 1024


class LatencyDistribution(ABC):
    """How long a read takes once it is its turn."""

    @abstractmethod
    def quantiles_us(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Latency (microseconds) below which each of `probabilities` of the reads stay."""


@dataclass(frozen=True)
class LognormalLatency(LatencyDistribution):
    """``fixed_us`` plus a lognormal part of median ``median_us`` and shape ``sigma``."""

    fixed_us: float
    median_us: float = 0.0
    sigma: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed_us", "median_us", "sigma"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ConfigError(name, value, "0 or more")

    def quantiles_us(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        deviations = np.array([NormalDist().inv_cdf(p) for p in probabilities])
        return self.fixed_us + self.median_us * np.exp(self.sigma * deviations)


@dataclass(frozen=True)
class PercentileLatency(LatencyDistribution):
    """Latencies measured at some percentiles, straight lines between them, as data sheets give them.

    Attributes
    ----------
    us_at_percent : mapping
        Percent (0 to 100) to microseconds; at least one, not falling.
    """

    us_at_percent: Mapping[float, float]

    def __post_init__(self) -> None:
        percents = sorted(self.us_at_percent)
        latencies = [self.us_at_percent[percent] for percent in percents]
        in_range = bool(percents) and percents[0] >= 0 and percents[-1] <= 100 and latencies[0] >= 0
        if not in_range or latencies != sorted(latencies):
            raise ConfigError(
                "us_at_percent", self.us_at_percent, "percents of 0 to 100 with rising latencies"
            )

    def quantiles_us(self, probabilities: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        percents = sorted(self.us_at_percent)
        latencies = [self.us_at_percent[percent] for percent in percents]
        return np.interp(100 * probabilities, percents, latencies)


@dataclass(frozen=True)
class SsdModel:
    """What a device can do.

    Attributes
    ----------
    iops : float
        Reads a second, however small.
    bytes_per_s : float
        Bytes a second, however large the reads.
    latency : LatencyDistribution
    queue_depth : int
        Most reads the device works on at a time. 0: no limit.

    Raises
    ------
    ConfigError
    """

    iops: float
    bytes_per_s: float
    latency: LatencyDistribution
    queue_depth: int = 0

    def __post_init__(self) -> None:
        for name in ("iops", "bytes_per_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(name, getattr(self, name), "above 0")
        if not 0 <= self.queue_depth < 2**32:
            raise ConfigError("queue_depth", self.queue_depth, "0 (no limit) or more")


class LatencyEngine(NativeEngine):
    """A native engine, slowed down to the speed of `model`; all channels share the device.

    Reads are served in the order they are submitted. Waiting costs no system call for each read.

    Parameters
    ----------
    inner : NativeEngine
        Stays open when this one closes.
    model : SsdModel
    seed : int
        Of the latencies, which depend on it and on the number of the read alone.
    manual_clock : bool
        No real time passes: the clock jumps to the next completion waited for. For tests of the model,
        and of what runs on it, with one thread.
    """

    def __init__(
        self, inner: NativeEngine, model: SsdModel, *, seed: int = 0, manual_clock: bool = False
    ) -> None:
        middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        quantiles_ns = np.round(model.latency.quantiles_us(middles) * 1000).astype(np.uint64)
        settings = _Settings(
            1e12 / model.iops, 1e12 / model.bytes_per_s, model.queue_depth, manual_clock, seed
        )
        types = [c_void_p, POINTER(_Settings), c_void_p, c_uint32]
        arguments = (inner.handle, byref(settings), quantiles_ns.ctypes.data, _QUANTILES)
        super().__init__(create("bam_latency_engine_create", types, *arguments), [inner])

    def now_ns(self) -> int:
        """The model's clock; 0 when the engine was made."""
        now = function("bam_latency_engine_now_ns", c_int64, [c_void_p])(self.handle)
        if now < 0:
            raise ClosedError("engine 'latency'")
        return int(now)


class _Settings(ctypes.Structure):
    """`bam::LatencySettings`."""

    _fields_ = [
        ("read_ps", c_double),
        ("byte_ps", c_double),
        ("queue_depth", c_uint32),
        ("manual_clock", c_uint32),
        ("seed", c_uint64),
    ]
