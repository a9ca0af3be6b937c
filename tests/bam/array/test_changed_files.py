"""Files that are cut or rewritten under an open array: old rows or an error, never new bytes."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from npy_files import npy_bytes

import bam
from bam.native import available
from bam.storage.engine import ByteArray, Engine, ReadSpan
from bam.storage.fault import FaultEngine, FaultKind, FaultRule, NativeFaultEngine
from bam.storage.native import NativeEngine

READERS = ["reference", "native"] if available() else ["reference"]
ENGINES = ["uring", "file"]
ROWS = np.random.default_rng(0).integers(0, 256, (3000, 100), np.uint8)
#: Every row is another one.
NEW_ROWS = ROWS ^ 255


@pytest.fixture(params=[(reader, engine) for reader in READERS for engine in ENGINES], ids="-".join)
def open_rows(request: pytest.FixtureRequest) -> Callable[[Path, str], bam.VirtualArray]:
    """Opens a file of rows with each reader and each engine over files."""
    reader, engine = request.param

    def open_with(path: Path, cache: str) -> bam.VirtualArray:
        try:
            return bam.open_array(
                path,
                dtype=np.uint8,
                shape=(-1, 100),
                reader=reader,
                engine=engine,
                cache=cache,
                page_bytes=512,
            )
        except bam.EngineUnavailable as refusal:
            pytest.skip(str(refusal))

    return open_with


def rewrite(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


@pytest.mark.parametrize("cache", ["1 line", "1024 lines"])
def test_cut_only(open_rows: Callable[[Path, str], bam.VirtualArray], tmp_path: Path, cache: str) -> None:
    path = tmp_path / "rows"
    rewrite(path, ROWS.tobytes())
    with open_rows(path, cache) as array:
        os.truncate(path, 150_050)
        np.testing.assert_array_equal(array[:1500], ROWS[:1500])
        for row in (1500, 2999):
            with pytest.raises(bam.TruncatedFileError) as caught:
                array[row]
            assert (caught.value.file, caught.value.errno) == (str(path), errno.ENODATA)
            assert caught.value.offset + caught.value.length > 150_050
        np.testing.assert_array_equal(array[[1499, 0]], ROWS[[1499, 0]])


@pytest.mark.parametrize("n_rows", [1, 30, 1500, 2999])
@pytest.mark.parametrize("cache", ["1 line", "1024 lines"])
def test_rewritten_and_shorter(
    open_rows: Callable[[Path, str], bam.VirtualArray], tmp_path: Path, cache: str, n_rows: int
) -> None:
    path = tmp_path / "rows"
    rewrite(path, ROWS.tobytes())
    with open_rows(path, cache) as array:
        np.testing.assert_array_equal(array[2000], ROWS[2000])
        rewrite(path, NEW_ROWS[:n_rows].tobytes())
        for row in (0, n_rows - 1, 0):
            with pytest.raises(bam.FileChangedError) as caught:
                array[row]
            assert (caught.value.file, caught.value.errno) == (str(path), errno.ESTALE)
        if cache != "1 line":  # from the cache, as it was
            np.testing.assert_array_equal(array[2000], ROWS[2000])


def test_rewritten_and_shorter_with_a_header(
    open_rows: Callable[[Path, str], bam.VirtualArray], tmp_path: Path
) -> None:
    path = tmp_path / "rows.npy"
    rewrite(path, npy_bytes(ROWS))
    with open_rows(path, "4 lines") as array:
        rewrite(path, npy_bytes(ROWS[:2000]))  # the same rows, but another header: not a cut
        with pytest.raises(bam.FileChangedError):
            array[5]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["cut", "rewrite", "write"]), st.integers(0, 3100), st.integers(0, 2999)),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_to_the_file(
    open_rows: Callable[[Path, str], bam.VirtualArray], tmp_path: Path, steps: list[tuple[str, int, int]]
) -> None:
    path = tmp_path / "rows"
    rewrite(path, ROWS.tobytes())
    with open_rows(path, "4 lines") as array:
        for change, n_rows, row in steps:
            if change == "cut":
                os.truncate(path, min(n_rows * 100 + 50, path.stat().st_size))
            elif change == "rewrite":
                rewrite(path, np.resize(NEW_ROWS, (n_rows, 100)).tobytes())
            else:
                with open(path, "r+b") as file:
                    file.write(NEW_ROWS.tobytes())
            for wanted in (row, 0):
                with suppress(bam.TruncatedFileError, bam.FileChangedError):
                    np.testing.assert_array_equal(array[wanted], ROWS[wanted])


def answers_late(engine: Engine) -> Engine:
    """Bytes arrive at once, and are told of half a second later."""
    if isinstance(engine, NativeEngine):
        return NativeFaultEngine(engine, [FaultRule(FaultKind.DELAY, every=1, delay_us=500_000)])
    return LateEngine(engine)


class LateEngine(FaultEngine):
    def __init__(self, inner: Engine) -> None:
        super().__init__(inner, [])

    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        result = super()._read_span(span, buffer)
        time.sleep(0.5)
        return result


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("reader", READERS)
def test_bytes_that_arrived_before_the_cut_are_not_handed_out(
    tmp_path: Path, reader: str, engine: str
) -> None:
    """Behind the end of the file nothing says whether they were the old ones."""
    path = tmp_path / "rows"
    rewrite(path, ROWS.tobytes())
    raw = {"dtype": np.uint8, "shape": (-1, 100), "page_bytes": 512}
    try:
        array = bam.open_array(path, reader=reader, engine=engine, wrap=answers_late, **raw)
    except bam.EngineUnavailable as refusal:
        pytest.skip(str(refusal))
    with array, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: array[2000])
        time.sleep(0.15)  # long enough for the read, which takes microseconds
        os.truncate(path, 0)
        with pytest.raises(bam.TruncatedFileError):
            reading.result()
