"""`python -m bam.bench gpu FILE`: the GPU's read path against the ceilings of the machine, in one run.

  queue_requests, queue_requests_cached   NVMe commands answered without reading (gpu_queues.py)
  cold_gather      random 4 KiB rows of a cold file, all misses, against the disk's best rate
  cold_merged      neighbouring rows of a cold file that the controller reads together (gpu_merged.py)
  ssd_model        a modelled PCIe 5 drive, against the model's bandwidth
  hit_gather_4096, hit_gather_512         every row in the cache, against a plain gather of them in HBM
  constant_buffer  rows in pinned host memory, against a plain gather of them over PCIe

Bytes are verified before each figure is measured; those that need a file come last. Ceilings are kernels
of `ceilings.cu`, or the disk itself.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from ctypes import c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.device import DeviceArray
from bam.array.open import open_array
from bam.bench.files import drop_page_cache, ensure_file, expected_words
from bam.bench.gpu_figures import Figure, measured, median
from bam.bench.gpu_merged import merged_figure
from bam.bench.io import _iobench
from bam.bench.machine import command, commit, describe_machine
from bam.bench.random_reads import random_reads_per_s
from bam.cache.device.cupy_gpu import CupyGpu
from bam.cache.device.gpu import Grid
from bam.cache.device.settings import GpuSettings
from bam.native.nvrtc import KERNEL_FOLDER
from bam.storage.latency import LatencyEngine, PercentileLatency, SsdModel
from bam.storage.native import NativeEngine

log = logging.getLogger(__name__)

ROW_BYTES = 4096
HIT_ROWS = 200_000
COLD_ROWS = 120_000
#: Rounds of the cold figure beyond those of the others: its disk is the least steady part.
COLD_EXTRA_ROUNDS = 4
MODEL_ROWS = 200_000
VERIFIED_ROWS = 5_000
#: No figure takes longer on a machine that works.
FIGURE_TIMEOUT_S = 300.0
#: A PCIe 5 drive.
MODEL = SsdModel(iops=3e6, bytes_per_s=12.5e9, latency=PercentileLatency({50: 60.0}))


def run_gpu(
    path: Path,
    n_bytes: int,
    iobench: Path | None,
    rounds: int,
    save: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Run the benchmark; returns the content of its JSON file.

    `save` gets what there is after each figure; one that takes longer than FIGURE_TIMEOUT_S ends the process.

    Raises
    ------
    EngineUnavailable
        There is no GPU.
    """
    gpu = CupyGpu()
    gpu.add_kernels(KERNEL_FOLDER / "ceilings.cu")
    from bam.bench.gpu_queues import queue_figures

    measures: dict[str, Callable[[], dict[str, Figure]]] = {
        "hit_gather": lambda: _hit_figures(gpu, rounds),
        "constant_buffer": lambda: {"constant_buffer": _constant_figure(gpu, rounds)},
        "queues": lambda: queue_figures(gpu, rounds),
        "ssd_model": lambda: {"ssd_model": _model_figure(rounds)},
        "cold_gather": lambda: {"cold_gather": _cold_figure(path, n_bytes, iobench, rounds)},
        "cold_merged": lambda: {"cold_merged": merged_figure(path, n_bytes, rounds)},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "schema": 1,
        "name": "gpu",
        "commit": commit(),
        "command": command(),
        "machine": {**describe_machine(path.parent), "gpu": gpu.name()},
        "rounds": rounds,
    }
    for found in measured(measures, FIGURE_TIMEOUT_S):
        result |= found
        save(result)
    return result


