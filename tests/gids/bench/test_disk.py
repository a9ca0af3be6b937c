"""Cold files, read-ahead that comes back, and the disk's ceilings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bam.bench.random_reads import random_reads_per_s
from bam.errors import ConfigError
from bam.native import available
from gids.bench import disk
from gids.bench.ceilings import measure_ceilings
from gids.bench.disk import cached_share, make_cold, read_ahead


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "file.bin"
    path.write_bytes(os.urandom(8 * 2**20))
    return str(path)


def test_files_become_cold(file: str) -> None:
    assert cached_share([file]) == 1.0  # as it was just written
    state = make_cold([file])
    assert (state.cold, state.drop_caches) == (True, False)
    assert cached_share([file]) == state.cached_share <= disk.COLD_SHARE
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        opened.read(4 * 2**20)
    assert 0.4 < cached_share([file]) < 0.6


def test_where_the_machine_may_not_be_emptied(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_DROP_CACHES", tmp_path / "none" / "drop_caches")
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: None)
    state = make_cold([file])
    assert (state.cold, state.cached_share, state.drop_caches) == (False, 1.0, False)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_share([str(tmp_path / "empty")]) == 0.0


def test_read_ahead_comes_back_even_after_errors(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "read_ahead_kb"
    setting.write_text("8192\n")
    monkeypatch.setattr(disk, "_read_ahead_file", lambda path: setting)
    with read_ahead(file, None) as state:
        assert (state.kib, state.note) == (8192, "")

    def interrupted() -> None:
        with read_ahead(file, 128) as state:
            assert (state.kib, setting.read_text()) == (128, "128")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert setting.read_text() == "8192"


def test_read_ahead_that_may_not_be_set_is_named(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "read_ahead_kb"
    setting.write_text("8192\n")

    def refuse(path: Path, text: str) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk, "_read_ahead_file", lambda path: setting)
    monkeypatch.setattr(Path, "write_text", refuse)
    with read_ahead(file, 128) as state:
        assert (state.kib, state.asked_kib) == (8192, 128)
        assert "Permission denied" in state.note
    monkeypatch.setattr(disk, "_read_ahead_file", lambda path: None)
    with read_ahead(file, 128) as state:
        assert (state.kib, "no read-ahead setting" in state.note) == (None, True)


def test_ceilings(file: str) -> None:
    found = measure_ceilings(file, seconds=0.05)
    assert found["sequential_mb_per_s"] > 0
    assert (found["random_4k_iops"] is None) == bool(found["note"])
    assert found["file_bytes"] == 8 * 2**20


def test_ceilings_of_a_file_too_short_for_random_reads(tmp_path: Path) -> None:
    path = tmp_path / "short.bin"
    path.write_bytes(bytes(100))
    found = measure_ceilings(str(path), seconds=0.01)
    assert (found["random_4k_iops"], "were not measured" in found["note"]) == (None, True)
    if available():
        with pytest.raises(ConfigError, match="at most 100"):
            random_reads_per_s(str(path), 1, 4096, seed=0, seconds=0.01)
