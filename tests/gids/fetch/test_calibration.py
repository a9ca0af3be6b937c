"""A device is measured once, and again when it is another one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bam.errors import ConfigError
from bam.native import available
from bam.storage.bulk.settings import Destination
from bam.storage.memory import MemoryEngine, NativeMemoryEngine
from gids.cli.main import main
from gids.errors import DatasetError
from gids.fetch.bulk_points import BulkPoint
from gids.fetch.calibration import (
    FILE_NAME,
    Calibration,
    Point,
    calibrate,
    load_calibration,
    measure,
    store_calibration,
)
from gids.fetch.device_identity import DeviceIdentity
from gids.fetch.device_model import SsdFacts
from gids.fetch.storage_model import storage_model
from gids.graph.synth import synthesize

POINTS = (
    Point(4096, 1, 5_000.0),
    Point(4096, 64, 80_000.0),
    Point(65536, 1, 3_000.0),
    Point(65536, 64, 15_000.0),
)


@pytest.fixture
def calibration(tmp_path: Path) -> Calibration:
    return Calibration(DeviceIdentity.of_path(tmp_path), "uring", True, 2**30, POINTS)


def test_facts_are_the_peak_and_the_latency_alone(calibration: Calibration) -> None:
    facts = calibration.facts(4096)
    assert (facts.iops, facts.latency_us) == (80_000, 200)
    assert calibration.facts(512) == facts  # the shortest that was measured
    assert calibration.facts(8192).iops == 15_000
    np.testing.assert_allclose(calibration.cost_model().cost_us([4096, 65536]), [12.5, 1e6 / 15_000])


def test_it_comes_back_from_its_file(calibration: Calibration, tmp_path: Path) -> None:
    store_calibration(calibration, tmp_path)
    assert load_calibration(tmp_path) == calibration
    points = (BulkPoint("host", "native", 2**20, 4, True, 1e9),)
    with_bulk = replace(calibration, bulk=points)
    store_calibration(with_bulk, tmp_path)
    assert load_calibration(tmp_path) == with_bulk
    assert with_bulk.bulk_settings() == {Destination.HOST: points[0].settings}


def test_a_file_from_before_bulk_reads_were_measured(calibration: Calibration, tmp_path: Path) -> None:
    table = calibration.to_json()
    del table["bulk"]
    (tmp_path / FILE_NAME).write_text(json.dumps(table))
    found = load_calibration(tmp_path)
    assert found == calibration
    assert found.bulk_settings() == {}


def test_of_another_device_it_does_not_hold(
    calibration: Calibration, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    moved = replace(calibration, device=replace(calibration.device, serial="another"))
    store_calibration(moved, tmp_path)
    assert load_calibration(tmp_path) is None
    assert "gids calibrate" in caplog.text


def test_it_may_lie_in_another_folder(calibration: Calibration, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    store_calibration(calibration, elsewhere)
    model = storage_model(tmp_path, 4096, calibration=elsewhere)
    assert (model.facts.iops, model.source) == (80_000, "calibration")
    assert storage_model(tmp_path, 4096).source == "default"
    explicit = storage_model(tmp_path, 4096, calibration=elsewhere, ssd=SsdFacts(1e6, 10))
    assert (explicit.facts.iops, explicit.source) == (1e6, "settings")
    assert explicit.rules == model.rules


def test_there_is_none_before_it_was_measured(tmp_path: Path) -> None:
    assert load_calibration(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(DatasetError, match="gids calibrate"):
        load_calibration(tmp_path)


def test_lengths_that_do_not_fit_are_left_out() -> None:
    with MemoryEngine([np.zeros(10_000, np.uint8)]) as engine:
        points = measure(engine, seconds=0.01, read_bytes=(512, 8192, 16384), depths=(1, 4))
    assert [(point.read_bytes, point.depth) for point in points] == [(512, 1), (512, 4), (8192, 1), (8192, 4)]
    assert all(point.reads_per_s > 0 and point.latency_us > 0 for point in points)


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_what_limits_a_modelled_device_is_found() -> None:
    from bam.storage.latency import LatencyEngine, LognormalLatency, SsdModel

    model = SsdModel(iops=50_000, bytes_per_s=1e9, latency=LognormalLatency(400.0))
    with NativeMemoryEngine([np.zeros(2**20, np.uint8)]) as memory, LatencyEngine(memory, model) as engine:
        points = measure(engine, seconds=0.6, read_bytes=(4096,), depths=(1, 256))
    # Never faster than the model; how much slower depends on how busy the machine is.
    assert points[0].latency_us >= 399
    assert points[1].reads_per_s <= 52_000


def test_a_file_too_short_to_be_measured(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(ConfigError, match="at least"):
        calibrate(tmp_path / "short", engine="file", seconds=0.01)


def test_the_command_measures_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    synthesize(folder, "0.001", 0, dim=64)
    command = ["calibrate", str(folder), "--seconds", "0.2", "--engine", "file"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "reach 95 % of the peak" in printed
    assert "bulk reads to host memory" in printed
    first = json.loads((folder / FILE_NAME).read_text())
    assert first["engine"] == "file"
    assert len([point for point in first["bulk"] if point["destination"] == "host"]) >= 9
    assert main(command) == 0
    assert "measured before" in capsys.readouterr().out
    assert json.loads((folder / FILE_NAME).read_text()) == first
    assert main([*command, "--force"]) == 0
    assert json.loads((folder / FILE_NAME).read_text()) != first


def test_a_folder_without_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(tmp_path)]) == 1
    assert "features" in capsys.readouterr().err
