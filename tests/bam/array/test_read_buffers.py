"""Memory that a reading thread takes: bounded by staging_bytes, and right with a single read in flight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bam
from bam.array.native_reader import NativeReader, ReadBuffers
from bam.native import available

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")
ROWS = np.random.default_rng(0).integers(0, 256, (3000, 300), np.uint8)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """500 files of 1,800 bytes: dozens of them fall into one read."""
    made = [tmp_path / str(number) for number in range(500)]
    for path, rows in zip(made, np.split(ROWS, 500), strict=True):
        path.write_bytes(rows.tobytes())
    return made


def buffers_of(array: bam.VirtualArray) -> ReadBuffers:
    with array._shared.use() as opened:
        assert isinstance(opened.reader, NativeReader)
        return opened.reader.read_buffers()


@pytest.mark.parametrize("engine", ["file", "uring"])
@pytest.mark.parametrize("staging_bytes", ["64KiB", "1MiB", "64MiB"])
def test_they_fit_and_the_rows_are_right(paths: list[Path], engine: str, staging_bytes: str) -> None:
    settings = {"dtype": np.uint8, "shape": (-1, 300), "engine": engine, "cache": "8 lines"}
    try:
        array = bam.open_array(paths, staging_bytes=staging_bytes, **settings)
    except bam.EngineUnavailable as refusal:
        pytest.skip(str(refusal))
    with array:
        buffers = buffers_of(array)
        limit = bam.config.parse_bytes(staging_bytes)
        assert buffers.bytes <= limit or buffers.reads == 1
        fewer = buffers.reads < 256
        assert fewer == (staging_bytes != "64MiB")
        assert fewer == any("staging_bytes" in note for note in array.info().notes)
        np.testing.assert_array_equal(array[:], ROWS)
        ids = np.random.default_rng(1).integers(0, 3000, 500)
        np.testing.assert_array_equal(array[ids], ROWS[ids])


def test_by_default_one_file_is_read_with_the_whole_queue(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    with bam.open_array(tmp_path / "rows.npy", queue_depth=256) as array:
        assert buffers_of(array).reads == 256
        assert array.info().notes == ()
    with bam.open_array(tmp_path / "rows.npy", queue_depth=1) as array:
        np.testing.assert_array_equal(array[:], ROWS)


@pytest.mark.parametrize("staging_bytes", [0, 65535, -1, "2 TiB", "much", 1.5])
def test_sizes_that_make_no_sense(staging_bytes: object) -> None:
    with pytest.raises(bam.ConfigError, match="staging_bytes"):
        bam.open_array(ROWS, staging_bytes=staging_bytes)
