"""Arrow tables in place: bytes against pyarrow, refusals, statistics, appends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bam
import gids
from bam.errors import BamError, ConfigError, FileChangedError
from bam.storage.monitored import MonitoredEngine
from gids.cli.main import main
from gids.errors import TableError, UnknownColumn
from gids.table.arrow_file import ArrowFile, column_type
from gids.table.arrow_source import ArrowSource
from gids.table.features import column_features
from gids.table.write import append_arrow, convert_table, write_arrow

TYPES = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "int8": pa.int8(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
}


def list_column(rows: np.ndarray[Any, Any]) -> Any:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])


def write(path: Path, batches: list[Any], **options: Any) -> Path:
    settings = pa.ipc.IpcWriteOptions(**options)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, batches[0].schema, options=settings) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
    return path


@given(
    name=st.sampled_from(sorted(TYPES)),
    dim=st.one_of(st.none(), st.integers(1, 300)),
    batches=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    data=st.data(),
)
@settings(max_examples=40)
def test_rows_in_place_are_pyarrows(
    tmp_path_factory: pytest.TempPathFactory, name: str, dim: int | None, batches: list[int], data: Any
) -> None:
    folder = tmp_path_factory.mktemp("arrow")
    random = np.random.default_rng(len(batches))
    paths, parts = [], []
    for number, n_rows in enumerate(batches):
        rows = random.integers(0, 100, (n_rows, dim or 1)).astype(name)
        parts.append(rows if dim else rows[:, 0])
        values = list_column(rows) if dim else pa.array(rows[:, 0])
        other = pa.array(["x" * (k % 5) for k in range(n_rows)])
        batch = pa.record_batch([other, values], ["text", "feat"])
        paths.append(write(folder / f"{number}.arrow", [batch, batch.slice(0, 0)]))
    expected = np.concatenate(parts)
    ids = data.draw(st.lists(st.integers(0, max(0, len(expected) - 1)), max_size=30)) if len(expected) else []
    with bam.open_array(ArrowSource(paths, "feat"), cache="16KiB") as array:
        assert array.shape == expected.shape
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array[np.array(ids, np.int64)], expected[np.array(ids, np.int64)])
        np.testing.assert_array_equal(np.asarray(array), expected)


def shared(folder: Path | None, name: str) -> list[Path]:
    if folder is None:
        pytest.skip("the shared data folder is not there")
    return sorted(
        path for path in (folder / name).rglob("*") if path.is_file() and path.suffix not in (".gz", ".csv")
    )


def columns_equal(path: Path) -> int:
    """Every column either equals pyarrow's or is refused by name; how many were equal."""
    equal = 0
    try:
        file = ArrowFile(path)
    except BamError:
        return 0
    for name in set(file.schema.names):
        try:
            with bam.open_array(ArrowSource(path, name), cache="16KiB") as array:
                found = np.asarray(array)
        except (TableError, UnknownColumn):
            continue
        with pa.OSFile(str(path)) as opened:
            whole = pa.ipc.open_file(opened).read_all().column(name).combine_chunks()
        kind = column_type(pa, whole.type)
        assert kind is not None
        values = whole.flatten() if kind.dim is not None else whole
        expected = np.array(values.to_numpy(zero_copy_only=False)).astype(kind.dtype).reshape(found.shape)
        np.testing.assert_array_equal(found, expected)
        equal += 1
    return equal


def test_real_files_equal_pyarrow_or_are_refused(shared_data: Path | None) -> None:
    real = sum(columns_equal(path) for path in shared(shared_data, "arrow-real"))
    gold = sum(columns_equal(path) for path in shared(shared_data, "arrow-gold"))
    assert real >= 10
    assert gold >= 10


def test_malformed_files_raise_typed_errors(shared_data: Path | None) -> None:
    for path in shared(shared_data, "arrow-malformed"):
        columns_equal(path)


def sample_file(path: Path) -> Path:
    random = np.random.default_rng(5)
    batches = []
    for _ in range(3):
        rows = random.standard_normal((20, 4)).astype(np.float32)
        year = random.integers(1990, 2024, 20).astype(np.int32)
        batches.append(pa.record_batch([list_column(rows), pa.array(year)], ["feat", "year"]))
    write_arrow(path, batches[0].schema, batches, stats=["year"])
    return path


