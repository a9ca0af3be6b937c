"""`python -m bam.bench bulk FILE`: bulk reads with every setting, beside plain reads of the disk, in one run.

Every combination of engine, destination (host, pinned, cuda), task size, threads, direct or through the page
cache, and cold or warm page cache reads the same number of bytes once a round. Ceilings are measured before
the cold and before the warm ones:

  pread_direct_N   ceiling: plain preadv past the page cache, N threads with blocks of 16 MiB / N
  pread_cached     ceiling: plain preadv of bytes that are in the page cache, 4 threads with 1 MiB
  copy_to_gpu      ceiling: pinned memory to the GPU, where there is one

Bytes are verified before anything is measured, by each engine to each destination.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bam.bench.bulk_sweep import (
    ENGINES,
    TASK_BYTES,
    THREADS,
    SweepFile,
    fill_page_cache,
    grid,
    host_copy,
    new_memory,
    plain_bytes_per_s,
    rate_of,
    why_not,
)
from bam.bench.files import drop_page_cache, ensure_file, expected_words
from bam.bench.io import Series
from bam.bench.machine import command, commit, describe_machine
from bam.errors import ConfigError, EngineUnavailable
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.reader import BulkRange, BulkReport
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings, Destination

log = logging.getLogger(__name__)

_UNIT = "MB/s"
#: Where a verified read begins: at no multiple of a block.
_ODD_OFFSET = 4096 * 3 + 8


@dataclass(frozen=True)
class BulkPlan:
    """What is measured.

    Attributes
    ----------
    read_bytes : int
        Of each measurement; a multiple of 4096.
    rounds : int
    engines, destinations, task_bytes, threads : sequence
    numa : bool
    """

    read_bytes: int
    rounds: int
    engines: Sequence[BulkEngineKind] = ENGINES
    destinations: Sequence[Destination] = tuple(Destination)
    task_bytes: Sequence[int] = TASK_BYTES
    threads: Sequence[int] = THREADS
    numa: bool = False

    def __post_init__(self) -> None:
        if self.read_bytes < 2**20 or self.read_bytes % 4096:
            raise ConfigError("read", self.read_bytes, "a multiple of 4096 bytes, at least 1 MiB")


@dataclass
class _Case:
    """One combination, and what was measured."""

    settings: BulkSettings
    destination: Destination
    warm: bool
    series: Series = field(default_factory=lambda: Series(_UNIT))
    report: BulkReport | None = None


def run_bulk(path: Path, n_bytes: int, plan: BulkPlan) -> dict[str, Any]:
    """Run the benchmark; returns the content of its JSON file.

    Raises
    ------
    AssertionError
        Bytes read are not those of the file.
    ConfigError
        Nothing that was asked for can be measured, or more is to be read than the file has.
    """
    if plan.read_bytes > n_bytes:
        raise ConfigError("read", plan.read_bytes, f"at most the file's {n_bytes} bytes")
    made = ensure_file(path, n_bytes)
    file = SweepFile.at(path)
    unavailable: dict[str, str] = {}
    memories = _memories(plan, unavailable)
    engines = _engines(plan, unavailable)
    if not memories or not engines:
        raise ConfigError("engines, destinations", unavailable, "at least one of each that is here")
    for engine in engines:
        for destination, memory in memories.items():
            _verify(file, engine, destination, memory)
    cases = [
        _Case(settings, destination, warm)
        for warm in (False, True)
        for destination in memories
        for settings in grid(engines, (True, False), plan.task_bytes, plan.threads, plan.numa)
    ]
    ceilings: dict[str, Series] = {}
    for number in range(plan.rounds):
        log.info("round %d of %d: %d combinations", number + 1, plan.rounds, len(cases))
        for warm in (False, True):
            _measure_ceilings(file, plan, memories, number, ceilings)
            offset = _offset(file, plan, number)
            if warm:
                fill_page_cache(path, offset, plan.read_bytes)
            for case in [each for each in cases if each.warm is warm]:
                _measure(case, file, memories[case.destination], offset, path)
    found = {name: series.summary() for name, series in ceilings.items()}
    points = [_point(case, found) for case in cases]
    return {
        "schema": 1,
        "name": "bulk",
        "commit": commit(),
        "command": command(),
        "machine": {**describe_machine(path), "gpu": _gpu_name(memories)},
        "file_bytes": n_bytes,
        "file_made": made,
        "read_bytes": plan.read_bytes,
        "rounds": plan.rounds,
        "unavailable": unavailable,
        "ceilings": found,
        "points": points,
        "best": _best(points),
    }


def _memories(plan: BulkPlan, unavailable: dict[str, str]) -> dict[Destination, BulkMemory]:
    memories = {}
    for destination in plan.destinations:
        try:
            memories[destination] = new_memory(destination, plan.read_bytes)
        except EngineUnavailable as refusal:
            unavailable[destination.value] = str(refusal)
            log.info("no destination %r: %s", destination.value, refusal)
    return memories


def _engines(plan: BulkPlan, unavailable: dict[str, str]) -> list[BulkEngineKind]:
    engines = []
    for engine in plan.engines:
        if reason := why_not(engine):
            unavailable[engine.value] = reason
            log.info("no engine %r: %s", engine.value, reason)
        else:
            engines.append(engine)
    return engines


def _verify(file: SweepFile, engine: BulkEngineKind, destination: Destination, memory: BulkMemory) -> None:
    """Direct and not, from an offset and of a length that no block divides."""
    n_bytes = min(memory.n_bytes, file.n_bytes - _ODD_OFFSET) - 8
    for direct in (True, False):
        with file.open(BulkSettings(engine=engine, direct=direct, task_bytes=2**20), destination) as reader:
            reader.read([BulkRange(_ODD_OFFSET, n_bytes)], memory)
        words = host_copy(memory)[: n_bytes // 8 * 8].view(np.uint64)
        np.testing.assert_array_equal(words, expected_words(_ODD_OFFSET // 8, len(words)))


def _offset(file: SweepFile, plan: BulkPlan, number: int) -> int:
    """Another part of the file in each round."""
    places = file.n_bytes // plan.read_bytes
    return number % places * plan.read_bytes


def _measure(case: _Case, file: SweepFile, memory: BulkMemory, offset: int, path: Path) -> None:
    if not case.warm:
        drop_page_cache(path)
    with file.open(case.settings, case.destination) as reader:
        case.report = reader.read([BulkRange(offset, memory.n_bytes)], memory)
    case.series.values.append(rate_of(case.report) / 1e6)


def _measure_ceilings(
    file: SweepFile,
    plan: BulkPlan,
    memories: dict[Destination, BulkMemory],
    number: int,
    ceilings: dict[str, Series],
) -> None:
    offset = _offset(file, plan, number)
    hosts = [memory.host for memory in memories.values() if memory.host is not None]
    into = hosts[0] if hosts else new_memory(Destination.HOST, plan.read_bytes).host
    assert into is not None

    def plain(block_bytes: int, threads: int, direct: bool) -> float:
        drop_page_cache(Path(file.path))
        if not direct:
            fill_page_cache(Path(file.path), offset, plan.read_bytes)
        return plain_bytes_per_s(
            file, into, block_bytes=block_bytes, threads=threads, direct=direct, offset=offset
        )

    for threads in (1, 4, 16):
        name = f"pread_direct_{threads}"
        try:
            rate = plain(min(16 * 2**20 // threads, plan.read_bytes // threads), threads, True)
        except OSError as error:
            log.info("no ceiling %s: %s", name, error)
            continue
        ceilings.setdefault(name, Series(_UNIT)).values.append(rate / 1e6)
    cached = plain(min(2**20, plan.read_bytes // 4), 4, False)
    ceilings.setdefault("pread_cached", Series(_UNIT)).values.append(cached / 1e6)
    if Destination.CUDA in memories:
        from bam.cache.device.bulk_memory import copy_bytes_per_s

        rate = copy_bytes_per_s(memories[Destination.CUDA])
        ceilings.setdefault("copy_to_gpu", Series(_UNIT)).values.append(rate / 1e6)


def _point(case: _Case, ceilings: dict[str, Any]) -> dict[str, Any]:
    report, figure = case.report, case.series.summary()
    assert report is not None
    cached = case.warm and not report.direct
    names = ["pread_cached"] if cached else [name for name in ceilings if name.startswith("pread_direct")]
    # The best of all rounds: disks vary, and less than they can do once is no ceiling.
    reached = [float(ceilings[name]["max"]) for name in names]
    ceiling = max(reached) if reached else None
    if ceiling is not None and case.destination.on_gpu:
        ceiling = min(ceiling, float(ceilings["copy_to_gpu"]["max"]))
    return {
        "engine": case.settings.kind.value,
        "destination": case.destination.value,
        "task_bytes": case.settings.bytes_of_task,
        "threads": case.settings.threads,
        "direct": case.settings.direct,
        "warm": case.warm,
        "ran": {
            "engine": report.engine,
            "direct": report.direct,
            "path": report.path.kind.value,
            "reason": report.path.reason,
            "placement": report.placement,
            "notes": list(report.notes),
        },
        "figure": figure,
        "of_ceiling": None if ceiling is None else figure["median"] / ceiling,
    }


def _best(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The fastest cold point of each engine and destination."""
    best: dict[str, Any] = {}
    for point in points:
        name = f"{point['engine']}_{point['destination']}"
        if not point["warm"] and (
            name not in best or point["figure"]["median"] > best[name]["figure"]["median"]
        ):
            best[name] = point
    keys = ("task_bytes", "threads", "direct", "of_ceiling")
    return {
        name: {**{key: point[key] for key in keys}, "median": point["figure"]["median"], "unit": _UNIT}
        for name, point in best.items()
    }


def _gpu_name(memories: dict[Destination, BulkMemory]) -> str:
    """Of the GPU that took part; empty: none did."""
    if Destination.CUDA not in memories:
        return ""
    from bam.cache.device.bulk_memory import gpu_name

    return gpu_name()
