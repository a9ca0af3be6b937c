"""Where there are no control groups another process holds the memory that a loader may not have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gids.bench import balloon, launch
from gids.bench.balloon import memory_balloon
from gids.bench.cgroup import MemoryLimitUnavailable
from gids.bench.job import Job, JobKind
from gids.config import RunConfig

MIB = 2**20


@pytest.fixture(autouse=True)
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 MiB are available, and there is no swap."""
    monkeypatch.setattr(balloon, "available_memory_bytes", lambda: 100 * MIB)
    monkeypatch.setattr(balloon, "_swap_bytes", lambda: 0)


def test_it_holds_all_but_the_limit_and_lets_go() -> None:
    with memory_balloon(36 * MIB) as held:
        status = Path(f"/proc/{held.process.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
        assert held.held_bytes == 64 * MIB <= resident * 1024 < 100 * MIB
        assert held.holds
    assert not held.holds


def test_more_than_there_is_or_swap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MemoryLimitUnavailable, match="less than"), memory_balloon(200 * MIB):
        pass
    monkeypatch.setattr(balloon, "_swap_bytes", lambda: 1)
    with pytest.raises(MemoryLimitUnavailable, match="swap"), memory_balloon(36 * MIB):
        pass


@pytest.mark.parametrize(("asked", "ends_early"), [(True, False), (True, True), (False, False)])
def test_a_loader_runs_beside_it_and_the_result_says_so(
    asked: bool, ends_early: bool, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def no_group(limit_bytes: int) -> Any:
        raise MemoryLimitUnavailable(("not permitted",))

    def run(job: Job, group: Any) -> dict[str, Any]:
        if ends_early:
            started[0].process.kill()
            started[0].process.wait()
        return {"steps": 1}

    def remembered(limit_bytes: int) -> Any:
        made = memory_balloon(limit_bytes)
        enter = made.__enter__

        class Watched:
            def __enter__(self) -> Any:
                started.append(enter())
                return started[0]

            def __exit__(self, *error: Any) -> Any:
                return made.__exit__(*error)

        return Watched()

    monkeypatch.setattr(launch, "memory_group", no_group)
    monkeypatch.setattr(launch, "memory_balloon", remembered)
    monkeypatch.setattr(launch, "_run", run)
    bench = replace(config.bench, memory_balloon=asked)
    job = Job(JobKind.TIME, "gids", 1, 0, replace(config, bench=bench), "", str(tmp_path))
    memory = launch.run_job(job, 36 * MIB)["memory"]
    assert bool(started) == asked
    assert memory["enforced"] == (asked and not ends_early)
    assert memory["means"] == ("balloon" if memory["enforced"] else "")
    assert "not permitted" in memory["note"]
    assert ("ended before" in memory["note"]) == ends_early