def mutated(original: bytes, random: np.random.Generator) -> bytes:
    """Cut, bits flipped, or a length, count or offset changed (most of which are 4 or 8 bytes, aligned)."""
    changed = bytearray(original)
    kind = random.integers(0, 4)
    if kind == 0:
        return bytes(changed[: random.integers(0, len(changed))])
    for _ in range(random.integers(1, 6)):
        at = int(random.integers(0, len(changed) // 4)) * 4
        if kind == 1:
            changed[at] ^= 1 << int(random.integers(0, 8))
        elif kind == 2:
            changed[at : at + 4] = int(random.integers(0, 2**32)).to_bytes(4, "little")
        else:
            lies = (2**31 - 1, 2**63 - 1, 2**62, 2**64 - 1, 0, 1, 2**40)
            value = lies[random.integers(0, len(lies))]
            changed[at : at + 8] = value.to_bytes(8, "little")[: max(0, len(changed) - at)]
    return bytes(changed)


def read_everything(path: Path) -> None:
    """Opens what can be opened and reads all of it; only typed errors may come of it."""
    try:
        with gids.open_table(path) as table:
            for name in table.columns:
                try:
                    with table.column(name, cache="4KiB", reader="auto") as array:
                        assert array.nbytes <= path.stat().st_size
                        np.asarray(array)
                except BamError:
                    pass
            table.where("year > 2000")
    except BamError:
        pass


def test_mutated_files_raise_typed_errors_and_no_more(tmp_path: Path) -> None:
    """GIDS_TEST_MUTATIONS sets how many; each is read in this process, so a crash is seen."""
    count = int(os.environ.get("GIDS_TEST_MUTATIONS", "300"))
    seed = int(os.environ.get("GIDS_TEST_SEED", "1"))
    original = sample_file(tmp_path / "good.arrow").read_bytes()
    random, path = np.random.default_rng(seed), tmp_path / "bad.arrow"
    for _ in range(count):
        path.write_bytes(mutated(original, random))
        read_everything(path)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_named(tmp_path: Path, codec: str) -> None:
    rows = np.zeros((5000, 4), np.float32)
    path = write(tmp_path / "t.arrow", [pa.record_batch([list_column(rows)], ["feat"])], compression=codec)
    with pytest.raises(TableError, match="compressed") as caught:
        bam.open_array(ArrowSource(path, "feat"))
    assert (caught.value.column, caught.value.batch) == ("feat", 0)


def test_nulls_are_named_with_their_batch(tmp_path: Path) -> None:
    full, holed = pa.array([1, 2], pa.int32()), pa.array([3, None], pa.int32())
    path = write(tmp_path / "t.arrow", [pa.record_batch([each], ["n"]) for each in (full, holed)])
    with pytest.raises(TableError, match="1 nulls") as caught:
        bam.open_array(ArrowSource(path, "n"))
    assert (caught.value.column, caught.value.batch) == ("n", 1)
    inner = pa.FixedSizeListArray.from_arrays(pa.array([1.0, None, 3.0, 4.0]), 2)
    path = write(tmp_path / "u.arrow", [pa.record_batch([inner], ["f"])])
    with pytest.raises(TableError, match="1 nulls"):
        bam.open_array(ArrowSource(path, "f"))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (pa.array(["a", "b"]).dictionary_encode(), "dictionary"),
        (pa.array(["a", "b"]), "string"),
        (pa.array([True, False]), "bool"),
        (pa.array([[1], [2, 3]]), "list"),
        (pa.FixedSizeListArray.from_arrays(pa.array(["a", "b"]), 1), "string"),
    ],
)
def test_other_types_are_refused_by_name(tmp_path: Path, values: Any, found: str) -> None:
    path = write(tmp_path / "t.arrow", [pa.record_batch([values], ["col"])])
    with pytest.raises(TableError, match=found) as caught:
        bam.open_array(ArrowSource(path, "col"))
    assert caught.value.column == "col"


