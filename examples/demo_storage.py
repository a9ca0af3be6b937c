"""Rows of a file much larger than the cache: every engine and policy beside numpy's memmap, on one trace.

Run by `make demo`. It writes a feature file, draws mini-batches of row ids (a few hot rows, many cold ones),
gathers them through each engine and eviction policy from a cold file, checks every row against numpy's, and
prints what was read. The fewest misses possible on this trace (Belady's optimum) stand beside the policies'.
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import bam
from bam.cache.belady import belady
from bam.cache.simulate import next_uses
from bam.config import EngineKind, PolicyKind, parse_cache_lines

DIM = 256
PAGE_BYTES = 4096
ROWS_PER_PAGE = PAGE_BYTES // (DIM * 4)

Ids = npt.NDArray[np.int64]
Rows = npt.NDArray[np.float32]
Uses = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Workload:
    """A feature file, and batches of row ids with the next use of each id's page."""

    file: Path
    rows: Rows
    batches: list[Ids]
    next_uses: list[Uses]

    @property
    def n_ids(self) -> int:
        return sum(len(ids) for ids in self.batches)

    def pages(self) -> Ids:
        """Page of each id of all batches."""
        return np.concatenate(self.batches) // ROWS_PER_PAGE


def main() -> None:
    """Make the workload, run every way of reading it, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("build"), help="where the file is made")
    parser.add_argument("--rows", type=int, default=131_072)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--batch-rows", type=int, default=4096)
    parser.add_argument("--cache", default="16MiB")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="demo-") as folder:
        work = make_workload(Path(folder) / "features.npy", chosen.rows, chosen.batches, chosen.batch_rows)
        print(
            f"{work.rows.nbytes >> 20} MiB of features, rows of {DIM} float32; cache {chosen.cache}; "
            f"{len(work.batches)} batches of {chosen.batch_rows} rows; the file is cold.\n"
            "numpy's cache is the kernel's: it may keep the whole file, which a larger one would not allow.\n"
        )
        print_header()
        show_memmap(work, "kernel's read-ahead", mmap.MADV_NORMAL)
        show_memmap(work, "no read-ahead", mmap.MADV_RANDOM)
        for engine in (EngineKind.MEMORY, EngineKind.FILE, EngineKind.URING):
            show_array(work, chosen.cache, engine, PolicyKind.CLOCK)
        for policy in PolicyKind:
            show_array(work, chosen.cache, EngineKind.AUTO, policy)
        show_optimum(work, chosen.cache)


def make_workload(file: Path, n_rows: int, n_batches: int, batch_rows: int) -> Workload:
    """Rows ordered hot first, and ids as neighbour sampling draws them: a few of them again and again."""
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((n_rows, DIM), dtype=np.float32)
    np.save(file, rows)
    with file.open("rb") as written:
        os.fsync(written.fileno())  # so that its pages can be dropped from memory
    ids = (generator.random((n_batches, batch_rows)) ** 3 * n_rows).astype(np.int64)
    uses = next_uses(ids.reshape(-1) // ROWS_PER_PAGE).reshape(ids.shape)
    return Workload(file, rows, list(ids), list(uses))


def drop_from_memory(file: Path) -> None:
    """Ask the kernel to forget the file's pages, so that the next run reads the disk."""
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_batches(work: Workload, gather: Callable[[Ids, Uses, Rows], object]) -> float:
    """Seconds that all batches take; every row is checked, outside the measured time."""
    seconds = 0.0
    for ids, uses in zip(work.batches, work.next_uses, strict=True):
        out = np.zeros((len(ids), DIM), np.float32)
        start = time.perf_counter()
        gather(ids, uses, out)
        seconds += time.perf_counter() - start
        np.testing.assert_array_equal(out, work.rows[ids])
    return seconds


def show_memmap(work: Workload, path: str, advice: int) -> None:
    """Lines of the table: numpy, whose cache is the kernel's and may hold the whole file."""
    drop_from_memory(work.file)
    rows = np.load(work.file, mmap_mode="r")
    rows._mmap.madvise(advice)
    before = bytes_read_by_process()
    seconds = run_batches(work, lambda ids, uses, out: np.take(rows, ids, axis=0, out=out))
    print_line("np.load(mmap_mode='r')", path, work.n_ids / seconds, bytes_read_by_process() - before)


def bytes_read_by_process() -> int:
    """Bytes that this process had the disk read, page faults included."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["read_bytes"])


def show_array(work: Workload, cache: str, engine: EngineKind, policy: PolicyKind) -> None:
    """One line of the table: this engine and policy, or why they do not run here."""
    drop_from_memory(work.file)
    name = f"bam {engine.value}, {policy.value}"
    try:
        array = bam.open_array(work.file, cache=cache, page_bytes=PAGE_BYTES, engine=engine, policy=policy)
    except bam.EngineUnavailable as refusal:
        print(f"{name:24}{refusal.reason}")
        return
    with array:
        seconds = run_batches(work, lambda ids, uses, out: array.gather(ids, out, next_use=uses))
        stats = array.stats()
        rate = work.n_ids / seconds
        print_line(name, path_of(array.info()), rate, stats.bytes_read, stats.reads, stats.hit_rate)


def path_of(info: bam.ArrayInfo) -> str:
    """Which path really ran."""
    return f"{info.engine.engine}, {info.reader}, {'direct' if info.engine.direct else 'buffered'}"


def show_optimum(work: Workload, cache: str) -> None:
    """The last line: what a policy that knows the whole trace would reach."""
    best = belady(work.pages(), parse_cache_lines(cache, PAGE_BYTES))
    print(f"{'best possible (Belady)':24}{'':26}{'':34}{best.hits / work.n_ids:9.1%}")


def print_header() -> None:
    print(f"{'':24}{'what ran':26}{'rows/s':>12}{'MiB read':>11}{'reads':>11}{'hit rate':>9}")


def print_line(
    name: str, path: str, rate: float, n_bytes: int, reads: int | None = None, hit_rate: float | None = None
) -> None:
    line = f"{name:24}{path:26}{rate:12,.0f}{n_bytes / 2**20:11.1f}"
    print(line if reads is None else f"{line}{reads:11,}{hit_rate:9.1%}")


if __name__ == "__main__":
    main()
