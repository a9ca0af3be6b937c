"""Damaged Arrow and Parquet files end in typed errors: no crash, and no memory that only a lie asks for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import bam
import gids
from bam.errors import BamError
from gids.errors import TableError
from gids.table.arrow_blocks import BatchFacts, read_blocks
from gids.table.arrow_source import ArrowSource
from gids.table.parquet_footer import check_pages, read_chunks


def write_arrow(path: Path, table: Any, codec: str | None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table, 100)
    return path


def compressible() -> Any:
    return pa.table({"n": np.zeros(250, np.int64), "name": pa.array(["x"] * 250).dictionary_encode()})


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_blocks_are_those_that_were_written(tmp_path: Path, codec: str | None) -> None:
    path = write_arrow(tmp_path / "t.arrow", compressible(), codec)
    facts = read_blocks(memoryview(path.read_bytes()))
    index_bytes = 4  # of the dictionary's column
    assert facts.batches == tuple(
        BatchFacts(n, n * (8 + index_bytes) if codec else 0) for n in (100, 100, 50)
    )
    assert len(facts.dictionaries) == 1
    assert read_blocks(memoryview(b"ARROW1\0\0" + b"\x7f" * 40)).batches == ()


def test_a_buffer_whose_length_lies_is_not_decompressed(tmp_path: Path) -> None:
    path = write_arrow(tmp_path / "t.arrow", compressible().select(["n"]), "zstd")
    content = bytearray(path.read_bytes())
    at = content.index((800).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd")  # length, then zstd's mark
    content[at : at + 8] = (2**33).to_bytes(8, "little")
    path.write_bytes(content)
    pool = pa.default_memory_pool()
    with gids.open_table(path) as table:
        assert table.batch_rows.tolist() == [100, 100, 50]
        with pytest.raises(TableError, match="compressed"):
            table.where("n > 1")
    with pytest.raises(TableError, match="compressed"):
        bam.open_array(ArrowSource(path, "n"))
    assert pool.max_memory() < 2**33


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_values_that_compressing_left_alone_are_read_in_place(shared_data: Path | None, codec: str) -> None:
    if shared_data is None:
        pytest.skip("the shared data folder is not there")
    path = shared_data / f"arrow-gold/2.0.0-compression/generated_uncompressible_{codec}.arrow_file"
    with pa.OSFile(str(path)) as file:
        whole = pa.ipc.open_file(file).read_all()
    name = next(name for name in whole.schema.names if pa.types.is_integer(whole.schema.field(name).type))
    if whole.column(name).null_count:
        pytest.skip(f"{path.name}: {name} has nulls")
    with bam.open_array(ArrowSource(path, name)) as array:
        np.testing.assert_array_equal(np.asarray(array), whole.column(name).to_numpy())


@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_parquet_chunks_are_pyarrows(tmp_path: Path, codec: str, version: str) -> None:
    random = np.random.default_rng(1)
    holes = pa.array([None if k % 3 else k - 100 for k in range(300)], pa.int64())
    table = pa.table(
        {
            "small": random.integers(-100, 100, 300).astype(np.int8),
            "holes": holes,
            "none": pa.nulls(300, pa.int32()),
            "score": random.random(300),
            "text": ["t"] * 300,
            "inner": [{"a": k} for k in range(300)],
        }
    )
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=120, compression=codec, version=version)
    metadata = pyarrow.parquet.ParquetFile(path).metadata
    groups = read_chunks(str(path))
    assert len(groups) == 3
    for number, group in enumerate(groups):
        for column, chunk in enumerate(group):
            expected = metadata.row_group(number).column(column)
            assert ".".join(chunk.path) == expected.path_in_schema
            assert chunk.compressed_bytes == expected.total_compressed_size
            assert chunk.uncompressed_bytes == expected.total_uncompressed_size
            if len(chunk.path) == 1 and chunk.path[0] != "text":
                check_pages(str(path), chunk, metadata.row_group(number).num_rows)
            assert (chunk.n_values, chunk.n_nulls) == (expected.num_values, expected.statistics.null_count)
            if expected.statistics.has_min_max and isinstance(expected.statistics.min, int):
                assert (chunk.low, chunk.high) == (expected.statistics.min, expected.statistics.max)
            else:
                assert chunk.low is None


def test_a_page_whose_length_lies_is_not_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"n": np.arange(100_000) % 7})
    pyarrow.parquet.write_table(table, path, use_dictionary=False, compression="zstd")
    content = bytearray(path.read_bytes())
    # The header of the first page: its type, then the length it becomes, a number of three bytes.
    assert content[4:7] == b"\x15\x00\x15"
    assert content[7] & content[8] & 128
    content[7:10] = b"\xfe\xff\x7f"
    path.write_bytes(content)
    with gids.open_table(path) as found, pytest.raises(TableError, match="column 'n': expected pages"):
        found.where("n > 1")


def damaged(path: Path, content: bytes) -> None:
    """Reads all that can be read of a Parquet file; only typed errors may come of it."""
    path.write_bytes(content)
    try:
        with gids.open_table(path) as table:
            for condition in ("year > 3", "score > 0.5"):
                table.where(condition)
            for batch in range(len(table.batch_rows)):
                table.read(["year"], batch)
    except BamError:
        pass


def test_mutated_parquet_raises_typed_errors_and_no_more(tmp_path: Path) -> None:
    """In this process, so that a crash is seen; GIDS_TEST_MUTATIONS sets how many."""
    table = pa.table({"year": np.arange(60) % 9, "text": ["a"] * 60, "score": np.arange(60) / 60})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=20)
    original, random = path.read_bytes(), np.random.default_rng(2)
    footer = int.from_bytes(original[-8:-4], "little")
    # A byte of a chunk's size statistics once ended the process. So the whole footer is gone through.
    for at in range(len(original) - 8 - footer, len(original) - 8, 3):
        content = bytearray(original)
        content[at] ^= 1 << int(random.integers(0, 8))
        damaged(path, bytes(content))
    for _ in range(int(os.environ.get("GIDS_TEST_MUTATIONS", "100"))):
        content = bytearray(original)
        for _ in range(int(random.integers(1, 5))):
            content[int(random.integers(0, len(content)))] = int(random.integers(0, 256))
        damaged(path, bytes(content[: int(random.integers(len(content) // 2, len(content) * 2))]))


def test_a_column_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pa.table({"score": [1, 2]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"score", b"\x99core"))
    with pytest.raises(TableError):
        gids.open_table(path)
