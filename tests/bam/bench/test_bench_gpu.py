"""The GPU benchmark without a GPU; on one, experiments/gpu/run.sh runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bam.bench.__main__ import main
from bam.bench.gpu import COLD_ROWS, cold_rows
from bam.bench.gpu_figures import Figure, measured
from bam.native import available


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_without_a_gpu_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(SystemExit) as stopped:
        main(["gpu", str(tmp_path / "bench.bin"), "--size", "1MiB"])
    assert stopped.value.code == 1
    assert "cuda" in capsys.readouterr().err


def test_a_figure_stands_beside_its_ceiling() -> None:
    figure = Figure(45.0, "GB/s", 50.0, {"enqueue_us": 3.0})
    assert figure.as_json() == {
        "value": 45.0,
        "unit": "GB/s",
        "ceiling": 50.0,
        "ratio": 0.9,
        "enqueue_us": 3.0,
    }


def test_a_figure_that_fails_does_not_lose_the_others() -> None:
    def fail() -> dict[str, Figure]:
        raise ValueError("planted")

    steps = list(measured({"first": fail, "second": lambda: {"rate": Figure(1.0, "GB/s", 2.0)}}, 60.0))
    assert steps[0]["errors"] == {"first": "ValueError: planted"}
    assert steps[0]["figures"] == {}
    assert steps[1]["figures"]["rate"]["ratio"] == 0.5
    assert set(steps[1]["seconds"]) == {"first", "second"}


def test_a_figure_that_hangs_ends_the_process() -> None:
    script = (
        "import time; from bam.bench.gpu_figures import measured; "
        "list(measured({'a': lambda: time.sleep(60)}, 0.2))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr


def test_a_slow_disk_is_asked_for_fewer_rows() -> None:
    assert [cold_rows(rate) for rate in (0.1, 1_000.0, 1e6)] == [1, 3_000, COLD_ROWS]
