"""The benchmark of bulk reads: every combination is there, and wrong bytes end it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from bam.bench import bulk_sweep
from bam.bench.__main__ import main
from bam.native import available

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")
SMALL = ["--size", "8MiB", "--read", "4MiB", "--tasks", "1MiB,4MiB", "--threads", "1,3", "--rounds", "2"]


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr("bam.storage.bulk.kvikio_library.why_no_driver", lambda: "there is no driver")


def test_every_combination_beside_its_ceiling(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "bulk.json"
    assert main(["bulk", str(tmp_path / "bench.bin"), *SMALL, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert (result["name"], result["read_bytes"], result["rounds"]) == ("bulk", 4 * 2**20, 2)
    asked = {
        (point["task_bytes"] >> 20, point["threads"], point["direct"], point["warm"])
        for point in result["points"]
    }
    assert len(asked) == len(result["points"]) == 16
    for point in result["points"]:
        assert (point["engine"], point["destination"]) == ("native", "host")
        assert point["ran"]["path"] == "posix"
        assert len(point["figure"]["values"]) == 2
        assert point["figure"]["min"] > 0
        assert point["of_ceiling"] is None or point["of_ceiling"] > 0
    assert sorted(result["unavailable"]) == ["cuda", "kvikio", "pinned"]
    assert "pread_cached" in result["ceilings"]
    best = result["best"]["native_host"]
    assert best["median"] == max(point["figure"]["median"] for point in result["points"] if not point["warm"])
    printed = capsys.readouterr().out
    assert "best cold native_host" in printed
    assert "not measured: kvikio" in printed


def test_wrong_bytes_end_it_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(memory: object) -> np.ndarray:
        found = bulk_sweep.host_copy(memory).copy()
        found[-100] ^= 1
        return found

    monkeypatch.setattr("bam.bench.bulk.host_copy", wrong)
    with pytest.raises(AssertionError):
        main(["bulk", str(tmp_path / "bench.bin"), *SMALL])


@pytest.mark.parametrize(
    "options",
    [["--destinations", "cuda"], ["--engines", "kvikio"], ["--read", "16MiB"], ["--threads", "0"]],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bulk", str(tmp_path / "bench.bin"), *SMALL, *options])
    assert stopped.value.code == 1
    assert "expected" in capsys.readouterr().err
