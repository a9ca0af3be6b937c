from __future__ import annotations

import errno
import gc
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from child_process import take_rows, take_rows_for_ever
from npy_files import npy_bytes, write

import bam
from bam.native import available
from bam.storage.engine import Engine, ReadSpan

READERS = ["reference", "native"] if available() else ["reference"]
MATRIX = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = write(tmp_path, npy_bytes(MATRIX))
    os.utime(found, ns=(0, 10**18))
    return found


@pytest.fixture
def array(path: Path, reader: str) -> Any:
    with bam.open_array(path, reader=reader, cache="4 lines", page_bytes=512) as opened:
        yield opened


def test_what_it_is(array: bam.VirtualArray, path: Path, reader: str) -> None:
    assert (array.shape, array.dtype, array.ndim, array.size) == ((50, 7), np.float32, 2, 350)
    assert (len(array), array.nbytes, array.row_bytes) == (50, MATRIX.nbytes, 28)
    assert repr(array) == f"<bam.VirtualArray (50, 7) float32 in {path}>"
    info = array.info()
    assert (info.reader, info.page_bytes, info.cache_lines, info.policy) == (reader, 512, 4, "clock")
    assert info.cache == ("host" if reader == "native" else "reference")
    assert info.engine.engine in ("uring", "file")


@pytest.mark.parametrize(
    "key",
    [0, -1, np.int8(3), slice(None), slice(40, 2, -7), slice(3, 3), [1, 1, -50], (3, 4), (slice(2, 5), 1), [],
     ([4, 2], [1, 6]), (..., 3), MATRIX[:, 0] > 0, MATRIX > 1, np.zeros((2, 0, 3), int), [[1, 2], [3, 4]]],
)  # fmt: skip
def test_indexing(array: bam.VirtualArray, key: Any) -> None:
    expected = MATRIX[key]
    found = array[key]
    assert np.shape(found) == expected.shape
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


def test_results_belong_to_the_caller(array: bam.VirtualArray) -> None:
    rows = array[[1, 2]]
    rows[:] = 0
    np.testing.assert_array_equal(array[1], MATRIX[1])


