"""The rate of requests through NVMe queues that a host thread answers at once, without reading."""

from __future__ import annotations

from contextlib import ExitStack
from ctypes import c_uint32, c_uint64, c_void_p

import numpy as np

from bam.bench.gpu_figures import Figure, median
from bam.cache.device.cupy_gpu import CupyGpu
from bam.cache.device.gpu import Grid
from bam.cache.device.memory import CacheMemory, StoreMemory
from bam.cache.device.settings import GpuSettings
from bam.cache.device.structs import FLIGHT_REPORT, SQE_BYTES, CBatchPart, CRowBatch
from bam.cache.page_cache import PolicyKind
from bam.cache.settings import CacheSettings
from bam.native import function

N_REQUESTS = 1 << 19
N_PAIRS = 64
PAGE_BYTES = 512


def queue_figures(gpu: CupyGpu, rounds: int) -> dict[str, Figure]:
    """`queue_requests`, and with a look-up that misses in front of each, `queue_requests_cached`.

    The ceiling is the rate at which threads write 64 bytes for each request to pinned memory.
    """
    ceiling = _entries_per_s(gpu, rounds)
    found = {}
    for name, cached in (("queue_requests", False), ("queue_requests_cached", True)):
        rate = _requests_per_s(gpu, cached, rounds)
        found[name] = Figure(rate / 1e6, "M requests/s", ceiling / 1e6)
    return found


def _requests_per_s(gpu: CupyGpu, cached: bool, rounds: int) -> float:
    """Median over the rounds; every round asks for pages that were not asked for before."""
    settings = GpuSettings(queue_pairs=N_PAIRS, staging=N_REQUESTS * PAGE_BYTES, flights=1)
    cache = None
    if cached:
        cache = CacheMemory.create(gpu, CacheSettings(2 * N_REQUESTS, PAGE_BYTES, PolicyKind.CLOCK))
    memory = StoreMemory.create(gpu, PAGE_BYTES, 2**40, cache, settings, 10.0)
    store = memory.store
    reports, out = gpu.pinned(FLIGHT_REPORT.itemsize), gpu.memory(N_REQUESTS * PAGE_BYTES)
    rates = []
    with ExitStack() as closing:
        pairs = memory.queues.pairs
        echo = function("bam_echo_create", c_void_p, [c_void_p, c_uint32])(pairs, len(pairs))
        closing.callback(function("bam_echo_destroy", None, [c_void_p]), echo)
        for number in range(rounds + 1):
            first = number * N_REQUESTS
            ids = gpu.vector(np.random.default_rng(number).permutation(N_REQUESTS) + first, np.int64)
            batch = CRowBatch(ids.address, None, None, 0, N_REQUESTS, 1, PAGE_BYTES, 1, 0, 0)
            batch.few_parts[0] = CBatchPart(0, 2**31, 0, out.address, None)

            def ask(batch: CRowBatch = batch) -> None:
                gpu.launch("bam_submit_rows", gpu.grids["bam_submit_rows"], [store, batch])
                gpu.launch("bam_drain_flight", gpu.grids["bam_drain_flight"], [store, c_uint64(0)])

            seconds = gpu.seconds(ask)
            gpu.launch("bam_fill_lines", gpu.grids["bam_fill_lines"], [store, batch])
            report = c_void_p(reports.address)
            gpu.launch("bam_gather_rows", gpu.grids["bam_gather_rows"], [store, batch, report])
            gpu.mark().wait()
            found = reports.array.view(FLIGHT_REPORT)[0]
            assert found["result"] == 0, f"a request failed: {found}"
            assert found["claims" if cached else "bypasses"] > N_REQUESTS * 0.9, found
            if number:  # the first one warms up
                rates.append(int(found["submitted"]) / seconds)
    return median(rates)


def _entries_per_s(gpu: CupyGpu, rounds: int) -> float:
    n_slots = N_PAIRS * 1024
    ring = gpu.pinned(n_slots * SQE_BYTES)
    grid = Grid(gpu.grids["bam_submit_rows"].blocks, 512)
    arguments = [c_void_p(ring.address), c_uint64(N_REQUESTS), c_uint64(n_slots)]
    seconds = [
        gpu.seconds(lambda: gpu.launch("bam_write_entries", grid, arguments)) for _ in range(rounds + 1)
    ]
    return N_REQUESTS / median(seconds[1:])
