"""Bulk reads into the memory of a real GPU, natively and through kvikio."""

from __future__ import annotations

import errno
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bam
from bam.bench.bulk import BulkPlan, run_bulk
from bam.layout import Layout
from bam.storage.bulk import BulkEngineKind, BulkRange, open_bulk_reader
from bam.storage.bulk.settings import Destination

KVIKIO = importlib.util.find_spec("kvikio") is not None
ENGINES = [
    "native",
    pytest.param("kvikio", marks=pytest.mark.skipif(not KVIKIO, reason="kvikio is not installed")),
]


@pytest.fixture(autouse=True)
def _needs_a_gpu(gpu: Any) -> None:
    """Skips, visibly, where there is none."""


@pytest.fixture
def rows(tmp_path: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    """21 MB behind a header, no multiple of any block."""
    found = np.random.default_rng(0).standard_normal((40_013, 131)).astype(np.float32)
    np.save(tmp_path / "a.npy", found)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize(("task", "threads"), [("64KiB", 16), ("1MiB", 4), ("16MiB", 1)])
def test_rows_in_gpu_memory_are_those_of_the_file(
    tmp_path: Path, rows: Any, engine: str, direct: bool, task: str, threads: int
) -> None:
    import cupy

    settings = bam.BulkSettings(engine, task, threads, direct, numa=True)
    for wanted in (None, slice(1000), slice(17, 39_999)):
        loaded = bam.load_array(tmp_path / "a.npy", rows=wanted, device="cuda", bulk=settings)
        expected = rows if wanted is None else rows[wanted]
        assert isinstance(loaded.rows, cupy.ndarray)
        # Used at once by another stream than those it was read on.
        with cupy.cuda.Stream(non_blocking=True) as stream:
            copied = loaded.rows + 0
            stream.synchronize()
        np.testing.assert_array_equal(copied.get(), expected)
    print(loaded.report)
    assert loaded.report.engine.startswith(engine)
    assert loaded.report.path.reason
    loaded_by_os = os.path.isdir("/proc/driver/nvidia-fs")
    if engine == "native":
        assert loaded.report.path.kind is bam.BulkPathKind.BOUNCE
    elif not loaded_by_os:
        assert loaded.report.path.kind in (bam.BulkPathKind.BOUNCE, bam.BulkPathKind.P2P)


def test_auto_says_what_it_took(tmp_path: Path, rows: Any) -> None:
    loaded = bam.load_array(tmp_path / "a.npy", device="cuda")
    np.testing.assert_array_equal(loaded.rows.get(), rows)
    if KVIKIO:
        assert loaded.report.engine == "kvikio"
    else:
        assert "kvikio is not available" in loaded.report.notes[0]


def test_memory_in_use_by_earlier_kernels_is_not_read_to(tmp_path: Path, rows: Any) -> None:
    """CuPy hands freed memory out again while kernels of the stream still write to it."""
    import cupy

    for _ in range(10):
        scratch = cupy.empty(rows.nbytes, np.uint8)
        for _ in range(50):
            scratch += 1
        del scratch
        loaded = bam.load_array(tmp_path / "a.npy", device="cuda")
        np.testing.assert_array_equal(loaded.rows.get(), rows)


def test_pinned_memory(tmp_path: Path, rows: Any) -> None:
    import cupy

    loaded = bam.load_array(tmp_path / "a.npy", pinned=True)
    np.testing.assert_array_equal(loaded.rows, rows)
    attributes = cupy.cuda.runtime.pointerGetAttributes(loaded.rows.ctypes.data)
    assert attributes.type == 1  # cudaMemoryTypeHost: a GPU may read it in place


@pytest.mark.parametrize("engine", ENGINES)
def test_a_file_that_was_cut_is_an_error_with_its_place(tmp_path: Path, engine: str) -> None:
    from bam.cache.device.bulk_memory import GpuMemory

    path, n_bytes = str(tmp_path / "a.bin"), 8 * 2**20
    np.zeros(n_bytes, np.uint8).tofile(path)
    settings = bam.BulkSettings(engine, "1MiB", 4)
    with open_bulk_reader(Layout.single(path, 0, n_bytes), settings, paths=[path], to_gpu=True) as reader:
        os.truncate(path, 3 * 2**20 + 5)
        with pytest.raises(bam.TruncatedFileError) as failed:
            reader.read([BulkRange(0, n_bytes)], GpuMemory.new(n_bytes))
        assert (failed.value.file, failed.value.errno) == (path, errno.ENODATA)


def test_the_benchmark_runs(tmp_path: Path) -> None:
    engines = [BulkEngineKind.NATIVE, *([BulkEngineKind.KVIKIO] if KVIKIO else [])]
    plan = BulkPlan(8 * 2**20, 1, engines, tuple(Destination), [2**20], [4])
    result = run_bulk(tmp_path / "bench.bin", 16 * 2**20, plan)
    assert result["unavailable"] == {}
    assert {point["destination"] for point in result["points"]} == {"host", "pinned", "cuda"}
    assert result["ceilings"]["copy_to_gpu"]["median"] > 0
    assert result["machine"]["gpu"]