def test_columns_of_one_name_and_missing_ones(tmp_path: Path) -> None:
    two = pa.record_batch([pa.array([1]), pa.array([2])], names=["n", "n"])
    path = write(tmp_path / "t.arrow", [two])
    with pytest.raises(TableError, match="several"):
        bam.open_array(ArrowSource(path, "n"))
    with pytest.raises(UnknownColumn, match="'n'"):
        bam.open_array(ArrowSource(path, "m"))


def test_files_of_one_table_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "a.arrow", [pa.record_batch([pa.array([1], pa.int32())], ["n"])])
    write(tmp_path / "b.arrow", [pa.record_batch([pa.array([1], pa.int64())], ["n"])])
    with pytest.raises(TableError, match=r"b\.arrow"):
        gids.open_table(tmp_path)
    with pytest.raises(TableError, match="int32"):
        bam.open_array(ArrowSource([tmp_path / "a.arrow", tmp_path / "b.arrow"], "n"))


def nine_batches(folder: Path, stats: bool) -> tuple[Path, np.ndarray[Any, Any]]:
    """A column `year` that rises from batch to batch, and others."""
    random = np.random.default_rng(2)
    year = np.repeat(np.arange(2010, 2019, dtype=np.int32), 1000)
    batches = []
    for first in range(0, 9000, 1000):
        part = year[first : first + 1000]
        others = [pa.array(random.integers(0, 9, 1000).astype(np.int64)), pa.array(random.random(1000))]
        batches.append(pa.record_batch([pa.array(part), *others], ["year", "lang", "score"]))
    path = folder / f"{stats}.arrow"
    write_arrow(path, batches[0].schema, batches, stats=["year", "score"] if stats else [])
    return path, year


def test_statistics_skip_batches_and_bytes_are_those_of_the_model(tmp_path: Path) -> None:
    with_stats, year = nine_batches(tmp_path, stats=True)
    without, _ = nine_batches(tmp_path, stats=False)
    with gids.open_table(with_stats) as table, gids.open_table(without) as plain:
        chosen, everything = (
            table.where("year >= 2017 and lang == 3"),
            plain.where("year >= 2017 and lang == 3"),
        )
        np.testing.assert_array_equal(chosen.rows, everything.rows)
        assert (chosen.batches_loaded, chosen.batches_skipped) == (2, 7)
        assert (everything.batches_loaded, everything.batches_skipped) == (9, 0)
        assert chosen.bytes_read == 2 * 1000 * (4 + 8)
        assert everything.bytes_read == 9 * 1000 * (4 + 8)
        assert everything.bytes_read >= 3 * chosen.bytes_read
        assert chosen.bytes_in_table == with_stats.stat().st_size
        assert "2 loaded, 7 skipped" in str(chosen)
        assert (year[chosen.rows] >= 2017).all()
        none = table.where("year > 3000")
        assert (len(none.rows), none.bytes_read) == (0, 0)


def test_nulls_do_not_match(tmp_path: Path) -> None:
    values = pa.array([1, None, 3, None, 5], pa.int16())
    path = tmp_path / "t.arrow"
    write_arrow(path, pa.schema([("n", pa.int16())]), [pa.record_batch([values], ["n"])], stats=["n"])
    with gids.open_table(path) as table:
        assert table.where("n > 1").rows.tolist() == [2, 4]
        assert table.where("not n > 1").rows.tolist() == [0]


def test_nulls_in_some_batches_only(tmp_path: Path) -> None:
    parts = [pa.array([1, 2], pa.int32()), pa.array([3, None], pa.int32()), pa.array([5, 6], pa.int32())]
    path = write(tmp_path / "t.arrow", [pa.record_batch([each], ["n"]) for each in parts])
    with gids.open_table(path) as table:
        assert table.where("n >= 2").rows.tolist() == [1, 2, 4, 5]


