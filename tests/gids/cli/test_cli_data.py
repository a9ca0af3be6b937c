"""`gids synth`, `convert`, `info` and `verify`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gids.cli.main import main
from gids.cli.text import size_text, table_text


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_from_nothing_to_a_verified_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    status, out, err = _run(capsys, "synth", "--scale", "0.01", "--dim", 8, "--out", data)
    # No bars: standard error is not a terminal here.
    assert (status, err) == (0, "")
    assert str(data) in out
    status, out, err = _run(capsys, "convert", "igbh", data, store, "--dtype", "float16", "--memory", "64MiB")
    assert (status, err) == (0, "")
    status, out, err = _run(capsys, "info", store)
    assert (status, err) == (0, "")
    assert "paper__cites__paper" in out
    assert "1,000" in out
    status, out, err = _run(capsys, "info", data)
    assert "IGBH folder, of no published size" in out
    status, out, err = _run(capsys, "info", store, "--json")
    facts = json.loads(out)
    assert facts["settings"]["dtype"] == "float16"
    assert [entry["nodes"] for entry in facts["node_types"]] == [3571, 843, 88, 1000]
    status, out, err = _run(capsys, "verify", store)
    assert (status, err) == (0, "")


def test_damage_is_reported_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, store = tmp_path / "data", tmp_path / "store"
    main(["synth", "--scale", "0.001", "--dim", "4", "--out", str(data)])
    main(["convert", "igbh", str(data), str(store)])
    capsys.readouterr()
    path = store / "features/fos.bin"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    status, out, err = _run(capsys, "verify", store)
    assert (status, out) == (1, "")
    assert "features/fos.bin: expected checksum" in err
    assert "convert it again" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synth", "--scale", "huge", "--out", "x"], "expected one of tiny, small"),
        (["convert", "igbh", "nowhere", "x"], "nowhere"),
        (["info", "nowhere"], "nowhere"),
        (["verify", "nowhere"], "dataset.toml"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = _run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith("gids: ")
    assert err.count("\n") == 1
    assert message in err


def test_wrong_usage_has_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["convert", "igbh", "a", "b", "--dtype", "int4"])
    assert caught.value.code == 2
    assert "int8" in capsys.readouterr().err


def test_ctrl_c_has_status_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gids.cli.info.run", interrupted)
    status, _, err = _run(capsys, "info", "x")
    assert status == 130
    assert "goes on from it" in err


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    main(["synth", "--scale", "0.001", "--dim", "4", "--out", str(tmp_path / "data")])
    command = f"{sys.executable} -m gids.cli.main info {tmp_path / 'data'} | true; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(["bash", "-c", command], env=environment, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_places_that_cannot_be_written_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    status, _, err = _run(
        capsys, "synth", "--scale", "0.001", "--dim", 4, "--out", tmp_path / "file" / "data"
    )
    assert status == 1
    assert "Not a directory" in err


def test_sizes_and_tables() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 2_252_795_904, 2.2e12)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "2.25 GB",
        "2.20 TB",
    ]
    assert table_text(["name", "n"], [["a", 5], ["long", 1000]]) == "name      n\na         5\nlong  1,000"
