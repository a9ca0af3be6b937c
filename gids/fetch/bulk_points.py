"""Bulk reads measured with every task size and number of threads, and which of them are best."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bam.bench.bulk_sweep import (
    ENGINES,
    TASK_BYTES,
    THREADS,
    SweepFile,
    grid,
    new_memory,
    why_not,
)
from bam.bench.bulk_sweep import bytes_per_s as measured_bytes_per_s
from bam.bench.files import drop_page_cache
from bam.config import EngineKind
from bam.errors import EngineUnavailable
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.settings import BulkSettings, Destination

#: Bytes of one read, and of the memory it goes to.
_REGION_BYTES = 256 * 2**20
#: Of points that reach this share of the best, the one with the smallest buffers is taken.
_NEARLY_BEST = 0.95


@dataclass(frozen=True)
class BulkPoint:
    """One setting, measured.

    Attributes
    ----------
    destination : str
        ``host`` or ``cuda``.
    engine : str
        ``native`` or ``kvikio``.
    task_bytes, threads : int
    direct : bool
    bytes_per_s : float
    """

    destination: str
    engine: str
    task_bytes: int
    threads: int
    direct: bool
    bytes_per_s: float

    @property
    def settings(self) -> BulkSettings:
        """To read like that again."""
        return BulkSettings(self.engine, self.task_bytes, self.threads, self.direct)


def best_point(points: Sequence[BulkPoint], destination: Destination) -> BulkPoint | None:
    """The fastest for a destination, or one nearly as fast with less memory; None: none was measured."""
    fitting = [point for point in points if point.destination == destination.value]
    if not fitting:
        return None
    enough = _NEARLY_BEST * max(point.bytes_per_s for point in fitting)
    nearly = [point for point in fitting if point.bytes_per_s >= enough]
    return min(nearly, key=lambda point: (point.task_bytes * point.threads, -point.bytes_per_s))


def measure_bulk(
    path: str | os.PathLike[str],
    *,
    seconds: float,
    engine: EngineKind = EngineKind.AUTO,
    task_bytes: Sequence[int] = TASK_BYTES,
    threads: Sequence[int] = THREADS,
) -> tuple[BulkPoint, ...]:
    """Measure direct reads of a file into the host's memory and, where there is one, a GPU's.

    Parameters
    ----------
    path : path
        Not changed; its pages leave the page cache.
    seconds : float
        All measurements together, about; each reads once at least.
    engine : EngineKind
        Which engine of `bam` reads, where one does.
    task_bytes, threads : sequence of int

    Raises
    ------
    StorageError, SourceError
    """
    file = SweepFile.at(path)
    memories = _memories(min(file.n_bytes, _REGION_BYTES))
    plan = [
        (destination, settings)
        for destination in memories
        for settings in grid([each for each in ENGINES if not why_not(each)], (True,), task_bytes, threads)
    ]
    return tuple(
        BulkPoint(
            destination.value,
            settings.kind.value,
            settings.bytes_of_task,
            settings.threads,
            settings.direct,
            _rate(file, memories[destination], destination, settings, engine, seconds / len(plan)),
        )
        for destination, settings in plan
    )


def _memories(n_bytes: int) -> dict[Destination, BulkMemory]:
    memories = {Destination.HOST: new_memory(Destination.HOST, n_bytes)}
    with suppress(EngineUnavailable):  # then nothing will be read to one
        memories[Destination.CUDA] = new_memory(Destination.CUDA, n_bytes)
    return memories


def _rate(
    file: SweepFile,
    memory: BulkMemory,
    destination: Destination,
    settings: BulkSettings,
    engine: EngineKind,
    seconds: float,
) -> float:
    """Median of reads of one region after the other, until the time is up."""
    rates: list[float] = []
    n_places, begin = max(1, file.n_bytes // max(1, memory.n_bytes)), time.perf_counter()
    with file.open(settings, destination, engine) as reader:
        while not rates or time.perf_counter() - begin < seconds:
            drop_page_cache(Path(file.path))
            rates.append(measured_bytes_per_s(reader, memory, len(rates) % n_places * memory.n_bytes))
    return statistics.median(rates)
