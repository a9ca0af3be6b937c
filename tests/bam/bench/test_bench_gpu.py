"""The GPU benchmark without a GPU; on one, experiments/gpu/run.sh runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bam.bench.__main__ import main
from bam.bench.gpu_figures import Figure
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
