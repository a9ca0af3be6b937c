"""A wrapper that counts what goes through an engine, and measures depth and latency."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int32, c_uint64, c_void_p
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.errors import ClosedError
from bam.native import function
from bam.storage.native import NativeEngine, create

_DEPTH_BUCKETS = 33
_LATENCY_BUCKETS = 976

Counts = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class MonitorSnapshot:
    """What was counted up to a moment, or between two: ``later - earlier``.

    Attributes
    ----------
    elapsed_ns : int
    reads, bytes, errors : int
        Reads completed, with an errno or not; bytes they brought; those with an errno.
    in_flight, max_in_flight : int
        At the (later) snapshot; the most ever.
    in_flight_ns : int
        Sum over time of the reads in flight.
    latency_sum_ns, max_latency_ns : int
        From submission until the completion was taken; the longest ever.
    depth_ns : uint64, shape (33,)
        Time with 0, 1, 2-3, 4-7, ... reads in flight.
    latency_reads : uint64, shape (976,)
        Reads by latency: each ns up to 15, then 16 equal steps in every power of two.
    """

    elapsed_ns: int
    reads: int
    bytes: int
    errors: int
    in_flight: int
    max_in_flight: int
    in_flight_ns: int
    latency_sum_ns: int
    max_latency_ns: int
    depth_ns: Counts
    latency_reads: Counts

    def __sub__(self, earlier: MonitorSnapshot) -> MonitorSnapshot:
        return MonitorSnapshot(
            self.elapsed_ns - earlier.elapsed_ns,
            self.reads - earlier.reads,
            self.bytes - earlier.bytes,
            self.errors - earlier.errors,
            self.in_flight,
            self.max_in_flight,
            self.in_flight_ns - earlier.in_flight_ns,
            self.latency_sum_ns - earlier.latency_sum_ns,
            self.max_latency_ns,
            self.depth_ns - earlier.depth_ns,
            self.latency_reads - earlier.latency_reads,
        )

    @property
    def mean_in_flight(self) -> float:
        """Reads in flight, averaged over time."""
        return self.in_flight_ns / self.elapsed_ns if self.elapsed_ns else 0.0

    @property
    def mean_in_flight_busy(self) -> float:
        """The same over the time in which there were any."""
        busy_ns = self.elapsed_ns - int(self.depth_ns[0])
        return self.in_flight_ns / busy_ns if busy_ns else 0.0

    @property
    def mean_latency_us(self) -> float:
        """Average latency."""
        return self.latency_sum_ns / self.reads / 1000 if self.reads else 0.0

    def latency_us(self, percent: float) -> float:
        """Latency that `percent` of the reads do not exceed, at most 6 % too high; 0 when there were none."""
        reached = np.cumsum(self.latency_reads)
        if not reached[-1]:
            return 0.0
        bucket = int(np.searchsorted(reached, max(1.0, reached[-1] * percent / 100)))
        return min(_bucket_end_ns(bucket), self.max_latency_ns) / 1000


class MonitoredEngine(NativeEngine):
    """A native engine, and what goes through it.

    Parameters
    ----------
    inner : NativeEngine
        Stays open when this one closes.
    """

    def __init__(self, inner: NativeEngine) -> None:
        super().__init__(create("bam_monitored_engine_create", [c_void_p], inner.handle), [inner])

    def snapshot(self) -> MonitorSnapshot:
        """Counts since the engine was made."""
        counters = _Counters()
        call = function("bam_monitored_engine_snapshot", c_int32, [c_void_p, POINTER(_Counters)])
        if call(self.handle, byref(counters)):
            raise ClosedError("engine 'monitored'")
        numbers: dict[str, int] = {name: getattr(counters, name) for name in _NUMBERS}
        return MonitorSnapshot(
            **numbers,
            depth_ns=np.array(counters.depth_ns, np.uint64),
            latency_reads=np.array(counters.latency_reads, np.uint64),
        )


_NUMBERS = (
    "elapsed_ns",
    "reads",
    "bytes",
    "errors",
    "in_flight",
    "max_in_flight",
    "in_flight_ns",
    "latency_sum_ns",
    "max_latency_ns",
)


class _Counters(ctypes.Structure):
    """`bam::MonitorCounters`."""

    _fields_ = [
        *[(name, c_uint64) for name in _NUMBERS],
        ("depth_ns", c_uint64 * _DEPTH_BUCKETS),
        ("latency_reads", c_uint64 * _LATENCY_BUCKETS),
    ]


def _bucket_end_ns(bucket: int) -> int:
    """Longest latency in a bucket; inverse of `latency_bucket()` in monitored_engine.cc."""
    if bucket < 16:
        return bucket
    power, step = bucket // 16 + 3, bucket % 16
    return ((16 + step + 1) << (power - 4)) - 1
