"""Memory limits: they hold, they say so where they cannot be set, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gids.bench import cgroup
from gids.bench.cgroup import MemoryGroup, MemoryLimitUnavailable, memory_group

LIMIT = 64 * 2**20


def _permitted() -> str:
    try:
        with memory_group(LIMIT):
            return ""
    except MemoryLimitUnavailable as error:
        return str(error)


REFUSAL = _permitted()
needs_permission = pytest.mark.skipif(bool(REFUSAL), reason=f"no memory control groups here: {REFUSAL}")


def _run_inside(group: MemoryGroup, code: str) -> int:
    shell = 'echo $$ > "$0" && exec "$@"'
    command = ["/bin/sh", "-c", shell, str(group.members_file), sys.executable, "-c", code]
    return subprocess.run(command, check=False).returncode


@needs_permission
def test_a_process_within_the_limit_ends_well_and_its_peak_is_known() -> None:
    with memory_group(LIMIT) as group:
        assert _run_inside(group, "x = bytearray(20 << 20)") == 0
        assert group.kills() == 0
        peak = group.peak_bytes()
        assert peak is None or 20 * 2**20 <= peak <= LIMIT
    assert not group.folder.exists()


@needs_permission
def test_a_process_that_wants_more_is_killed() -> None:
    with memory_group(LIMIT) as group:
        assert _run_inside(group, "x = bytearray(300 << 20)") == -9
        assert group.kills() >= 1
    assert not group.folder.exists()


@needs_permission
def test_the_page_cache_counts(tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(2 * LIMIT))
    code = f"import os; f = open({str(file)!r}, 'rb'); os.posix_fadvise(f.fileno(), 0, 0, 4)\n"
    code += "while f.read(1 << 20): pass"
    with memory_group(LIMIT) as group:
        assert _run_inside(group, code) == 0
        peak = group.peak_bytes()
        if peak is None:
            pytest.skip("this kernel does not tell a group's peak")
        assert peak > LIMIT // 2  # the process alone needs a fraction of that


def test_it_says_where_it_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: iter([(tmp_path / "none", 1)]))
    with pytest.raises(MemoryLimitUnavailable, match="No such file") as caught, memory_group(LIMIT):
        raise AssertionError("no group was made")
    assert len(caught.value.reasons) == 1
    monkeypatch.setattr(cgroup, "_parents", lambda: iter([]))
    with pytest.raises(MemoryLimitUnavailable, match="no memory control group is mounted"):
        cgroup._make(LIMIT)


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_both_versions(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written and read, on plain files in place of the kernel's."""
    made: list[Path] = []
    plain_mkdir = Path.mkdir

    def mkdir(path: Path, *arguments: object, **options: object) -> None:
        plain_mkdir(path)
        made.append(path)
        (path / "memory.memsw.limit_in_bytes").touch()
        (path / "memory.swap.max").touch()

    monkeypatch.setattr(cgroup, "_parents", lambda: iter([(tmp_path, version)]))
    monkeypatch.setattr(Path, "mkdir", mkdir)
    group = cgroup._make(LIMIT)
    assert made == [group.folder]
    texts = {file.name: file.read_text() for file in group.folder.iterdir()}
    if version == 1:
        assert texts["memory.limit_in_bytes"] == texts["memory.memsw.limit_in_bytes"] == str(LIMIT)
        (group.folder / "memory.max_usage_in_bytes").write_text("123\n")
        (group.folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    else:
        assert (texts["memory.max"], texts["memory.swap.max"]) == (str(LIMIT), "0")
        (group.folder / "memory.peak").write_text("123\n")
        (group.folder / "memory.events").write_text("low 0\noom 4\noom_kill 2\noom_group_kill 0\n")
    assert (group.peak_bytes(), group.kills()) == (123, 2)
