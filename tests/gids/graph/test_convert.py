"""Converted stores hold what a plain numpy conversion gives, whatever happens on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from igbh_folders import (
    NODES,
    REPOSITORY,
    check_kills,
    folder_bytes,
    plain_csc,
    run_with_small_files,
    write_igbh,
)

from bam.errors import ConfigError
from gids.errors import DatasetError, DiskFullError, UnfinishedWorkError
from gids.graph import chunked, feature_build
from gids.graph.convert import MIN_MEMORY_BYTES, convert_igbh
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.dataset import Dataset
from gids.graph.feature_build import NonFinite
from gids.graph.feature_types import FeatureDtype, column_scale, decode_rows, encode_rows
from gids.graph.journal import partial_folder
from gids.graph.open_dataset import open_dataset
from gids.graph.relations import GraphOptions
from gids.graph.store import is_store, open_store, verify_store
from gids.graph.synth import synthesize

DTYPES = [FeatureDtype.FLOAT32, FeatureDtype.FLOAT16, FeatureDtype.BFLOAT16, FeatureDtype.INT8]
PLAIN = ConvertOptions(reorder=Reorder.NONE)


def _edges(igbh: Path, relation: str) -> npt.NDArray[np.int64]:
    edges: npt.NDArray[np.int64] = np.load(igbh / "processed" / relation / "edge_index.npy")
    return edges


def _features(igbh: Path, name: str) -> npt.NDArray[np.float32]:
    rows: npt.NDArray[np.float32] = np.load(igbh / "processed" / name / "node_feat.npy")
    return rows


def _same_graph(one: Dataset, other: Dataset) -> None:
    assert one.graph.schema == other.graph.schema
    for edge_type, csc in one.graph.relations.items():
        assert np.array_equal(csc.indptr, other.graph[edge_type].indptr)
        assert np.array_equal(csc.indices, other.graph[edge_type].indices)
        assert csc.indices.dtype == other.graph[edge_type].indices.dtype


@pytest.mark.parametrize("reorder", list(Reorder))
@pytest.mark.parametrize("dtype", DTYPES)
def test_features_equal_a_plain_conversion(
    igbh: Path, tmp_path: Path, dtype: FeatureDtype, reorder: Reorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_build, "CHUNK_BYTES", 500)
    monkeypatch.setattr(feature_build, "PIECE_BYTES", 100)
    store = open_store(convert_igbh(igbh, tmp_path / "store", ConvertOptions(dtype=dtype, reorder=reorder)))
    for name, count in NODES.items():
        rows, features = _features(igbh, name), store.features[name]
        scale = column_scale(np.abs(rows).max(axis=0)) if dtype is FeatureDtype.INT8 else None
        encoded = encode_rows(rows, dtype, scale)
        assert np.array_equal(features.take(np.arange(count)), decode_rows(encoded, dtype, scale))
        assert features.row_bytes == 12 * dtype.itemsize
        on_disk = np.fromfile(tmp_path / f"store/features/{name}.bin", dtype.stored).reshape(-1, 12)
        if reorder is Reorder.NONE:
            assert features.rank is None
            assert np.array_equal(on_disk, encoded)
        else:
            assert features.rank is not None
            assert np.array_equal(on_disk[features.rank], encoded)
    assert verify_store(tmp_path / "store") == []


def test_graph_equals_a_plain_conversion(igbh: Path, tmp_path: Path) -> None:
    graph = open_store(convert_igbh(igbh, tmp_path / "store", PLAIN)).graph
    assert sorted(map(str, graph.schema.edge_types)) == [
        "author__affiliated_to__institute",
        "author__rev_written_by__paper",
        "fos__rev_topic__paper",
        "institute__rev_affiliated_to__author",
        "paper__cites__paper",
        "paper__topic__fos",
        "paper__written_by__author",
    ]
    written = _edges(igbh, "paper__written_by__author")
    expected = {
        "written_by": plain_csc(written[:, 0], written[:, 1], NODES["author"]),
        "rev_written_by": plain_csc(written[:, 1], written[:, 0], NODES["paper"]),
    }
    cites = _edges(igbh, "paper__cites__paper")
    cites = cites[cites[:, 0] != cites[:, 1]]
    loops = np.arange(NODES["paper"])
    src, dst = (np.concatenate([cites[:, column], loops]) for column in (0, 1))
    expected["cites"] = plain_csc(src, dst, NODES["paper"])
    for name, (indptr, indices) in expected.items():
        assert np.array_equal(graph[name].indptr, indptr)
        assert np.array_equal(graph[name].indices, indices)
    # Every paper has its loop, last, and none twice; duplicate edges are still there.
    assert all(graph["cites"].in_edges(paper)[-1] == paper for paper in range(120))
    assert len(np.unique(written, axis=0)) < len(written) == graph["written_by"].num_edges
    assert graph["affiliated_to"].num_edges == 0


@pytest.mark.parametrize(
    "options",
    [
        GraphOptions(),
        GraphOptions(self_loops=False),
        GraphOptions(reverse=False),
        GraphOptions(symmetric_cites=True),
        GraphOptions(symmetric_cites=True, self_loops=False),
    ],
)
def test_a_folder_in_place_and_its_store_are_the_same(
    igbh: Path, tmp_path: Path, options: GraphOptions
) -> None:
    in_memory = open_dataset(igbh, graph=options)
    cached = open_dataset(igbh, graph=options, graph_cache=tmp_path / "cache")
    store = open_dataset(convert_igbh(igbh, tmp_path / "store", ConvertOptions(graph=options)))
    for dataset in (cached, store):
        _same_graph(in_memory, dataset)
        for name, count in NODES.items():
            assert np.array_equal(
                dataset.features[name].take(np.arange(count)), in_memory.features[name].take(np.arange(count))
            )
        for name in ("19", "2983"):
            assert np.array_equal(dataset.tasks[name].labels, in_memory.tasks[name].labels)
            assert np.array_equal(dataset.tasks[name].split().test, in_memory.tasks[name].split().test)
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name == "features"] == []


def test_without_headers_the_store_is_the_same(igbh: Path, tmp_path: Path) -> None:
    raw = write_igbh(tmp_path / "raw", headerless=("paper", "author"))
    one = convert_igbh(raw, tmp_path / "one", PLAIN)
    other = convert_igbh(igbh, tmp_path / "other", PLAIN)
    left, right = folder_bytes(one), folder_bytes(other)
    assert left.keys() == right.keys()
    assert all(left[name] == right[name] for name in left if name != "dataset.toml")


def test_symmetric_cites_go_both_ways_and_have_one_loop(igbh: Path) -> None:
    csc = open_dataset(igbh, graph=GraphOptions(symmetric_cites=True)).graph["cites"]
    edges = _edges(igbh, "paper__cites__paper")
    kept = edges[edges[:, 0] != edges[:, 1]]
    assert csc.num_edges == 2 * len(kept) + 120
    sources = np.concatenate([kept[kept[:, 1] == 3, 0], kept[kept[:, 0] == 3, 1], [3]])
    assert np.array_equal(csc.in_edges(3), sources)


def test_a_cached_graph_is_built_again_when_the_data_changed(igbh: Path, tmp_path: Path) -> None:
    open_dataset(igbh, graph_cache=tmp_path / "cache")
    before = (tmp_path / "cache/dataset.toml").stat().st_mtime_ns
    open_dataset(igbh, graph_cache=tmp_path / "cache")
    assert (tmp_path / "cache/dataset.toml").stat().st_mtime_ns == before
    np.save(igbh / "processed/paper__written_by__author/edge_index.npy", np.array([[5, 6]], np.int64))
    assert open_dataset(igbh, graph_cache=tmp_path / "cache").graph["written_by"].num_edges == 1


def test_a_store_is_not_taken_for_a_cache(igbh: Path, tmp_path: Path) -> None:
    convert_igbh(igbh, tmp_path / "store")
    np.save(igbh / "processed/paper__written_by__author/edge_index.npy", np.array([[5, 6]], np.int64))
    with pytest.raises(DatasetError, match="features of its own"):
        open_dataset(igbh, graph_cache=tmp_path / "store")
    assert open_store(tmp_path / "store").graph["written_by"].num_edges == 300


def test_neither_store_nor_igbh(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="neither"):
        open_dataset(tmp_path)


def test_finished_stores_are_left_alone_and_others_are_not_replaced(igbh: Path, tmp_path: Path) -> None:
    store = convert_igbh(igbh, tmp_path / "store", PLAIN)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert convert_igbh(igbh, tmp_path / "store", PLAIN) == store
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    with pytest.raises(DatasetError, match="other files or settings"):
        convert_igbh(igbh, store, ConvertOptions(dtype=FeatureDtype.FLOAT16))
    convert_igbh(igbh, store, ConvertOptions(dtype=FeatureDtype.FLOAT16), overwrite=True)
    assert open_store(store).features["paper"].dtype is FeatureDtype.FLOAT16
    assert sorted(os.listdir(tmp_path)) == ["igbh", "store"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(DatasetError, match="a name that is free"):
        convert_igbh(igbh, tmp_path / "mine", overwrite=True)


def test_settings_that_cannot_work(igbh: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="memory_bytes"):
        convert_igbh(igbh, tmp_path / "store", memory_bytes=MIN_MEMORY_BYTES - 1)
    with pytest.raises(ConfigError, match="'int8'"):
        ConvertOptions(dtype="int4")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no NaN"):
        ConvertOptions(dtype=FeatureDtype.INT8, non_finite=NonFinite.KEEP)
    assert os.listdir(tmp_path) == ["igbh"]


def test_ids_out_of_range_end_it_before_anything_is_built(igbh: Path, tmp_path: Path) -> None:
    path = igbh / "processed/paper__topic__fos/edge_index.npy"
    edges = np.load(path)
    edges[123, 1] = 40
    np.save(path, edges)
    message = "fos ids from 0 to 39, found 40 in column 1 of row 123"
    with pytest.raises(DatasetError, match=message) as caught:
        convert_igbh(igbh, tmp_path / "store")
    assert caught.value.file == str(path)
    assert os.listdir(tmp_path / "store.partial") == ["journal.jsonl"]
    with pytest.raises(DatasetError, match=message):
        open_dataset(igbh)
    edges[123, 1] = 39
    np.save(path, edges)
    with pytest.raises(UnfinishedWorkError, match="whose files is"):
        convert_igbh(igbh, tmp_path / "store")


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_features_are_refused_by_name(igbh: Path, tmp_path: Path, dtype: FeatureDtype) -> None:
    rows = _features(igbh, "author")
    rows[33, 7] = np.nan
    np.save(igbh / "processed/author/node_feat.npy", rows)
    with pytest.raises(DatasetError, match="column 7 of row 33") as caught:
        convert_igbh(igbh, tmp_path / "store", ConvertOptions(dtype=dtype))
    assert caught.value.file.endswith("author/node_feat.npy")
    assert not (tmp_path / "store").exists()


def test_nan_features_are_kept_and_counted_on_request(igbh: Path, tmp_path: Path) -> None:
    rows = _features(igbh, "author")
    rows[33, 7], rows[2, 0] = np.nan, 70_000
    np.save(igbh / "processed/author/node_feat.npy", rows)
    options = ConvertOptions(dtype=FeatureDtype.FLOAT16, non_finite=NonFinite.KEEP)
    store = open_store(convert_igbh(igbh, tmp_path / "store", options))
    taken = store.features["author"].take([33, 2, 1])
    assert np.isnan(taken[0, 7])
    assert np.isinf(taken[1, 0])
    assert np.isfinite(taken[2]).all()
    assert "n_non_finite = 2" in (tmp_path / "store/dataset.toml").read_text()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_build, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(chunked, "FLUSH_BYTES", 40_000)


@pytest.mark.usefixtures("small_chunks")
def test_killed_at_any_moment_it_goes_on(synthetic: Path, tmp_path: Path) -> None:
    """GIDS_TEST_KILLS sets how many moments are tried; a release is tried with 50."""
    options = ConvertOptions(dtype=FeatureDtype.INT8)

    def run(folder: Path) -> Path:
        return convert_igbh(synthetic, folder / "store", options, workers=2)

    (tmp_path / "whole").mkdir()
    expected = folder_bytes(run(tmp_path / "whole"))
    check_kills(run, tmp_path, expected, int(os.environ.get("GIDS_TEST_KILLS", "8")))


@pytest.mark.usefixtures("small_chunks")
def test_killed_while_it_replaces_a_store(igbh: Path, tmp_path: Path) -> None:
    def run(folder: Path) -> Path:
        return convert_igbh(igbh, folder / "store", ConvertOptions(), overwrite=True)

    def prepare(folder: Path) -> Path:
        return convert_igbh(igbh, folder / "store", PLAIN)

    (tmp_path / "whole").mkdir()
    expected = folder_bytes(run(tmp_path / "whole"))
    check_kills(run, tmp_path, expected, 5, prepare)


def test_a_partial_store_does_not_open(
    synthetic: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gids.graph.store_build.record_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            convert_igbh(synthetic, tmp_path / "store")
    partial = partial_folder(tmp_path / "store")
    assert partial.is_dir()
    assert not is_store(partial)
    with pytest.raises(DatasetError, match=r"dataset\.toml"):
        open_store(partial)
    with pytest.raises(UnfinishedWorkError, match="whose settings is"):
        convert_igbh(synthetic, tmp_path / "store", PLAIN)


def test_too_little_room_is_found_before_any_work(
    igbh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "free_bytes", lambda folder: 1000)
    with pytest.raises(DiskFullError, match="1,000 are free"):
        convert_igbh(igbh, tmp_path / "store")
    assert os.listdir(tmp_path) == ["igbh"]


def test_a_disk_that_fills_up_ends_in_a_clear_error_and_work_goes_on(synthetic: Path, tmp_path: Path) -> None:
    def run() -> Path:
        return convert_igbh(synthetic, tmp_path / "store")

    for limit_bytes in (60_000, 200_000):
        run_with_small_files(run, limit_bytes)
        assert not (tmp_path / "store").exists()
    assert folder_bytes(run()) == folder_bytes(convert_igbh(synthetic, tmp_path / "other"))


def _peak_bytes(source: Path, store: Path, compiled: Path) -> int:
    code = f"""
from gids.graph.convert import convert_igbh
convert_igbh({str(source)!r}, {str(store)!r}, memory_bytes={MIN_MEMORY_BYTES})
# Not getrusage's ru_maxrss: after an exec it still counts what the parent had.
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(compiled)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True)
    return int(done.stdout) * 1024


def test_memory_stays_within_the_bound_on_a_graph_ten_times_larger(synthetic: Path, tmp_path: Path) -> None:
    large = synthesize(tmp_path / "large", "tiny", dim=64)
    size = sum(path.stat().st_size for path in large.rglob("*") if path.is_file())
    assert size > 10 * MIN_MEMORY_BYTES
    # Compiling takes memory of its own, so the first conversion does not count.
    _, base, peak = (
        _peak_bytes(source, tmp_path / f"store-{number}", tmp_path / "compiled")
        for number, source in enumerate([synthetic, synthetic, large])
    )
    assert peak - base < MIN_MEMORY_BYTES
    assert base < 250 * 2**20
