"""`python -m bam.bench io FILE`: engine and array against the disk's ceilings, in one run.

Sides of one round, one host thread each, random 4 KiB reads of one cold file:

  ceiling   an independent program (`--iobench`), and fio where it is installed
  engine    the engine's channel alone
  cold      rows copied to the caller's array through the page cache, all of them misses
  hits      the same when every row is in the cache, against `np.take` on the same rows in memory

Every side is measured `rounds` times in turn; medians and spreads are reported. Bytes are verified first.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bam
from bam.bench.files import drop_page_cache, ensure_file, expected_words
from bam.bench.machine import command, commit, describe_machine
from bam.bench.random_reads import random_reads_per_s

log = logging.getLogger(__name__)

ROW_BYTES = 4096
DEPTHS = (64, 128, 256)
COLD_ROWS_PER_CALL = 32768
HIT_ROWS = 65536
VERIFIED_ROWS = 20000
PROGRAM_TIMEOUT_S = 120.0


@dataclass
class Series:
    """Measurements of one side."""

    unit: str
    values: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "median": statistics.median(self.values),
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
        }


def run_io(path: Path, n_bytes: int, iobench: Path | None, rounds: int, seconds: float) -> dict[str, Any]:
    """Run the benchmark; returns the content of its JSON file.

    Raises
    ------
    AssertionError
        Bytes read are not those of the file.
    """
    made = ensure_file(path, n_bytes)
    drop_page_cache(path)
    series: dict[str, Series] = {}
    with bam.open_array(
        path, dtype=np.uint64, shape=(n_bytes // ROW_BYTES, ROW_BYTES // 8), engine="uring"
    ) as array:
        _verify(array, n_bytes)
        sides = _sides(path, n_bytes, iobench, array, seconds)
        for number in range(rounds):
            for name, measure in sides.items():
                log.info("round %d of %d: %s", number + 1, rounds, name)
                for key, unit, value in measure(number):
                    series.setdefault(key, Series(unit)).values.append(value)
        info = array.info()
    figures = {key: found.summary() for key, found in series.items()}
    medians = {key: found["median"] for key, found in figures.items()}
    return {
        "schema": 1,
        "name": "io",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(path),
        "cold": True,
        "file_bytes": n_bytes,
        "file_made": made,
        "path": str(info),
        "rounds": rounds,
        **medians,
        "figures": figures,
        "ratios": _ratios(medians),
    }


Measurement = tuple[str, str, float]
Side = Callable[[int], list[Measurement]]


def _sides(
    path: Path, n_bytes: int, iobench: Path | None, array: bam.VirtualArray, seconds: float
) -> dict[str, Side]:
    sides: dict[str, Side] = {}
    if iobench is not None:
        sides["iobench"] = lambda number: _iobench(iobench, path, n_bytes)
    if shutil.which("fio"):
        sides["fio"] = lambda number: _fio(path, seconds)
    sides["engine"] = lambda number: _engine(path, number, seconds)
    sides["cold gather"] = lambda number: _cold_gather(array, number, seconds)
    sides["hits"] = lambda number: _hits(path, n_bytes, number)
    return sides


def _verify(array: bam.VirtualArray, n_bytes: int) -> None:
    ids = np.random.default_rng(7).integers(0, len(array), VERIFIED_ROWS)
    rows = array.gather(ids)
    words = ROW_BYTES // 8
    for row_id, row in zip(ids.tolist(), rows, strict=True):
        np.testing.assert_array_equal(row, expected_words(row_id * words, words))


def _iobench(program: Path, path: Path, n_bytes: int) -> list[Measurement]:
    """Best rate of the program's one-thread random 4 KiB reads."""
    found = subprocess.run(
        [str(program), str(path), str(n_bytes / 2**30)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    rates = re.findall(r"uring rand bs=4096\s+threads=1\s+qd=\d+\s+(\d+) IOPS", found.stdout)
    return [("iobench_iops_4k", "reads/s", max(map(float, rates)))]


def _fio(path: Path, seconds: float) -> list[Measurement]:
    best = 0.0
    for depth in DEPTHS:
        # randrepeat=0: other offsets in each run, as on the other sides; read again, they come from a cache.
        arguments = (
            f"--name=read --filename={path} --rw=randread --bs=4k --direct=1 --ioengine=io_uring "
            f"--iodepth={depth} --time_based --runtime={seconds:g} --output-format=json --readonly "
            "--fixedbufs=1 --registerfiles=1 --norandommap --randrepeat=0"
        )
        found = subprocess.run(["fio", *arguments.split()], capture_output=True, text=True, check=True)
        best = max(best, float(json.loads(found.stdout)["jobs"][0]["read"]["iops"]))
    return [("fio_iops_4k", "reads/s", best)]


def _engine(path: Path, number: int, seconds: float) -> list[Measurement]:
    rates = [
        random_reads_per_s(str(path), depth, ROW_BYTES, seed=1000 * number + depth, seconds=seconds)
        for depth in DEPTHS
    ]
    return [("iops_4k", "reads/s", max(rates))]


def _cold_gather(array: bam.VirtualArray, number: int, seconds: float) -> list[Measurement]:
    random = np.random.default_rng(100 + number)
    out = np.empty((COLD_ROWS_PER_CALL, *array.shape[1:]), array.dtype)
    out[:] = 0
    before, rows, begin = array.stats(), 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        array.gather(random.integers(0, len(array), COLD_ROWS_PER_CALL), out=out)
        rows += COLD_ROWS_PER_CALL
    elapsed = time.perf_counter() - begin
    counted = array.stats() - before
    return [
        ("cold_gather_rows_per_s", "rows/s", rows / elapsed),
        ("cold_gather_hit_rate", "share", counted.hit_rate),
        ("cold_gather_reads_per_s", "reads/s", counted.reads / elapsed),
    ]


def _hits(path: Path, n_bytes: int, number: int) -> list[Measurement]:
    """Rows that are all in a cache of twice their size, against np.take on an array of exactly those rows."""
    n_rows = min(HIT_ROWS, n_bytes // ROW_BYTES)
    random = np.random.default_rng(200 + number)
    shape = (n_bytes // ROW_BYTES, ROW_BYTES // 8)
    cache = f"{2 * n_rows} lines"
    with bam.open_array(path, dtype=np.uint64, shape=shape, engine="uring", cache=cache) as array:
        memory: npt.NDArray[np.uint64] = array[:n_rows]
        ids = random.integers(0, n_rows, n_rows)
        out = np.zeros((n_rows, ROW_BYTES // 8), np.uint64)
        array.gather(ids, out=out)
        np.testing.assert_array_equal(out, memory[ids])
        before = array.stats()
        take, gather = [], []
        for _ in range(5):
            take.append(_seconds(lambda: np.take(memory, ids, axis=0, out=out, mode="clip")))
            gather.append(_seconds(lambda: array.gather(ids, out=out)))
        counted = array.stats() - before
    assert counted.misses == 0, f"{counted.misses} rows were not in the cache"
    return [
        ("hit_gather_rows_per_s", "rows/s", n_rows / statistics.median(gather)),
        ("np_take_rows_per_s", "rows/s", n_rows / statistics.median(take)),
    ]


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _ratios(medians: dict[str, float]) -> dict[str, float]:
    pairs = {
        "engine_of_iobench": ("iops_4k", "iobench_iops_4k"),
        "engine_of_fio": ("iops_4k", "fio_iops_4k"),
        "cold_gather_of_iobench": ("cold_gather_rows_per_s", "iobench_iops_4k"),
        "cold_gather_of_engine": ("cold_gather_rows_per_s", "iops_4k"),
        "hits_of_np_take": ("hit_gather_rows_per_s", "np_take_rows_per_s"),
    }
    return {
        name: medians[ours] / medians[ceiling]
        for name, (ours, ceiling) in pairs.items()
        if ours in medians and ceiling in medians
    }
