"""The GPU's kernels, run on the host's processor, ring QEMU's drives: no software controller takes part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import drives
import numpy as np
import pytest
from device_arrays import as_numpy, open_on
from emulated_gpu import EmulatedGpu

import bam
from bam.storage.nvme import NvmeStore, write_store
from bam.storage.nvme.raw_namespace import RawNamespace

ROWS = np.random.default_rng(4).random((700, 75), dtype=np.float32)  # 300 bytes: rows straddle pages


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    yield
    drives.close_all()


@pytest.mark.parametrize("pointers", ["prp", "sgl"])
@pytest.mark.parametrize(("serial", "page_bytes"), [("D512", 512), ("D4096", 65536)])
def test_rows_equal_the_array(tmp_path: Path, serial: str, page_bytes: int, pointers: str) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    settings = {"n_queue_pairs": 1, "depth": 8, "max_transfer_bytes": 65536, "data_pointer": pointers}
    on = drives.drive(serial, reserved_queue_pairs=4, **settings)
    write_store(tmp_path, [RawNamespace(on)], serials=[serial])
    source = bam.NvmeSource(NvmeStore([RawNamespace(on)]), "rows.npy")
    before = on.queue_stats().commands
    staging = page_bytes * 32
    with open_on(EmulatedGpu(), source, page_bytes=page_bytes, staging=staging, cache_lines=16) as array:
        opened = on.queue_stats().commands
        assert opened - before <= 4  # the header of the file
        for seed in range(2):
            ids = np.random.default_rng(seed).integers(0, len(ROWS), 100)
            np.testing.assert_array_equal(as_numpy(array.gather(ids)), ROWS[ids])
        assert on.queue_stats().commands == opened  # the host sent none


def test_queue_pairs_come_back_and_a_drive_survives(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    settings = {"n_queue_pairs": 1, "depth": 8, "max_transfer_bytes": 65536}
    on = drives.drive("DLAST", reserved_queue_pairs=4, **settings)
    write_store(tmp_path, [RawNamespace(on)], serials=["DLAST"])
    source = bam.NvmeSource(NvmeStore([RawNamespace(on)]), "rows.npy")
    for _ in range(2):
        with open_on(EmulatedGpu(), source) as array:
            np.testing.assert_array_equal(as_numpy(array.gather(np.arange(50))), ROWS[:50])
    on.reset()
    with open_on(EmulatedGpu(), source) as array:
        np.testing.assert_array_equal(as_numpy(array.gather(np.arange(50))), ROWS[:50])