def _verify(path: Path, n_bytes: int) -> None:
    """Random rows through the whole path, with a cache so small that most are read."""
    words = ROW_BYTES // 8
    shape = (n_bytes // ROW_BYTES, words)
    ids = np.random.default_rng(7).integers(0, shape[0], VERIFIED_ROWS)
    with open_array(
        path, dtype=np.uint64, shape=shape, engine="uring", cache="1024 lines", device="cuda"
    ) as array:
        rows = array.gather(ids).get()
    for row_id, row in zip(ids.tolist(), rows, strict=True):
        np.testing.assert_array_equal(row, expected_words(row_id * words, words))


def _plain_gather_s(gpu: CupyGpu, source: int, ids: Any, out: Any, row_bytes: int, rounds: int) -> float:
    """Median time of the plain kernel for rows of `row_bytes` from `source`."""
    arguments = [
        c_void_p(source),
        c_void_p(ids.address),
        c_void_p(out.address),
        c_uint64(ids.shape[0]),
        c_uint64(row_bytes // 16),
    ]
    grid = Grid(4 * gpu.grids["bam_gather_rows"].blocks, 256)
    times = [
        gpu.seconds(lambda: [gpu.launch("bam_plain_gather", grid, arguments) for _ in range(10)]) / 10
        for _ in range(rounds + 1)
    ]
    return median(times[1:])


def _hit_figures(gpu: CupyGpu, rounds: int) -> dict[str, Figure]:
    found = {}
    for row_bytes, n_rows in ((4096, HIT_ROWS), (512, 4 * HIT_ROWS)):
        rows = np.arange(n_rows * row_bytes // 8, dtype=np.uint64).reshape(n_rows, -1)
        ids = np.random.default_rng(row_bytes).integers(0, n_rows, n_rows)
        settings = GpuSettings(staging=n_rows * row_bytes, flights=1, host_threads=4)
        cache = f"{2 * n_rows} lines"
        with open_array(rows, cache=cache, page_bytes=row_bytes, device="cuda", gpu=settings) as array:
            array.gather(np.arange(n_rows))
            value, notes = _steady_gather_s(array, rows, ids, rounds)
            source = gpu.upload(rows.view(np.uint8).reshape(-1))
            out = gpu.memory(n_rows * row_bytes)
            ceiling = _plain_gather_s(gpu, source.address, gpu.vector(ids, np.int64), out, row_bytes, rounds)
        n_bytes = n_rows * row_bytes / 1e9
        found[f"hit_gather_{row_bytes}"] = Figure(n_bytes / value, "GB/s", n_bytes / ceiling, notes)
    return found


def _steady_gather_s(
    array: DeviceArray, rows: npt.NDArray[Any], ids: npt.NDArray[Any], rounds: int
) -> tuple[float, dict[str, float]]:
    """Median time of a gather whose rows are all there, ten enqueued in a row, and the host's share of it."""
    gpu = array.store.gpu
    assert isinstance(gpu, CupyGpu)
    on_gpu = gpu.vector(ids, np.int64).owner[0]
    out = array.gather(on_gpu)
    np.testing.assert_array_equal(out.get(), rows[ids])
    before = array.stats()
    times, enqueued = [], []
    for _ in range(rounds + 1):
        running: list[Any] = []

        def enqueue(running: list[Any] = running) -> None:
            begin = time.perf_counter()
            for _ in range(10):
                running.append(array.begin(on_gpu, out))
                running[-1].launch()
            enqueued.append((time.perf_counter() - begin) / 10)

        times.append(gpu.seconds(enqueue) / 10)
        for gather in running:
            gather.wait()
    counted = array.stats()
    assert counted.misses == before.misses, "a row was not in the cache"
    np.testing.assert_array_equal(out.get(), rows[ids])
    return median(times[1:]), {"enqueue_us": 1e6 * median(enqueued[1:])}


def _constant_figure(gpu: CupyGpu, rounds: int) -> Figure:
    rows = np.arange(HIT_ROWS * ROW_BYTES // 8, dtype=np.uint64).reshape(HIT_ROWS, -1)
    ids = np.random.default_rng(3).integers(0, HIT_ROWS, HIT_ROWS)
    settings = GpuSettings(staging=HIT_ROWS * ROW_BYTES, flights=1, constant_rows=HIT_ROWS, host_threads=4)
    with open_array(rows, cache="1024 lines", device="cuda", gpu=settings) as array:
        value, notes = _steady_gather_s(array, rows, ids, rounds)
        pinned, out = gpu.pinned(rows.nbytes), gpu.memory(rows.nbytes)
        pinned.array[:] = rows.view(np.uint8).reshape(-1)
        ceiling = _plain_gather_s(gpu, pinned.address, gpu.vector(ids, np.int64), out, ROW_BYTES, rounds)
    n_bytes = rows.nbytes / 1e9
    return Figure(n_bytes / value, "GB/s", n_bytes / ceiling, notes)


def _gather_rate(array: DeviceArray, n_rows: int, seed: int) -> tuple[float, dict[str, float]]:
    """Reads a second of one gather of distinct rows, of which few are cached, and what it cost."""
    ids = np.random.default_rng(seed).permutation(len(array))[:n_rows]
    before, used, begin = array.stats(), _cpu_s(), time.perf_counter()
    array.gather(ids)
    elapsed, cpu = time.perf_counter() - begin, _cpu_s() - used
    counted = array.stats()
    reads = counted.reads - before.reads
    return reads / elapsed, {
        "host_cpu_s_per_100k_reads": cpu / reads * 1e5 if reads else 0.0,
    }


def _model_figure(rounds: int) -> Figure:
    rows = np.arange(2**27, dtype=np.uint64).reshape(-1, ROW_BYTES // 8)  # 1 GiB

    def wrap(engine: Any) -> Any:
        assert isinstance(engine, NativeEngine)
        return LatencyEngine(engine, MODEL)

    settings = GpuSettings(queue_pairs=64, staging="256MiB", flights=8, host_threads=12, read_depth=256)
    with open_array(rows, cache="16384 lines", device="cuda", gpu=settings, wrap=wrap) as array:
        rates = [_gather_rate(array, MODEL_ROWS, seed) for seed in range(rounds + 1)][1:]
    rate = median([found[0] for found in rates])
    ceiling = min(MODEL.bytes_per_s, MODEL.iops * ROW_BYTES) / 1e9
    return Figure(rate * ROW_BYTES / 1e9, "GB/s", ceiling, rates[-1][1])


def _cold_figure(path: Path, n_bytes: int, iobench: Path | None, rounds: int) -> Figure:
    ensure_file(path, n_bytes)
    _verify(path, n_bytes)
    notes: dict[str, float] = {}
    if iobench is not None:
        notes["iobench_reads_per_s"] = max(value for _, _, value in _iobench(iobench, path, n_bytes))
    shape = (n_bytes // ROW_BYTES, ROW_BYTES // 8)
    direct, rates = [], []
    settings = GpuSettings(read_depth=512)
    with open_array(
        path, dtype=np.uint64, shape=shape, engine="uring", cache="16384 lines", device="cuda", gpu=settings
    ) as array:
        drop_page_cache(path)
        for number in range(rounds + COLD_EXTRA_ROUNDS):
            # Before and after: the disk's own rate changes by a tenth from second to second.
            around = [_direct_rate(path, 2 * number)]
            found = _gather_rate(array, cold_rows(around[0]), 900 + number)
            around.append(_direct_rate(path, 2 * number + 1))
            direct.append(sum(around) / 2)
            rates.append(found[0])
            log.info("round %d: %.0f reads/s, direct %.0f and %.0f", number, found[0], *around)
    notes |= found[1] | {
        "direct_reads_per_s": median(direct),
        "ratio_to_direct": median([rate / beside for rate, beside in zip(rates, direct, strict=True)]),
    }
    return Figure(median(rates), "reads/s", notes.get("iobench_reads_per_s", median(direct)), notes)


def _direct_rate(path: Path, seed: int) -> float:
    return random_reads_per_s(str(path), 256, ROW_BYTES, seed=seed, seconds=0.7)


def cold_rows(reads_per_s: float) -> int:
    """Rows of one round: three seconds' worth on a disk of that rate, at most COLD_ROWS."""
    return max(1, min(COLD_ROWS, int(3 * reads_per_s)))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
