"""Checks of array groups, for the emulated GPU and a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from device_arrays import as_numpy

from bam.array.open_group import open_group
from bam.cache.device.gpu import Gpu
from bam.cache.device.settings import GpuSettings

SETTINGS = GpuSettings(queue_pairs=4, queue_slots=64, staging="2MiB")


def make_arrays(folder: Path) -> dict[str, Any]:
    """Six node types, five of which have rows of one size: more than fit into the kernels' arguments."""
    rng = np.random.default_rng(0)
    arrays = {
        "paper": rng.random((301, 96), dtype=np.float32),
        "author": rng.random((77, 96), dtype=np.float32),
        "field": rng.integers(0, 100, (40, 7), dtype=np.int8),
    }
    arrays |= {name: rng.random((9, 96), dtype=np.float32) for name in ("venue", "institute", "journal")}
    for name, rows in arrays.items():
        np.save(folder / f"{name}.npy", rows)
    return arrays


def check_group(gpu: Gpu, folder: Path) -> Any:
    """Random requests to all arrays together equal numpy's rows; returns the statistics."""
    arrays = make_arrays(folder)
    sources = {name: folder / f"{name}.npy" for name in arrays}
    with open_group(sources, page_bytes=512, cache="200 lines", gpu=SETTINGS, on=gpu) as group:
        rng = np.random.default_rng(1)
        for n in (50, 0, 120):
            ids = {name: rng.integers(-len(rows), len(rows), n) for name, rows in arrays.items()}
            found = group.gather(ids)
            for name, rows in arrays.items():
                np.testing.assert_array_equal(as_numpy(found[name]), rows[ids[name]])
        return group.stats()
