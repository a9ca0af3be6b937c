"""What is seen of a loader while it runs: reads in flight over time, latencies, the process's counters."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.storage.monitored import MonitoredEngine, MonitorSnapshot

INTERVAL_S = 0.02
MAX_POINTS = 400
PERCENTS = (50.0, 90.0, 99.0, 99.9)
_STEPS_PER_OCTAVE = 4


@dataclass(frozen=True)
class ProcessCounters:
    """Of this process, up to a moment.

    Attributes
    ----------
    device_bytes_read : int
        What it made the disks read (`read_bytes` of /proc/self/io), read-ahead included.
    major_faults : int
        Page faults that waited for a disk.
    cpu_s : float
        Processor seconds, of all threads.
    """

    device_bytes_read: int
    major_faults: int
    cpu_s: float

    @classmethod
    def now(cls) -> ProcessCounters:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(_proc_value("io", "read_bytes:"), usage.ru_majflt, usage.ru_utime + usage.ru_stime)

    def __sub__(self, earlier: ProcessCounters) -> ProcessCounters:
        return ProcessCounters(
            self.device_bytes_read - earlier.device_bytes_read,
            self.major_faults - earlier.major_faults,
            self.cpu_s - earlier.cpu_s,
        )


def peak_rss_bytes() -> int:
    """The most memory this process had resident, file pages it maps included."""
    return _proc_value("status", "VmHWM:") * 1024


def anonymous_bytes() -> int:
    """Memory resident now that is not of files."""
    return _proc_value("status", "RssAnon:") * 1024


def _proc_value(file: str, key: str) -> int:
    try:
        lines = Path(f"/proc/self/{file}").read_text().splitlines()
    except OSError:  # some containers hide /proc/self/io
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(key)), 0)


class EngineRecorder:
    """Records engines from now on; a context manager, and `report` after it.

    Parameters
    ----------
    engines : sequence of MonitoredEngine
        Open until the context ends.
    """

    def __init__(self, engines: Sequence[MonitoredEngine]) -> None:
        self._engines = engines
        self._ended = threading.Event()
        self._times: list[float] = []
        self._in_flight: list[float] = []
        self._first = [engine.snapshot() for engine in engines]
        self._last = self._first
        self._thread = threading.Thread(target=self._run, name="record-depth", daemon=True)

    def __enter__(self) -> EngineRecorder:
        self._begin = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._last = [engine.snapshot() for engine in self._engines]

    def _run(self) -> None:
        before = self._first
        while self._engines and not self._ended.wait(INTERVAL_S):
            now = [engine.snapshot() for engine in self._engines]
            changes = [later - earlier for later, earlier in zip(now, before, strict=True)]
            self._times.append(time.perf_counter() - self._begin)
            self._in_flight.append(sum(each.mean_in_flight for each in changes))
            before = now

    def report(self) -> dict[str, Any] | None:
        """Depth over time and latencies, as plain values; None without engines."""
        if not self._engines:
            return None
        total = _sum([later - first for later, first in zip(self._last, self._first, strict=True)])
        times, depths = _thinned(self._times), _thinned(self._in_flight)
        return {
            "reads": total.reads,
            "bytes": total.bytes,
            "errors": total.errors,
            "mean_in_flight": total.mean_in_flight * len(self._engines),
            "max_in_flight": total.max_in_flight,
            "in_flight": {"t_s": times, "reads": depths},
            "latency_us": {f"p{percent:g}": total.latency_us(percent) for percent in PERCENTS},
            "latency_histogram": latency_histogram(total.latency_reads),
        }


def _sum(snapshots: Sequence[MonitorSnapshot]) -> MonitorSnapshot:
    """Of several engines; the maximum in flight is a bound, since they need not peak together."""

    def added(name: str) -> int:
        return sum(int(getattr(each, name)) for each in snapshots)

    return MonitorSnapshot(
        elapsed_ns=added("elapsed_ns"),
        reads=added("reads"),
        bytes=added("bytes"),
        errors=added("errors"),
        in_flight=added("in_flight"),
        max_in_flight=max(each.max_in_flight for each in snapshots),
        in_flight_ns=added("in_flight_ns"),
        latency_sum_ns=added("latency_sum_ns"),
        max_latency_ns=max(each.max_latency_ns for each in snapshots),
        depth_ns=np.sum([each.depth_ns for each in snapshots], axis=0),
        latency_reads=np.sum([each.latency_reads for each in snapshots], axis=0),
    )


def latency_histogram(latency_reads: npt.NDArray[np.uint64]) -> dict[str, list[float]]:
    """Reads by latency in steps of a quarter of an octave, from the first to the last that has any.

    Parameters
    ----------
    latency_reads : uint64 array
        As in :class:`bam.storage.monitored.MonitorSnapshot`: each ns up to 15, then 16 steps an octave.

    Returns
    -------
    dict
        ``upper_us``: upper ends of the steps; ``reads``: how many lie in each.
    """
    width = 16 // _STEPS_PER_OCTAVE
    merged = latency_reads[16:].reshape(-1, width).sum(axis=1)
    merged[0] += latency_reads[:16].sum()
    filled = np.flatnonzero(merged)
    if len(filled) == 0:
        return {"upper_us": [], "reads": []}
    numbers = np.arange(filled[0], filled[-1] + 1)
    octave, step = numbers // _STEPS_PER_OCTAVE, numbers % _STEPS_PER_OCTAVE
    upper_ns = 16 * 2.0**octave * (1 + (step + 1) / _STEPS_PER_OCTAVE)
    return {"upper_us": (upper_ns / 1000).tolist(), "reads": merged[numbers].tolist()}


def _thinned(values: Sequence[float]) -> list[float]:
    """Means over equal runs, at most MAX_POINTS of them."""
    step = max(1, -(-len(values) // MAX_POINTS))
    return [float(np.mean(values[first : first + step])) for first in range(0, len(values), step)]
