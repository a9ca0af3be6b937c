"""Finished work is remembered, torn lines are not, and folders appear whole."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gids.errors import DiskFullError, UnfinishedWorkError
from gids.graph import chunked
from gids.graph.chunked import ChunkedFile, disk_full_named, require_free_bytes, write_chunks, write_text
from gids.graph.journal import JOURNAL_NAME, Journal, partial_folder, publish
from gids.graph.progress import no_progress


def test_steps_and_chunks_are_remembered(tmp_path: Path) -> None:
    with Journal.open_or_resume(tmp_path / "w", {"a": 1}) as journal:
        assert not journal.resumed
        journal.record("one", {"n": 3})
        journal.record_chunks("two", [{"crc": 1}, {"crc": 2}])
        journal.record_chunks("two", [{"crc": 3}])
    with Journal.open_or_resume(tmp_path / "w", {"a": 1}) as journal:
        assert journal.resumed
        assert journal.result("one") == {"n": 3}
        assert journal.result("two") is None
        assert [chunk["crc"] for chunk in journal.chunks("two")] == [1, 2, 3]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_line_is_dropped(tmp_path: Path, cut: int) -> None:
    with Journal.open_or_resume(tmp_path / "w", {"a": 1}) as journal:
        journal.record("one", {"n": 3})
        journal.record("two", {"n": 4})
    path = tmp_path / "w" / JOURNAL_NAME
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal.open_or_resume(tmp_path / "w", {"a": 1}) as journal:
        assert journal.result("one") == {"n": 3}
        assert journal.result("two") is None
        journal.record("two", {"n": 5})
    with Journal.open_or_resume(tmp_path / "w", {"a": 1}) as journal:
        assert journal.result("two") == {"n": 5}


def test_other_work_is_refused(tmp_path: Path) -> None:
    Journal.open_or_resume(tmp_path / "w", {"a": 1, "b": [2]}).close()
    with pytest.raises(UnfinishedWorkError, match="whose a is 1, not 3"):
        Journal.open_or_resume(tmp_path / "w", {"a": 3, "b": [2]})


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        Journal.open_or_resume(tmp_path / "w", {}),
        pytest.raises(UnfinishedWorkError, match="another process"),
    ):
        Journal.open_or_resume(tmp_path / "w", {})


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "thesis.tex").touch()
    with pytest.raises(UnfinishedWorkError, match="no journal"):
        Journal.open_or_resume(tmp_path / "w", {})


def test_publishing_replaces_an_old_folder(tmp_path: Path) -> None:
    final = tmp_path / "out"
    final.mkdir()
    (final / "old").touch()
    with Journal.open_or_resume(partial_folder(final), {}):
        (partial_folder(final) / "new").touch()
        publish(partial_folder(final), final, replace=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["new", "out"]


def _file(tmp_path: Path) -> ChunkedFile:
    return ChunkedFile(tmp_path / "w" / "data", b"head", 1000, 300)


def _write(tmp_path: Path, made: list[int], fail_at: int | None = None) -> list[dict[str, object]]:
    def make(chunk: int, write: object) -> dict[str, object]:
        if chunk == fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(chunk)
        write(memoryview(bytes([chunk]) * _file(tmp_path).length(chunk)))  # type: ignore[operator]
        return {"chunk": chunk}

    with Journal.open_or_resume(tmp_path / "w", {}) as journal:
        return write_chunks(journal, "step", _file(tmp_path), make, workers=1, progress=no_progress)


def test_chunks_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "FLUSH_BYTES", 300)
    made: list[int] = []
    with pytest.raises(DiskFullError, match="run the same command again"):
        _write(tmp_path, made, fail_at=2)
    assert made[:2] == [0, 1]
    again: list[int] = []
    assert [result["chunk"] for result in _write(tmp_path, again)] == [0, 1, 2, 3]
    assert again in ([1, 2, 3], [2, 3])
    expected = b"head" + b"\0" * 300 + b"\1" * 300 + b"\2" * 300 + b"\3" * 100
    assert (tmp_path / "w" / "data").read_bytes() == expected
    untouched: list[int] = []
    _write(tmp_path, untouched)
    assert untouched == []


def test_a_file_left_longer_is_cut(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    Journal.open_or_resume(tmp_path / "w", {}).close()
    (tmp_path / "w" / "data").write_bytes(b"x" * 5000)
    _write(tmp_path, [])
    assert (tmp_path / "w" / "data").stat().st_size == 1004


def test_other_errors_keep_their_type(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), disk_full_named(tmp_path / "x", 1):
        raise PermissionError(errno.EACCES, "no")


def test_room_is_asked_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    require_free_bytes(tmp_path / "a" / "b", 1)
    with pytest.raises(DiskFullError):
        require_free_bytes(tmp_path / "a" / "b", 2**62)


def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "x", "one")
    write_text(tmp_path / "x", "two")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_text() == "two"
