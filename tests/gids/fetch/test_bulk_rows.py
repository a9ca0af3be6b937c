"""Constant buffers filled by bulk reads: the same bytes, by the way that was measured to be best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bam
import gids
from bam.errors import ConfigError
from bam.native import available
from bam.storage import FaultEngine, FaultKind, FaultRule, NativeFaultEngine
from bam.storage.bulk.settings import Destination
from gids.fetch.bulk_points import BulkPoint, best_point, measure_bulk
from gids.fetch.bulk_rows import BulkRows, usable_settings
from gids.fetch.calibration import Calibration, Point, store_calibration
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.device_identity import DeviceIdentity
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.graph.convert import convert_igbh
from gids.graph.dataset import Dataset
from gids.graph.synth import synthesize

MIB = 2**20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hot-first store: hot rows are a prefix of each file."""
    root = tmp_path_factory.mktemp("bulk")
    synthesize(root / "source", "0.001", 0, dim=64)
    return convert_igbh(root / "source", root / "store")


@pytest.fixture
def dataset(folder: Path) -> Dataset:
    return gids.open_dataset(folder)


def loaded_store(dataset: Dataset, **settings: object) -> FeatureStore:
    store = open_features(dataset, FeatureSettings(cpu_buffer="60%", cache="1MiB", **settings))
    store.wait_until_loaded()
    return store


def constant_bytes(store: FeatureStore) -> dict[str, np.ndarray]:
    found = {}
    for name, buffer in store.buffers.items():
        assert buffer.n_loaded == buffer.n_rows > 0
        found[name] = np.empty((buffer.n_rows, buffer.row_bytes), np.uint8)
        places = np.arange(buffer.n_rows)
        buffer.copy(places, found[name], places)
    return found


def test_the_same_bytes_and_the_report_says_how(dataset: Dataset) -> None:
    asked = bam.BulkSettings(task_bytes=65536, threads=3, direct=False)
    plain, bulk = loaded_store(dataset, bulk=None), loaded_store(dataset, bulk=asked)
    expected, found = constant_bytes(plain), constant_bytes(bulk)
    assert list(found) == list(expected)
    for name, features in dataset.features.items():
        np.testing.assert_array_equal(found[name], expected[name])
        stored = np.array(bam.load_array(features.source).rows).view(np.uint8)
        np.testing.assert_array_equal(found[name], stored.reshape(len(stored), -1)[: len(found[name])])
        path = bulk.describe()[name]["constant_path"]
        assert "through the page cache, 3 threads, 65536 bytes a task" in path
        assert "posix" in path
        assert "constant_path" not in plain.describe()[name]
    plain.close()
    bulk.close()


def test_auto_takes_what_was_measured_to_be_best(dataset: Dataset, folder: Path, tmp_path: Path) -> None:
    points = (
        BulkPoint("host", "native", MIB, 1, True, 1.0e9),
        BulkPoint("host", "native", 4 * MIB, 16, True, 1.52e9),
        BulkPoint("host", "native", 2 * MIB, 4, True, 1.5e9),
        BulkPoint("cuda", "native", 16 * MIB, 16, True, 9.0e9),
    )
    # Within a twentieth of the best the smaller buffers win.
    assert best_point(points, Destination.HOST) == points[2]
    assert best_point(points, Destination.CUDA) == points[3]
    assert best_point(points, Destination.PINNED) is None
    identity = DeviceIdentity.of_path(folder)
    found = Calibration(identity, "uring", True, 2**30, (Point(4096, 1, 1e4),), points)
    store_calibration(found, tmp_path)
    store = loaded_store(dataset, calibration=str(tmp_path))
    assert f"4 threads, {2 * MIB} bytes a task" in store.describe()["paper"]["constant_path"]
    store.close()
    store = loaded_store(dataset)
    assert f"4 threads, {4 * MIB} bytes a task" in store.describe()["paper"]["constant_path"]
    store.close()


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_wrappers_and_the_engine_named_hold_for_it_too(dataset: Dataset) -> None:
    seen: list[object] = []

    def watched(engine: object) -> object:
        seen.append(engine)
        return NativeFaultEngine(engine, [])

    store = loaded_store(dataset, wrap=watched, engine="file")
    assert len(seen) == 2 * len(store.buffers)  # of the table and of its buffer
    assert "native (fault)" in store.describe()["paper"]["constant_path"]
    store.close()


def test_kvikio_that_is_no_longer_there(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = bam.BulkSettings("kvikio", 16 * MIB, 8)
    native = bam.BulkSettings("native", 16 * MIB, 8)
    monkeypatch.setattr("gids.fetch.bulk_rows.why_not", lambda engine: "there is no driver (of this test)")
    assert usable_settings("auto", measured, wrapped=False) == native
    assert "of this test" in caplog.text
    monkeypatch.setattr("gids.fetch.bulk_rows.why_not", lambda engine: "")
    assert usable_settings("auto", measured, wrapped=False) == measured
    assert usable_settings("auto", measured, wrapped=True) == native
    assert usable_settings(measured, None, wrapped=True) == measured  # asked for by name
    assert usable_settings(None, measured, wrapped=False) is None
    with pytest.raises(ConfigError, match="bulk"):
        FeatureSettings(bulk="fast")


def test_a_row_that_cannot_be_read_ends_the_load_with_its_place(dataset: Dataset) -> None:
    def broken(engine: object) -> object:
        rule = FaultRule(FaultKind.ERROR, nth=1)
        return NativeFaultEngine(engine, [rule]) if available() else FaultEngine(engine, [rule])

    store = open_features(dataset, FeatureSettings(cpu_buffer="60%", cache="1MiB", wrap=broken))
    with pytest.raises(bam.StorageError) as failed:
        store.wait_until_loaded()
    assert failed.value.file in {each.description.files[0].path for each in dataset.features.values()}
    assert sum(buffer.n_loaded for buffer in store.buffers.values()) == 0
    store.close()


@pytest.mark.parametrize("first", [0, 17])
def test_rows_that_follow_each_other_anywhere(
    dataset: Dataset, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps, each of which counts as loaded when it is there."""
    features = dataset.features["paper"]
    monkeypatch.setattr("gids.fetch.bulk_rows._STEP_BYTES", 10 * features.row_bytes)
    buffer = ConstantBuffer(features, np.arange(first, first + 25), load=False)
    assert buffer.first_row == first
    rows = BulkRows(features.description, first, bam.BulkSettings())
    loaded = [(n_rows, buffer.n_loaded) for n_rows in rows.fill(buffer)]
    assert loaded == [(10, 10), (10, 20), (5, 25)]
    out = np.empty((25, features.row_bytes), np.uint8)
    buffer.copy(np.arange(25), out, np.arange(25))
    expected = bam.load_array(features.source, rows=slice(first, first + 25)).rows
    np.testing.assert_array_equal(out.reshape(-1), np.array(expected).view(np.uint8).reshape(-1))
    assert ConstantBuffer(features, np.array([1, 2, 4]), load=False).first_row is None
    rows.close()


def test_measured_points_have_what_reads_again(tmp_path: Path) -> None:
    np.zeros(MIB, np.uint8).tofile(tmp_path / "data")
    points = measure_bulk(tmp_path / "data", seconds=0.01, task_bytes=(65536,), threads=(1, 2))
    host = [point for point in points if (point.destination, point.engine) == ("host", "native")]
    assert [(point.task_bytes, point.threads) for point in host] == [(65536, 1), (65536, 2)]
    assert all(point.bytes_per_s > 0 for point in points)
    assert host[1].settings == bam.BulkSettings("native", 65536, 2)