@pytest.mark.parametrize("rows_per_batch", [65536, 5000, 40])
def test_values_begin_at_a_page(tmp_path: Path, rows_per_batch: int) -> None:
    rows = np.random.default_rng(0).standard_normal((70_000, 4), dtype=np.float32)
    parts = [rows[first : first + rows_per_batch] for first in range(0, 70_000, rows_per_batch)][:20]
    batches = [
        pa.record_batch([list_column(part), pa.array(part[:, 0])], ["feat", "first"]) for part in parts
    ]
    path = tmp_path / "t.arrow"
    write_arrow(path, batches[0].schema, batches, stats=["first"])
    append_arrow(path, batches[:1])
    offsets = [run.offset % 4096 for run in ArrowFile(path).runs("feat")]
    # Batches of less than 16 pages stay as they are.
    assert (offsets == [0] * len(offsets)) == (rows_per_batch > 40)
    if rows_per_batch == 65536:
        assert all(run.offset % 4096 == 0 for run in ArrowFile(path).runs("first")[:1])
    with bam.open_array(ArrowSource(path, "feat")) as array:
        np.testing.assert_array_equal(np.asarray(array), np.concatenate([*parts, parts[0]]))
    with pa.OSFile(str(path)) as file:
        assert pa.ipc.open_file(file).read_all().num_rows == sum(map(len, parts)) + len(parts[0])


