"""What the tests of arrays on a GPU share: they run on the emulated one here, on a real one in tests/gpu."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.device import DeviceArray
from bam.array.open_reader import open_device_array
from bam.array.sources import as_source
from bam.cache.device.gpu import Gpu, Grid
from bam.cache.device.settings import GpuSettings
from bam.config import StoreConfig
from bam.errors import StorageError
from bam.native import nvrtc
from bam.storage.engine import Engine

PIN_MASK = (2**20 - 1) << 2


def open_on(
    gpu: Gpu, rows: Any, *, wrap: Callable[[Engine], Engine] | None = None, **settings: Any
) -> DeviceArray:
    """An array on `gpu`; settings of the store and of the GPU's part together."""
    on_gpu = {name: settings.pop(name) for name in list(settings) if name in GpuSettings.__dataclass_fields__}
    small = {"queue_pairs": 4, "queue_slots": 16, "staging": "64KiB", "read_depth": 32}
    description = as_source(rows, None, None).describe()
    return open_device_array(
        description,
        StoreConfig(**{"timeout_s": 20.0, **settings}),
        GpuSettings(**{**small, **on_gpu}),
        wrap,
        gpu,
    )


def as_numpy(rows: Any) -> npt.NDArray[Any]:
    return rows.get() if hasattr(rows, "get") else np.asarray(rows)


def read_items(gpu: Any, array: DeviceArray, indices: npt.NDArray[np.uint64], blocks: int = 2) -> Any:
    """Items of a uint32 array that a kernel reads by itself, and the view it read through."""
    if hasattr(gpu, "add_kernels"):  # a real one
        gpu.add_kernels(nvrtc.KERNEL_FOLDER / "checks.cu")
    out, on_gpu, view = gpu.memory(4 * len(indices)), gpu.upload(indices.view(np.uint8)), array.view()
    arguments = [
        c_void_p(view.address),
        c_void_p(on_gpu.address),
        c_uint64(len(indices)),
        c_void_p(out.address),
    ]
    gpu.launch("bam_read_items", Grid(blocks, 64), arguments)
    return gpu.read(out.address, out.n_bytes).view(np.uint32), view


def pinned_lines(array: DeviceArray) -> int:
    """Lines that somebody holds."""
    cache = array.store.cache
    assert cache is not None
    words = array.store.gpu.read(cache.words.address, cache.words.n_bytes).view(np.uint64)
    return int((words & np.uint64(PIN_MASK) != 0).sum())


@dataclass(frozen=True)
class Shape:
    """Rows, pages and cache of one random run."""

    n_rows: int
    row_bytes: int
    page_bytes: int
    cache_lines: int
    window: int
    policy: str


def check_random_batches(
    gpu: Gpu, shape: Shape, n_batches: int, batch_rows: int, wrap: Any, seed: int
) -> int:
    """Batches, `window` of them on their way at a time, equal `np.take` bit for bit.

    A failed one is asked for again. Returns how many failed.
    """
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (shape.n_rows, shape.row_bytes), dtype=np.uint8)
    settings = {"page_bytes": shape.page_bytes, "cache_lines": shape.cache_lines, "policy": shape.policy}
    failed = 0
    # every other run reads neighbours together
    settings["merge_bytes"], settings["bridge_bytes"] = seed % 2 * 16384, 512
    with open_on(gpu, rows, wrap=wrap, flights=2, staging=shape.page_bytes * 64, **settings) as array:
        running: list[tuple[Any, npt.NDArray[np.int64]]] = []
        for number in range(n_batches + shape.window):
            if number < n_batches:
                # few popular rows and many others
                drawn = (shape.n_rows * rng.random(rng.integers(1, batch_rows + 1)) ** 2).astype(np.int64)
                ids = np.where(rng.random(len(drawn)) < 0.1, drawn - shape.n_rows, drawn)
                running.append((array.begin(ids, next_use=rng.integers(0, 100, len(ids))), ids))
            if number >= shape.window - 1 and running:
                gather, ids = running.pop(0)
                for _ in range(200):
                    try:
                        got = as_numpy(gather.wait())
                        break
                    except StorageError:
                        failed += 1
                        gather = array.begin(ids)
                np.testing.assert_array_equal(got, rows[ids])
        while running:
            running.pop(0)[0].wait()
        assert pinned_lines(array) == 0
    return failed
