"""Bulk reads into a GPU's memory, over a CuPy that is made of numpy; tests/gpu has the real one."""

from __future__ import annotations

import ctypes
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bam
from bam.storage.bulk import kvikio_library
from bam.storage.bulk.memory import skipped_bytes

PCI = "0000:3B:00.0"


class FakeArray:
    """As much of a CuPy array as loading uses; the host cannot look into it but by :meth:`get`."""

    def __init__(self, host: np.ndarray) -> None:
        self._host = host
        self.data = SimpleNamespace(ptr=host.ctypes.data)
        self.shape, self.dtype = host.shape, host.dtype

    def __getitem__(self, key: slice) -> FakeArray:
        return FakeArray(self._host[key])

    def view(self, dtype: np.dtype[Any]) -> FakeArray:
        return FakeArray(self._host.view(dtype))

    def reshape(self, shape: tuple[int, ...]) -> FakeArray:
        return FakeArray(self._host.reshape(shape))

    def get(self) -> np.ndarray:
        return self._host.copy()


class FakeDevice(AbstractContextManager["FakeDevice"]):
    """GPU 0."""

    id = 0

    def use(self) -> None:
        """The only one."""

    def __exit__(self, *raised: object) -> None:
        """Nothing to leave."""


class FakeStream:
    """Counts how often it was waited for."""

    n_waits = 0
    ptr = 1

    def __init__(self, non_blocking: bool = False) -> None:
        assert non_blocking

    def synchronize(self) -> None:
        FakeStream.n_waits += 1


def memcpy(to: int, of: int, n_bytes: int, kind: int, stream: int) -> None:
    assert (kind, stream) == (1, 1)
    ctypes.memmove(to, of, n_bytes)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    runtime = SimpleNamespace(memcpyAsync=memcpy, memcpyHostToDevice=1, deviceGetPCIBusId=lambda number: PCI)
    cuda = SimpleNamespace(
        Device=FakeDevice,
        Stream=FakeStream,
        get_current_stream=lambda: FakeStream(non_blocking=True),
        alloc_pinned_memory=lambda n_bytes: bytearray(n_bytes),
        runtime=runtime,
    )
    module = SimpleNamespace(
        cuda=cuda, empty=lambda n, dtype: FakeArray(np.full(n, 7, dtype)), nullcontext=nullcontext
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(kvikio_library, "why_no_driver", lambda: "there is no driver (of this test)")
    return module


@pytest.mark.parametrize("rows", [None, slice(3, 900)])
def test_rows_get_there_through_pinned_memory(
    tmp_path: Path, cupy: SimpleNamespace, rows: slice | None
) -> None:
    content = np.random.default_rng(0).standard_normal((1000, 100)).astype(np.float32)
    np.save(tmp_path / "a.npy", content)
    before = FakeStream.n_waits
    settings = bam.BulkSettings(task_bytes="64KiB", threads=3, numa=True)
    loaded = bam.load_array(tmp_path / "a.npy", rows=rows, device="cuda", bulk=settings)
    expected = content if rows is None else content[rows]
    assert isinstance(loaded.rows, FakeArray)
    assert (loaded.rows.shape, loaded.rows.dtype) == (expected.shape, np.float32)
    np.testing.assert_array_equal(loaded.rows.get(), expected)
    assert FakeStream.n_waits > before + expected.nbytes // 65536
    report = loaded.report
    assert report.path.kind is bam.BulkPathKind.BOUNCE
    assert "pinned memory" in report.path.reason
    assert "of this test" in report.notes[0]
    assert "threads run on" in report.placement


def test_pinned_memory_lies_in_step_with_the_file(tmp_path: Path, cupy: SimpleNamespace) -> None:
    content = np.random.default_rng(1).integers(0, 9, (500, 64))
    np.save(tmp_path / "a.npy", content)
    loaded = bam.load_array(tmp_path / "a.npy", pinned=True)
    np.testing.assert_array_equal(loaded.rows, content)
    assert loaded.rows.ctypes.data % 4096 == skipped_bytes(128) == 128