def test_a_wide_table_is_read_column_by_column(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((2000, 4000), dtype=np.float32)
    names = [f"c{k}" for k in range(2000)]
    batches = [
        pa.record_batch([pa.array(rows[k, first : first + 2000]) for k in range(2000)], names)
        for first in (0, 2000)
    ]
    path = write(tmp_path / "wide.arrow", batches)
    wanted = names[7:2000:100]
    monitors: list[MonitoredEngine] = []

    def wrap(engine: Any) -> MonitoredEngine:
        monitors.append(MonitoredEngine(engine))
        return monitors[-1]

    # Some rows touch every page of a column, and all of them do: the same reads, one for each batch.
    some, every = np.random.default_rng(2).integers(0, 4000, 500), np.arange(4000)
    for ids in (some, every):
        monitors.clear()
        with gids.open_table(path) as table:
            features = column_features("node", table, wanted, cache="4MiB", wrap=wrap)
            runs = [run for name in wanted for run in table.files[0].runs(name)]
        loader_rows = np.zeros((len(ids), 20), np.float32)
        features.read(ids, loader_rows.view(np.uint8), None, None)
        np.testing.assert_array_equal(loader_rows, rows[7:2000:100, ids].T)
        # The bytes of the wanted columns, and what reads of whole blocks add at their ends: not one more.
        unit = monitors[0].files[0].offset_alignment
        ends = [(run.offset // unit * unit, -(-(run.offset + run.length) // unit) * unit) for run in runs]
        expected = sum(end - begin for begin, end in ends)
        assert sum(each.snapshot().reads for each in monitors) == len(runs) == 40
        assert sum(each.snapshot().bytes for each in monitors) == expected
        assert features.counts().bytes_read == expected
        assert expected <= 0.02 * path.stat().st_size + 2 * unit * len(runs)
        features.close()


def test_columns_train_as_features(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    values = random.standard_normal((3, 200)).astype(np.float32)
    path = write(
        tmp_path / "t.arrow", [pa.record_batch([pa.array(each) for each in values], ["a", "b", "c"])]
    )
    edges = random.integers(0, 200, (2, 900))
    graph = gids.Graph.from_coo({("n", "to", "n"): (edges[0], edges[1])}, {"n": 200})
    with gids.open_table(path) as table:
        features = column_features("n", table, ["c", "a"], cache="16KiB")
    with gids.DataLoader(
        graph, {"n": np.arange(60)}, gids.NeighborSampler([3, 2]), batch_size=20, features={"n": features}
    ) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch.features["n"], values[[2, 0]][:, batch.input_nodes["n"]].T)


def test_appended_batches_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path, _ = nine_batches(tmp_path, stats=True)
    more = pa.record_batch(
        [pa.array(np.full(10, 2030, np.int32)), pa.array(np.zeros(10, np.int64)), pa.array(np.zeros(10))],
        ["year", "lang", "score"],
    )
    with gids.open_table(path) as old, old.column("year") as column:
        assert append_arrow(path, [more]) == 9010
        assert len(old) == 9000
        assert np.asarray(column)[-1] == 2018
        with pytest.raises(FileChangedError, match="replaced"):
            old.where("year == 2018")
    with gids.open_table(path) as table:
        found = table.where("year == 2030")
        assert found.rows.tolist() == list(range(9000, 9010))
        assert (found.batches_loaded, found.batches_skipped) == (1, 9)
    with pytest.raises(TableError, match="columns"):
        append_arrow(path, [pa.record_batch([pa.array([1])], ["other"])])
    assert len(gids.open_table(path)) == 9010


WRITER = """
import os, signal, sys
import pyarrow as pa
from gids.table.write import append_arrow

def batches():
    batch = pa.ipc.open_file(pa.OSFile(sys.argv[1])).get_batch(0)
    yield batch
    yield batch
    os.kill(os.getpid(), signal.SIGKILL)

append_arrow(sys.argv[1], batches())
"""


def test_a_writer_that_dies_leaves_the_old_file(tmp_path: Path) -> None:
    path, _ = nine_batches(tmp_path, stats=True)
    before = path.read_bytes()
    ended = subprocess.run([sys.executable, "-c", WRITER, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    with gids.open_table(path) as table:
        assert len(table) == 9000


def test_a_folder_of_files_is_one_table(tmp_path: Path) -> None:
    for name, values in (("b", [3, 4]), ("a", [1, 2])):
        write(tmp_path / f"{name}.arrow", [pa.record_batch([pa.array(values)], ["n"])])
    with gids.open_table(tmp_path) as table, table.column("n") as column:
        assert np.asarray(column).tolist() == [1, 2, 3, 4]
        assert table.where("n >= 2").rows.tolist() == [1, 2, 3]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    table = pa.table({"year": np.repeat(np.arange(9), 100), "x": np.arange(900.0), "s": ["t"] * 900})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=100)
    return path


def test_parquet_skips_row_groups_and_converts(parquet: Path, tmp_path: Path) -> None:
    with gids.open_table(parquet) as table:
        chosen = table.where("year in [3, 4] and x < 350")
        assert chosen.rows.tolist() == list(range(300, 350))
        assert (chosen.batches_loaded, chosen.batches_skipped) == (2, 7)
        assert 0 < chosen.bytes_read < parquet.stat().st_size
        with pytest.raises(TableError, match="string"):
            table.where("s == 1")
    out = tmp_path / "t.arrow"
    assert convert_table(parquet, out, columns=["x", "year"], stats=["year"], batch_rows=150) == 900
    with gids.open_table(out) as table:
        assert table.columns == ("x", "year")
        assert table.batch_rows.tolist() == [150] * 6
        assert table.where("year in [3, 4] and x < 350").rows.tolist() == list(range(300, 350))
    with pytest.raises(UnknownColumn, match="yeer"):
        convert_table(parquet, tmp_path / "u.arrow", stats=["yeer"])
    assert not list(tmp_path.glob(".*partial*"))


def test_commands(parquet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, ids = tmp_path / "t.arrow", tmp_path / "ids.npy"
    assert main(["convert", "table", str(parquet), str(out), "--stats", "year", "--batch-rows", "100"]) == 0
    assert main(["select", str(out), "year == 7", "--out", str(ids)]) == 0
    assert "1 loaded, 8 skipped" in capsys.readouterr().out
    assert np.load(ids).tolist() == list(range(700, 800))
    assert main(["select", str(out), "yeer == 7"]) == 1
    assert "did you mean 'year'" in capsys.readouterr().err


def test_statistics_of_text_are_refused_before_any_work(tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array(["a"])], ["s"])
    with pytest.raises(TableError, match="string"):
        write_arrow(tmp_path / "t.arrow", batch.schema, [batch], stats=["s"])
    with pytest.raises(ConfigError, match="batch_rows"):
        convert_table(tmp_path, tmp_path / "t.arrow", batch_rows=0)
    assert list(tmp_path.iterdir()) == []


def test_neither_format_and_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (tmp_path / "t.arrow").write_bytes(b"")
        with pytest.raises(TableError, match="empty"):
            gids.open_table(tmp_path / "t.arrow")
        (tmp_path / "t.arrow").write_bytes(b"neither one nor the other")
        with pytest.raises(TableError, match="Arrow IPC file"):
            gids.open_table(tmp_path / "t.arrow")
        with pytest.raises(ConfigError, match="at least one"):
            gids.open_table([])
        with pytest.raises(TableError, match="readable"):
            gids.open_table(tmp_path / "missing.arrow")
