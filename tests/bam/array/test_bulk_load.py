"""`bam.load_array`: rows equal those of `bam.open_array`, from whatever holds them."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bam
from bam.errors import ConfigError, EngineUnavailable, FileChangedError, SourceError, StorageError
from bam.native import available
from bam.storage import FaultEngine, FaultKind, FaultRule, MemoryEngine, NativeFaultEngine
from bam.storage.bulk.memory import in_step, skipped_bytes

ROWS = np.random.default_rng(0).standard_normal((5003, 31)).astype(np.float32)
SMALL = bam.BulkSettings(task_bytes="64KiB", threads=2)


def npy(folder: Path) -> dict[str, object]:
    np.save(folder / "a.npy", ROWS)
    return {"source": folder / "a.npy"}


def raw(folder: Path) -> dict[str, object]:
    ROWS.tofile(folder / "a.bin")
    return {"source": folder / "a.bin", "dtype": np.float32, "shape": (-1, 31)}


def of_the_other_byte_order(folder: Path) -> dict[str, object]:
    np.save(folder / "a.npy", ROWS.astype(">f4"))
    return {"source": folder / "a.npy"}


def many_files(folder: Path) -> dict[str, object]:
    parts = np.array_split(ROWS, 3)
    for number, part in enumerate(parts):
        np.save(folder / f"{number}.npy", part)
    return {"source": [folder / f"{number}.npy" for number in range(3)]}


def striped(folder: Path) -> dict[str, object]:
    content = ROWS.tobytes()
    units = [content[begin : begin + 4096] for begin in range(0, len(content), 4096)]
    for number in range(2):
        (folder / f"{number}.bin").write_bytes(b"".join(units[number::2]))
    paths = [folder / f"{number}.bin" for number in range(2)]
    return {"source": bam.StripedSource(paths, 4096, np.float32, ROWS.shape)}


def in_memory(folder: Path) -> dict[str, object]:
    return {"source": ROWS}


def of_an_engine(folder: Path) -> dict[str, object]:
    content = np.concatenate([np.zeros(100, np.uint8), ROWS.view(np.uint8).reshape(-1)])
    layout = bam.layout.Layout.single("memory:0", 100, ROWS.nbytes)
    return {"source": bam.EngineSource(lambda: MemoryEngine([content]), layout, np.float32, ROWS.shape)}


@pytest.mark.parametrize(
    "make", [npy, raw, of_the_other_byte_order, many_files, striped, in_memory, of_an_engine]
)
@pytest.mark.parametrize("rows", [None, slice(100), slice(17, 4001), slice(-5, None), slice(9, 3)])
def test_rows_are_those_of_the_array(
    tmp_path: Path, make: Callable[[Path], dict[str, object]], rows: slice | None
) -> None:
    loaded = bam.load_array(**make(tmp_path), rows=rows, bulk=SMALL)
    expected = ROWS if rows is None else ROWS[rows]
    np.testing.assert_array_equal(loaded.rows, expected)
    assert loaded.rows.dtype == np.float32
    assert loaded.rows.flags.aligned
    assert loaded.rows.flags.writeable
    assert loaded.report.n_bytes == expected.nbytes
    assert loaded.report.path.kind is bam.BulkPathKind.POSIX
    assert "native" in str(loaded.report)


@pytest.mark.parametrize("shape", [(0, 8), (5, 0), (1,)])
def test_small_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    np.save(tmp_path / "a.npy", np.ones(shape, np.int16))
    loaded = bam.load_array(tmp_path / "a.npy")
    np.testing.assert_array_equal(loaded.rows, np.ones(shape, np.int16))


@pytest.mark.skipif(not available(), reason="the native library was not built")
@pytest.mark.parametrize("engine", ["file", "memory"])
def test_the_engine_that_was_named(tmp_path: Path, engine: str) -> None:
    loaded = bam.load_array(**npy(tmp_path), engine=engine)
    np.testing.assert_array_equal(loaded.rows, ROWS)
    assert loaded.report.engine == f"native ({engine})"


def test_an_error_has_its_place(tmp_path: Path) -> None:
    arguments = npy(tmp_path)

    def broken(engine: object) -> object:
        rule = FaultRule(FaultKind.ERROR, nth=3, errno=errno.EIO)
        return NativeFaultEngine(engine, [rule]) if available() else FaultEngine(engine, [rule])

    with pytest.raises(StorageError) as failed:
        bam.load_array(**arguments, bulk=SMALL, wrap=broken)
    assert (failed.value.file, failed.value.errno) == (str(arguments["source"]), errno.EIO)
    assert failed.value.offset >= 128


def test_what_cannot_be_is_refused_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = npy(tmp_path)
    for wrong in (
        {"rows": slice(0, 10, 2)},
        {"rows": 5},
        {"device": "tpu"},
        {"device": "cuda", "pinned": True},
    ):
        with pytest.raises(ConfigError):
            bam.load_array(**arguments, **wrong)
    with pytest.raises(ConfigError, match="byte order"):
        bam.load_array(**of_the_other_byte_order(tmp_path), device="cuda")
    with pytest.raises(SourceError):
        bam.load_array(tmp_path / "nothing.npy")
    npy(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", None)
    for without_gpu in ({"device": "cuda"}, {"pinned": True}):
        with pytest.raises(EngineUnavailable, match="extra cuda13"):
            bam.load_array(**arguments, **without_gpu)


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "gds"},
        {"task_bytes": 4000},
        {"task_bytes": "2GiB"},
        {"task_bytes": "100 kB"},
        {"threads": 0},
        {"threads": 1000},
        {"threads": True},
        {"timeout_s": 0},
    ],
)
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        bam.BulkSettings(**wrong)


def test_a_file_replaced_between_looking_and_opening(tmp_path: Path) -> None:
    from bam.array.load import RowLoader

    description = bam.NpySource(npy(tmp_path)["source"]).describe()
    (tmp_path / "a.npy").unlink()
    np.save(tmp_path / "a.npy", ROWS)
    with pytest.raises(FileChangedError):
        RowLoader(description, bam.BulkSettings())


def test_memory_in_step_with_a_file() -> None:
    for offset in (0, 64, 128, 4096 + 192, 7):
        memory = in_step(1000, offset)
        assert len(memory) == 1000
        assert (memory.ctypes.data - offset) % 4096 == 0 or (offset == 7 and memory.ctypes.data % 4096 == 0)
    assert skipped_bytes(100) == 0  # items would not be aligned