def test_iteration(array: bam.VirtualArray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bam.array.virtual._ITERATION_BYTES", 3 * 28)
    np.testing.assert_array_equal(np.stack(list(array)), MATRIX)


def test_long_slices_are_read_in_parts(array: bam.VirtualArray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bam.array.virtual._ROWS_PER_READ", 7)
    for key in [slice(None), slice(None, None, -3), slice(8, 1), slice(1, 22)]:
        np.testing.assert_array_equal(array[key], MATRIX[key])


def test_materialising(array: bam.VirtualArray) -> None:
    np.testing.assert_array_equal(np.asarray(array), MATRIX)
    np.testing.assert_array_equal(np.array(array, dtype="f8", copy=True), MATRIX.astype("f8"))
    np.testing.assert_array_equal(np.from_dlpack(array), MATRIX)
    assert torch.equal(torch.from_dlpack(array), torch.from_numpy(MATRIX))
    assert torch.equal(torch.as_tensor(np.asarray(array)), torch.from_numpy(MATRIX))
    with pytest.raises(ValueError, match="copy"):
        np.array(array, copy=False)
    with pytest.raises(BufferError):
        array.__dlpack__(copy=False)


class TestGather:
    IDS = np.array([3, 49, 3, 0, -1])

    def test_new_memory(self, array: bam.VirtualArray) -> None:
        for ids in [self.IDS, self.IDS.tolist(), torch.from_numpy(self.IDS), self.IDS.astype(">i2")]:
            np.testing.assert_array_equal(array.gather(ids), np.take(MATRIX, self.IDS, axis=0))
        np.testing.assert_array_equal(array.gather(self.IDS[::-2]), MATRIX[self.IDS[::-2]])
        assert array.gather([]).shape == (0, 7)
        assert array.gather([[1], [2]]).shape == (2, 1, 7)
        assert array.gather(3).shape == (7,)

    def test_into_an_array(self, array: bam.VirtualArray) -> None:
        out = np.zeros((5, 7), np.float32)
        assert array.gather(self.IDS, out) is out
        np.testing.assert_array_equal(out, MATRIX[self.IDS])

    def test_into_a_part_of_an_array(self, array: bam.VirtualArray) -> None:
        whole = np.zeros((9, 7), np.float32)
        array.gather(self.IDS, out=whole[2:7])
        np.testing.assert_array_equal(whole[2:7], MATRIX[self.IDS])
        assert not whole[:2].any()
        assert not whole[7:].any()

    def test_into_a_tensor(self, array: bam.VirtualArray) -> None:
        out = torch.zeros(5, 7)
        assert array.gather(self.IDS, out=out) is out
        np.testing.assert_array_equal(out.numpy(), MATRIX[self.IDS])

    def test_into_the_memory_of_the_ids(self, array: bam.VirtualArray) -> None:
        memory = np.zeros((6, 7), np.float32)
        ids = memory.reshape(-1).view(np.int64)[:6]
        ids[:] = expected = [3, 49, 3, 0, 20, 21]
        array.gather(ids, out=memory)
        np.testing.assert_array_equal(memory, MATRIX[expected])

    def test_outputs_that_do_not_fit(self, array: bam.VirtualArray) -> None:
        read_only = np.zeros((5, 7), np.float32)
        read_only.flags.writeable = False
        for out in [
            np.zeros((5, 7)),
            np.zeros((5, 7), ">f4"),
            np.zeros((4, 7), np.float32),
            np.zeros((5, 7, 1), np.float32),
            np.zeros(35, np.float32),
            np.zeros((7, 5), np.float32).T,
            np.zeros((5, 14), np.float32)[:, ::2],
            read_only,
            torch.zeros(5, 7, dtype=torch.float64),
            torch.zeros(7, 5).T,
            torch.zeros(5, 7, requires_grad=True),
            torch.zeros(5, 7, device="meta"),
            torch.zeros(5, 7).to_sparse(),
            [[0.0] * 7] * 5,
            "out",
        ]:
            before = array.stats().rows
            with pytest.raises(bam.ConfigError, match="out="):
                array.gather(self.IDS, out=out)
            assert array.stats().rows == before

    def test_next_use(self, array: bam.VirtualArray) -> None:
        for uses in [np.arange(5), np.full(5, 2**64 - 1, np.uint64), [5, 4, 3, 2, 1]]:
            np.testing.assert_array_equal(array.gather(self.IDS, next_use=uses), MATRIX[self.IDS])
        for uses in [np.arange(4), np.arange(5.0), -np.arange(5), 3]:
            with pytest.raises(bam.ConfigError, match="next_use"):
                array.gather(self.IDS, next_use=uses)

    def test_masks_are_not_ids(self, array: bam.VirtualArray) -> None:
        with pytest.raises(bam.RowIndexTypeError):
            array.gather(np.ones(50, bool))


class TestGatherRows:
    """The loaders' way: bytes, to any rows of a larger output, without conversions."""

    IDS = np.array([3, 49, 3, 0])

    @pytest.mark.parametrize("stored", ["<f4", ">f4"])
    def test_rows_of_a_larger_output(self, reader: str, stored: str) -> None:
        out = np.full((9, 28), 7, np.uint8)
        places = np.array([8, 0, 5, 2])
        with bam.open_array(MATRIX.astype(stored), reader=reader) as array:
            array.gather_rows(self.IDS, out, out_rows=places, next_use=np.arange(4, dtype=np.uint64))
            np.testing.assert_array_equal(out[places].view(np.float32), MATRIX[self.IDS])
            assert (np.delete(out, places, axis=0) == 7).all()
            array.gather_rows(self.IDS, out[:4])
            np.testing.assert_array_equal(out[:4].view(np.float32), MATRIX[self.IDS])
            array.gather_rows(self.IDS[:0], out[:0])

    @pytest.mark.parametrize(
        "change",
        [
            {"ids": np.array([1, 2, 3, 4], np.int32)},
            {"ids": np.arange(8)[::2]},
            {"ids": np.zeros((2, 2), np.int64)},
            {"ids": [1, 2, 3, 4]},
            {"out": np.zeros((9, 7), np.float32)},
            {"out": np.zeros((9, 27), np.uint8)},
            {"out": np.zeros((28, 9), np.uint8).T},
            {"out_rows": np.array([0, 1, 2, 9])},
            {"out_rows": np.array([0, 1, -1, 3])},
            {"out_rows": np.array([0, 1, 2])},
            {"out_rows": np.array([0, 1, 2, 3], np.int32)},
            {"next_use": np.arange(4)},
            {"next_use": np.arange(3, dtype=np.uint64)},
        ],
    )
    def test_what_does_not_fit(self, array: bam.VirtualArray, change: dict[str, Any]) -> None:
        arguments = {"ids": self.IDS, "out": np.zeros((9, 28), np.uint8), **change}
        with pytest.raises(bam.ConfigError, match=next(iter(change))):
            array.gather_rows(**arguments)
        assert array.stats().gathers == 0

    @pytest.mark.parametrize("wrong", [-1, 50])
    def test_ids_out_of_range(self, array: bam.VirtualArray, wrong: int) -> None:
        with pytest.raises(bam.RowOutOfRange) as caught:
            array.gather_rows(np.array([0, wrong]), np.zeros((2, 28), np.uint8))
        assert (caught.value.row_id, caught.value.position) == (wrong, 1)
        with pytest.raises(bam.RowOutOfRange) as caught:
            array.note_next_use(np.array([0, wrong]), np.zeros(2, np.uint64))
        assert (caught.value.row_id, caught.value.position) == (wrong, 1)

    @pytest.mark.parametrize("wrong", [(-1, 0), (2**64, 0), (0, -1), (0, 2**64)])
    def test_uses_out_of_range(self, array: bam.VirtualArray, wrong: tuple[int, int]) -> None:
        with pytest.raises(bam.ConfigError):
            array.forget_next_uses(*wrong)


@pytest.mark.parametrize("key", [50, -51, [0, 50], np.array([2**64 - 1], np.uint64)])
def test_out_of_range(array: bam.VirtualArray, key: Any) -> None:
    for select in (array.__getitem__, array.gather):
        with pytest.raises(bam.RowOutOfRange) as caught:
            select(key)
        assert caught.value.n_rows == 50
    assert array.stats().reads == 0
    np.testing.assert_array_equal(array[:], MATRIX)


@pytest.mark.parametrize(
    "dtype",
    [">f4", "<f4", ">f8", ">i2", ">c8", ">c16", ">U3", "S5", "?", "u1", ">M8[ns]", "V5", ">f2",
     [("a", ">i4"), ("b", "<f8"), ("c", "S3")], [("a", "<i2", (2, 3)), ("b", ">u8")]],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_byte_orders(reader: str, dtype: npt.DTypeLike, shape: tuple[int, ...], tmp_path: Path) -> None:
    items = np.random.default_rng(0).integers(0, 2, 20 * 4 * np.dtype(dtype).itemsize, np.uint8)
    if np.dtype(dtype).kind == "U":
        items = np.frombuffer("".join(map(chr, range(65, 65 + 240))).encode("utf-32-be"), np.uint8)
    n_items = 20 * int(np.prod(shape))
    stored = items[: n_items * np.dtype(dtype).itemsize].view(dtype).reshape(20, *shape)
    ids = [3, 19, 3, 0]
    native = stored.astype(stored.dtype.newbyteorder("="))
    path = write(tmp_path, npy_bytes(stored, (2, 0)))
    for source in (path, stored):
        with bam.open_array(source, reader=reader) as array:
            assert array.dtype == native.dtype
            assert array.dtype.isnative
            assert array[ids].tobytes() == native[ids].tobytes()
            out = np.zeros_like(native[:4])
            array.gather(ids, out=out)
            assert out.tobytes() == native[ids].tobytes()
            assert array[3].tobytes() == native[3].tobytes()
    np.testing.assert_array_equal(stored.astype(native.dtype), native)  # the source is as it was


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (0, 0), (4, 0, 3)])
def test_arrays_without_bytes(reader: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    empty = np.zeros(shape, np.float32)
    raw = write(tmp_path, b"", "raw")
    sources: list[Any] = [empty, write(tmp_path, npy_bytes(empty)), bam.RawSource(raw, "<f4", shape)]
    for source in sources:
        with bam.open_array(source, reader=reader) as array:
            assert array[:].shape == shape
            assert array[::-1].shape == shape
            assert [row.shape for row in array] == [shape[1:]] * shape[0]
            if shape[0]:
                assert array[[1, 1, 0]].shape == (3, *shape[1:])
            with pytest.raises(bam.RowOutOfRange):
                array[shape[0]]


def test_one_dimension(reader: str) -> None:
    line = np.arange(1000, dtype=np.int16)
    with bam.open_array(line, reader=reader) as array:
        assert array[7] == 7
        assert isinstance(array[7], np.int16)
        np.testing.assert_array_equal(array[[5, 5, -1]], line[[5, 5, -1]])
        assert [int(item) for item in array] == line.tolist()


class TestStats:
    def test_differences(self, array: bam.VirtualArray) -> None:
        before = array.stats()
        array.gather(np.arange(50))
        middle = array.stats() - before
        assert (middle.gathers, middle.rows, middle.bytes_useful) == (1, 50, MATRIX.nbytes)
        assert middle.misses == -(-MATRIX.nbytes // 512)
        assert middle.read_amplification >= 1
        assert 0 <= middle.hit_rate < 1
        array.gather([49, 49])
        later = array.stats() - before - middle
        assert (later.rows, later.misses, later.hit_rate, later.page_hit_rate) == (2, 0, 1, 1)
        assert later.read_amplification == 0
        assert later.info == array.info().engine

    def test_nothing_counted(self, array: bam.VirtualArray) -> None:
        stats = array.stats()
        assert (stats.hit_rate, stats.page_hit_rate, stats.read_amplification) == (0, 0, 0)
        with pytest.raises(TypeError):
            stats - 1


class TestClosing:
    def test_closed(self, array: bam.VirtualArray) -> None:
        array.close()
        array.close()
        assert repr(array).endswith(", closed>")
        calls: list[Callable[[], Any]] = [
            lambda: array[0],
            lambda: array[:0],
            lambda: array.gather([0]),
            lambda: array.gather([]),
            lambda: np.asarray(array),
            array.stats,
            array.info,
        ]
        for call in calls:
            with pytest.raises(bam.ClosedError):
                call()
        assert len(array) == 50

    def test_files_are_released(self, path: Path, reader: str) -> None:
        def open_files() -> list[str]:
            links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            return [link.readlink().name for link in links if link.is_symlink()]

        array = bam.open_array(path, reader=reader)
        array[0]
        assert path.name in open_files()
        array.close()
        assert path.name not in open_files()
        array = bam.open_array(path, reader=reader)
        del array  # without closing it
        assert path.name not in open_files()

    def test_it_waits_for_calls_under_way(self, path: Path) -> None:
        inside, release = threading.Event(), threading.Event()
        array = bam.open_array(path, reader="reference", wrap=lambda engine: Held(engine, inside, release))
        rows: list[Any] = []
        reading = threading.Thread(target=lambda: rows.append(array[3]))
        reading.start()
        assert inside.wait(30)
        closing = threading.Thread(target=array.close)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        release.set()
        closing.join(30)
        reading.join(30)
        np.testing.assert_array_equal(rows[0], MATRIX[3])

    def test_it_does_not_wait_for_ever(self, path: Path) -> None:
        inside, release = threading.Event(), threading.Event()
        array = bam.open_array(
            path, reader="reference", timeout_s=0.05, wrap=lambda engine: Held(engine, inside, release)
        )
        reading = threading.Thread(target=lambda: array[3])
        reading.start()
        assert inside.wait(30)
        with pytest.raises(bam.WaitTimeout):
            array.close()
        with pytest.raises(bam.ClosedError):
            array[3]
        release.set()
        reading.join(30)
        array.close()


class Wrapped(Engine):
    """Passes everything on."""

    def __init__(self, inner: Engine) -> None:
        self.inner = inner

    @property
    def files(self) -> Any:
        return self.inner.files

    def read(self, spans: Any, buffers: Any) -> list[int]:
        return self.inner.read(spans, buffers)

    def check_file(self, file: int, end: int = 0) -> int:
        return self.inner.check_file(file, end)

    def info(self) -> Any:
        return self.inner.info()

    def close(self) -> None:
        self.inner.close()


class Held(Wrapped):
    """Reads wait for `release`."""

    def __init__(self, inner: Engine, inside: threading.Event, release: threading.Event) -> None:
        super().__init__(inner)
        self.inside, self.release = inside, release

    def read(self, spans: Any, buffers: Any) -> list[int]:
        self.inside.set()
        assert self.release.wait(30)
        return super().read(spans, buffers)


class Broken(Wrapped):
    def read(self, spans: Any, buffers: Any) -> list[int]:
        return [-errno.EIO] * len(spans)


class TestOpening:
    @pytest.mark.parametrize("engine", ["auto", "uring", "file", "memory"])
    @pytest.mark.parametrize("policy", ["random", "clock", "sieve", "look_ahead"])
    def test_engines_and_policies(self, path: Path, reader: str, engine: str, policy: str) -> None:
        try:
            array = bam.open_array(
                path, reader=reader, engine=engine, policy=policy, cache="2 lines", page_bytes=512
            )
        except bam.EngineUnavailable as refusal:
            pytest.skip(str(refusal))
        with array:
            ids = np.random.default_rng(0).integers(0, 50, 200)
            np.testing.assert_array_equal(array[ids], MATRIX[ids])
            assert array.info().policy == policy
            assert engine in ("auto", array.info().engine.engine)

    @pytest.mark.parametrize(
        "setting",
        [{"engine": "fast"}, {"policy": "lru"}, {"reader": "quick"}, {"cache": "1 page"}, {"cache": 511},
         {"page_bytes": 100}, {"page_bytes": "3KiB"}, {"queue_depth": 0}, {"merge_bytes": 1},
         {"timeout_s": -1}, {"seed": -1}, {"shape": (50, 7)}, {"dtype": "<f4"}],
    )  # fmt: skip
    def test_settings_that_cannot_work(self, setting: dict[str, Any]) -> None:
        with pytest.raises(bam.ConfigError):
            bam.open_array(MATRIX, **{"page_bytes": 512, **setting})

    def test_an_array_in_memory_is_not_read_with_a_file_engine(self) -> None:
        with pytest.raises(bam.ConfigError, match="in memory"):
            bam.open_array(MATRIX, engine="file")

    def test_sizes_as_text(self) -> None:
        with bam.open_array(MATRIX, page_bytes="1KiB", cache="16KiB", merge_bytes="4KiB") as array:
            assert (array.info().page_bytes, array.info().cache_lines) == (1024, 16)

    def test_what_runs_instead_is_said(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING), bam.open_array(path, wrap=Wrapped) as array:
            assert array.info().reader == "reference"
            assert "reference reader" in array.info().notes[0]
            np.testing.assert_array_equal(array[:], MATRIX)
        assert "reference reader" in caplog.text

    def test_the_native_reader_does_not_read_through_python(self, path: Path) -> None:
        expected = bam.ConfigError if available() else bam.NativeLibraryMissing
        with pytest.raises(expected):
            bam.open_array(path, reader="native", wrap=Wrapped)

    def test_a_wrapper_that_fails_leaves_nothing_open(self, path: Path) -> None:
        opened: list[Engine] = []

        def wrap(engine: Engine) -> Engine:
            opened.append(engine)
            raise RuntimeError("no")

        with pytest.raises(RuntimeError, match="no"):
            bam.open_array(path, wrap=wrap)
        with pytest.raises(bam.ClosedError):
            opened[0].read([ReadSpan(0, 0, 0)], [np.empty(0, np.uint8)])

    def test_errors_reach_who_needs_the_bytes(self, path: Path) -> None:
        with bam.open_array(path, reader="reference", wrap=Broken) as array:
            with pytest.raises(bam.StorageError) as caught:
                array[3]
            assert (caught.value.file, caught.value.errno, caught.value.page_id) == (str(path), errno.EIO, 0)
            assert array[[]].shape == (0, 7)

    def test_truncated_and_rewritten(self, path: Path, reader: str) -> None:
        with bam.open_array(path, reader=reader, page_bytes=512) as array:
            os.truncate(path, 128 + 1000)
            with pytest.raises(bam.TruncatedFileError) as caught:
                array[[1, 49]]
            assert caught.value.page_id == 49 * 28 // 512
            np.testing.assert_array_equal(array[:35], MATRIX[:35])
        path.write_bytes(npy_bytes(MATRIX))
        os.utime(path, ns=(0, 10**18))
        with bam.open_array(path, reader=reader, page_bytes=512) as array:
            path.write_bytes(npy_bytes(MATRIX + 1))
            with pytest.raises(bam.FileChangedError):
                array[3]

    def test_a_file_exchanged_while_it_is_opened(self, path: Path, reader: str) -> None:
        def exchange(engine: Engine) -> Engine:
            os.utime(path, ns=(0, 0))
            return engine

        with pytest.raises(bam.FileChangedError):
            bam.open_array(path, reader=reader, wrap=exchange)

    def test_many_files_and_stripes(self, tmp_path: Path, reader: str) -> None:
        parts = [
            write(tmp_path, npy_bytes(part), f"{n}") for n, part in enumerate(np.split(MATRIX, [13, 13]))
        ]
        with bam.open_array(parts, reader=reader, page_bytes=512) as array:
            np.testing.assert_array_equal(array[::-1], MATRIX[::-1])
        content = MATRIX.tobytes() + bytes(100)  # the last unit is short
        stripes = [content[start : start + 512] for start in range(0, len(content) - 100, 512)]
        stripes[-1] = stripes[-1][: MATRIX.nbytes % 512]
        paths = [write(tmp_path, b"".join(stripes[n::2]), f"stripe{n}") for n in range(2)]
        source = bam.StripedSource(paths, 512, np.float32, (-1, 7))
        with bam.open_array(source, reader=reader, page_bytes=1024) as array:
            np.testing.assert_array_equal(array[::-1], MATRIX[::-1])


class TestProcesses:
    @staticmethod
    def result_of(array: bam.VirtualArray, method: str) -> tuple[str, Any, int]:
        context = multiprocessing.get_context(method)
        results = context.SimpleQueue()
        child = context.Process(target=take_rows, args=(array, results))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        found: tuple[str, Any, int] = results.get()
        return found

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_child_opens_it_anew(self, array: bam.VirtualArray, method: str) -> None:
        array[:]
        kind, rows, gathers = self.result_of(array, method)
        assert (kind, gathers) == ("rows", 1)
        np.testing.assert_array_equal(rows, MATRIX[[3, 1, 3]])
        np.testing.assert_array_equal(array[:], MATRIX)  # the parent's is as it was
        assert array.stats().gathers == 2

    def test_a_child_of_an_array_in_memory(self, reader: str) -> None:
        with bam.open_array(MATRIX, reader=reader) as array:
            for method in ("fork", "spawn"):
                np.testing.assert_array_equal(self.result_of(array, method)[1], MATRIX[[3, 1, 3]])

    @pytest.mark.parametrize("method", ["fork", "spawn"])
    def test_a_child_refuses_another_file(self, array: bam.VirtualArray, path: Path, method: str) -> None:
        other = write(path.parent, npy_bytes(MATRIX + 1), "other")
        other.rename(path)
        kind, text, _ = self.result_of(array, method)
        assert (kind, str(path) in text) == ("FileChangedError", True)
        np.testing.assert_array_equal(array[:], MATRIX)

    def test_a_closed_array_is_closed_in_the_child(self, array: bam.VirtualArray) -> None:
        array.close()
        assert self.result_of(array, "fork")[0] == "ClosedError"

    def test_fork_while_threads_read(self, path: Path, reader: str) -> None:
        with bam.open_array(path, reader=reader, cache="1 line", page_bytes=512) as array:
            stop = threading.Event()
            wrong: list[object] = []

            def read() -> None:
                try:
                    while not stop.is_set():
                        if not np.array_equal(array[[49, 0, 20]], MATRIX[[49, 0, 20]]):
                            wrong.append("bytes")
                except BaseException as error:
                    wrong.append(error)

            threads = [threading.Thread(target=read) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(10):
                np.testing.assert_array_equal(self.result_of(array, "fork")[1], MATRIX[[3, 1, 3]])
            stop.set()
            for thread in threads:
                thread.join(30)
            assert not wrong

    def test_both_processes_end_like_programs(self, path: Path, reader: str) -> None:
        """Interpreters that shut down in full, the child's with the parent's handles still known to it."""
        script = Path(__file__).with_name("child_process.py")
        run = subprocess.run(
            [sys.executable, "-X", "dev", script, path, reader], capture_output=True, text=True, timeout=60
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, "same rows\n" * 2, "")

    def test_a_reader_that_is_killed_leaves_nothing_behind(self, array: bam.VirtualArray, path: Path) -> None:
        before = set(os.listdir("/dev/shm")), set(os.listdir(path.parent))
        context = multiprocessing.get_context("fork")
        for _ in range(5):
            started = context.Event()
            child = context.Process(target=take_rows_for_ever, args=(array, started))
            child.start()
            assert started.wait(30)
            child.kill()
            child.join(30)
            assert child.exitcode == -signal.SIGKILL
            np.testing.assert_array_equal(array[:], MATRIX)
        del started
        gc.collect()
        assert (set(os.listdir("/dev/shm")), set(os.listdir(path.parent))) == before

    def test_pickling(self, array: bam.VirtualArray) -> None:
        with pickle.loads(pickle.dumps(array)) as again:
            np.testing.assert_array_equal(again[:], MATRIX)
            assert again.info() == array.info()


def test_threads_share_one_array(path: Path, reader: str) -> None:
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(50):
                ids = rng.integers(-50, 50, 20)
                if not np.array_equal(array[ids], MATRIX[ids]):
                    wrong.append(seed)
        except BaseException as error:
            wrong.append(error)

    with bam.open_array(path, reader=reader, cache="2 lines", page_bytes=512) as array:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        assert array.stats().rows == 4 * 50 * 20
