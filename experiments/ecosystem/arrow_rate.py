"""Random rows gathered from Arrow files in place, beside the same rows of a converted store, all cold.

    python experiments/ecosystem/arrow_rate.py FOLDER --json F

FOLDER gets the files (and keeps them). All sides read with O_DIRECT, through io_uring where it works, with
a cache that holds next to nothing, the same rows in the same order; bytes are compared first. Gathers of
the sides take turns. Beside them: what the disk does with random reads of each file, aligned to pages and
not, and 20 of 2,000 columns of a wide table, whose bytes are counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bam
import gids
from bam.array.sources import RawSource
from bam.bench.machine import command, commit, describe_machine
from bam.bench.random_reads import random_reads_per_s
from bam.storage.engine import Engine
from bam.storage.monitored import MonitoredEngine
from bam.storage.native import NativeEngine
from gids.bench.ceilings import measure_ceilings
from gids.table.arrow_source import ArrowSource
from gids.table.features import column_features
from gids.table.write import write_arrow

SCHEMA = 1
ROUNDS = 9
CACHE = "64KiB"
BATCH_ROWS = 4096
GATHER_ROWS = 2048
WANTED = 0.9
COLUMNS, READ_COLUMNS, WIDE_ROWS = 2000, 20, 20_000
#: Bytes that a direct read may have to read along at each of its ends.
ALIGNMENT = 4096


@dataclass(frozen=True)
class Case:
    """Rows of `dim` elements."""

    dim: int
    dtype: str

    @property
    def row_bytes(self) -> int:
        return self.dim * np.dtype(self.dtype).itemsize


CASES = (Case(1024, "float32"), Case(768, "float16"), Case(128, "float32"))


@dataclass(frozen=True)
class Files:
    """The same rows three times: as pyarrow writes them, as this package does, and as a store has them."""

    pyarrow: Path
    ours: Path
    store: Path


def batches(case: Case, n_rows: int) -> Iterator[Any]:
    """Record batches of a number and a row."""
    random = np.random.default_rng(case.dim)
    for first in range(0, n_rows, BATCH_ROWS):
        count = min(BATCH_ROWS, n_rows - first)
        rows = random.standard_normal((count, case.dim), dtype=np.float32).astype(case.dtype)
        feat = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), case.dim)
        yield pa.record_batch([pa.array(np.arange(first, first + count)), feat], ["id", "feat"])


def write(folder: Path, case: Case, n_bytes: int) -> Files:
    """Files of random rows; those that are there are kept."""
    n_rows, name = n_bytes // case.row_bytes, f"{case.dtype}_{case.dim}_{n_bytes}"
    files = Files(*(folder / f"{name}.{suffix}" for suffix in ("pyarrow", "arrow", "bin")))
    if files.store.is_file():
        return files
    schema = next(batches(case, 1)).schema
    with pa.OSFile(str(files.pyarrow), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in batches(case, n_rows):
            writer.write_batch(batch)
    write_arrow(files.ours, schema, batches(case, n_rows))
    with open(files.store, "wb") as raw:
        for batch in batches(case, n_rows):
            raw.write(batch.column("feat").flatten().to_numpy().data)
    return files


@dataclass
class Side:
    """One of the two; rates of its rounds, and bytes that it took from the disk for each row."""

    name: str
    source: bam.Source
    rates: list[float]
    bytes_per_row: float = 0.0


class Opened:
    """An array that was just opened, and how long gathers of it took."""

    def __init__(self, source: bam.Source) -> None:
        self._monitors: list[MonitoredEngine] = []
        self.array = bam.open_array(source, cache=CACHE, wrap=self._wrap)
        assert self.array.info().engine.direct, "the file system reads through the page cache"
        self.seconds, self.rows = 0.0, 0

    def _wrap(self, engine: Engine) -> Engine:
        assert isinstance(engine, NativeEngine)
        self._monitors.append(MonitoredEngine(engine))
        return self._monitors[-1]

    def gather(self, ids: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
        """Read rows, and count them."""
        begin = time.perf_counter()
        self.array.gather(ids, out=out)
        self.seconds += time.perf_counter() - begin
        self.rows += len(ids)

    def close(self) -> float:
        """Bytes from the disk for each row."""
        n_bytes = self._monitors[0].snapshot().bytes
        self.array.close()
        return n_bytes / self.rows


def run_round(sides: Sequence[Side], ids: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> None:
    """One round: gathers of both take turns, so that what else the machine does meets both alike."""
    opened = [Opened(side.source) for side in sides]
    for each in opened:
        each.array.gather(ids[:1], out=out[:1])  # rings and buffers are made at the first
    for number, first in enumerate(range(0, len(ids), len(out))):
        part = ids[first : first + len(out)]
        for each in opened if number % 2 else opened[::-1]:
            each.gather(part, out)
    for side, each in zip(sides, opened, strict=True):
        side.rates.append(each.rows / each.seconds)
        side.bytes_per_row = each.close()


def measure(folder: Path, case: Case, n_bytes: int, gathers: int) -> dict[str, Any]:
    """All rounds of one case."""
    files = write(folder, case, n_bytes)
    n_rows = n_bytes // case.row_bytes
    sides = [
        Side("arrow_of_pyarrow", ArrowSource(files.pyarrow, "feat"), []),
        Side("arrow_of_gids", ArrowSource(files.ours, "feat"), []),
        Side("store", RawSource(files.store, case.dtype, (-1, case.dim)), []),
    ]
    random = np.random.default_rng(0)
    check = random.choice(n_rows, 2048, replace=False)
    found = []
    for side in sides:
        with bam.open_array(side.source, cache=CACHE) as array:
            found.append(array[check])
    plain = np.memmap(files.store, case.dtype, "r").reshape(-1, case.dim)[check]
    for each in found:
        np.testing.assert_array_equal(each.view(np.uint8), plain.view(np.uint8))
    out = np.empty((GATHER_ROWS, case.dim), case.dtype)
    ceilings = {}
    for path in (files.pyarrow, files.ours, files.store):
        measured = measure_ceilings(str(path), 1.0)
        # As long as a page whose offset is no multiple of 512 makes a read, and not aligned to pages either.
        unaligned = random_reads_per_s(str(path), 128, 4608, seed=1, seconds=1.0)
        ceilings[path.suffix[1:]] = {
            "random_4k_iops": measured["random_4k_iops"],
            "random_4608_iops": unaligned,
            "sequential_mb_per_s": measured["sequential_mb_per_s"],
        }
    for number in range(ROUNDS):
        ids = random.choice(n_rows, min(n_rows // GATHER_ROWS, gathers) * GATHER_ROWS, replace=False)
        turn = number % len(sides)
        run_round([*sides[turn:], *sides[:turn]], ids, out)
    *arrows, store = sides
    ratios = {
        side.name: [one / other for one, other in zip(side.rates, store.rates, strict=True)]
        for side in arrows
    }
    return {
        "dim": case.dim,
        "dtype": case.dtype,
        "row_bytes": case.row_bytes,
        "rows": n_rows,
        "rows_gathered_a_round": len(ids),
        "sides": {side.name: spread(side.rates) | {"bytes_per_row": side.bytes_per_row} for side in sides},
        "ratio_to_store": {name: spread(each) for name, each in ratios.items()},
        "wanted": WANTED,
        "kept": statistics.median(ratios["arrow_of_gids"]) >= WANTED,
        "ceilings": ceilings,
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, smallest and largest, and all."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "all": [round(each, 4) for each in values],
    }


def measure_columns(folder: Path) -> dict[str, Any]:
    """20 of 2,000 columns, every row: bytes read of bytes there are."""
    path = folder / "wide.arrow"
    names = [f"c{number}" for number in range(COLUMNS)]
    random = np.random.default_rng(1)
    rows = random.standard_normal((COLUMNS, WIDE_ROWS), dtype=np.float32)
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(each) for each in rows], schema=schema))
    wanted = names[7 :: COLUMNS // READ_COLUMNS]
    monitors: list[MonitoredEngine] = []

    def wrap(engine: Engine) -> Engine:
        assert isinstance(engine, NativeEngine)
        monitors.append(MonitoredEngine(engine))
        return monitors[-1]

    with gids.open_table(path) as table:
        features = column_features("node", table, wanted, cache="4MiB", wrap=wrap)
    out = np.empty((WIDE_ROWS, READ_COLUMNS), np.float32)
    features.read(np.arange(WIDE_ROWS), out.view(np.uint8), None, None)
    np.testing.assert_array_equal(out, rows[7 :: COLUMNS // READ_COLUMNS].T)
    snapshots = [each.snapshot() for each in monitors]
    asked, reads = features.counts().bytes_read, sum(each.reads for each in snapshots)
    features.close()
    from_disk, size = sum(each.bytes for each in snapshots), path.stat().st_size
    bound = 0.02 * size + 2 * ALIGNMENT * reads
    return {
        "columns": COLUMNS,
        "read": READ_COLUMNS,
        "rows": WIDE_ROWS,
        "file_bytes": size,
        "bytes_of_pages": asked,
        "bytes_from_disk": from_disk,
        "reads": reads,
        "share": from_disk / size,
        "bound_bytes": bound,
        "kept": from_disk <= bound,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all; the exit status is 1 where what is wanted was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=1024, help="bytes of each case's rows (default 1024 MiB)")
    parser.add_argument("--gathers", type=int, default=24, help=f"of {GATHER_ROWS} rows in a round, at most")
    parser.add_argument("--json", type=Path, metavar="F", help="write the result file")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    cases = [measure(given.folder, case, given.mib * 2**20, given.gathers) for case in CASES]
    result = {
        "schema": SCHEMA,
        "name": "arrow",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(given.folder),
        "cases": cases,
        "columns": measure_columns(given.folder),
    }
    print(json.dumps(result, indent=1))
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if all(each["kept"] for each in [*cases, result["columns"]]) else 1


if __name__ == "__main__":
    sys.exit(main())
