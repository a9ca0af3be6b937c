"""Benchmark files and the command line around them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bam
from bam.bench.__main__ import main
from bam.bench.files import ensure_file, expected_words
from bam.native import available

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def test_made_once_and_again_for_another_size(tmp_path: Path) -> None:
    path = tmp_path / "it"
    assert ensure_file(path, 8192)
    assert path.read_bytes() == expected_words(0, 1024).tobytes()
    assert not ensure_file(path, 8192)
    assert ensure_file(path, 4096)
    assert path.read_bytes() == expected_words(0, 512).tobytes()
    assert [each.name for each in tmp_path.iterdir()] == ["it"]


@pytest.mark.parametrize("content", [b"", b"precious" * 512, b"precious" * 1024])
def test_files_of_others_are_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "features.npy"
    path.write_bytes(content)
    with pytest.raises(bam.SourceError, match="give a path that is free"):
        ensure_file(path, 4096)
    assert path.read_bytes() == content
    with pytest.raises(bam.SourceError):
        ensure_file(tmp_path, 4096)


@pytest.mark.parametrize("size", [0, 1000, 4097])
def test_sizes_that_cannot_be(tmp_path: Path, size: int) -> None:
    with pytest.raises(bam.ConfigError, match="size"):
        ensure_file(tmp_path / "it", size)


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "features.npy"
    path.write_bytes(b"precious")
    for arguments in (
        [str(path)],
        [str(tmp_path / "no" / "folder")],
        [str(tmp_path / "it"), "--size", "ten"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(["io", *arguments])
        assert stopped.value.code == 1
        assert capsys.readouterr().err.startswith("python -m bam.bench io: ")


def test_every_figure_is_in_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        bam.open_array(__file__, engine="uring", dtype="u1", shape=(-1, 1)).close()
    except bam.EngineUnavailable as refusal:
        pytest.skip(str(refusal))
    json_path = tmp_path / "io.json"
    size = ["--size", "1MiB", "--rounds", "2", "--seconds", "0.05"]
    assert main(["io", str(tmp_path / "it"), *size, "--json", str(json_path)]) == 0
    found = json.loads(json_path.read_text())
    for name in ("iops_4k", "cold_gather_rows_per_s", "hit_gather_rows_per_s", "np_take_rows_per_s"):
        assert len(found["figures"][name]["values"]) == 2
        assert found[name] > 0
    assert "hits_of_np_take" in capsys.readouterr().out
