"""Runs jobs in processes of their own, under a memory limit where that is permitted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gids.bench.balloon import memory_balloon
from gids.bench.cgroup import MemoryGroup, MemoryLimitUnavailable, memory_group
from gids.bench.job import Job

# The shell joins the group before Python starts, so that no page of the process is charged elsewhere.
_JOIN = 'echo $$ > "$0" && exec "$@"'


@dataclass(frozen=True)
class MemoryLimit:
    """A memory limit, and what became of it.

    Attributes
    ----------
    limit_bytes : int
        0: none was asked for.
    enforced : bool
    means : str
        ``control group``, or ``balloon`` (:mod:`gids.bench.balloon`); empty where it is not enforced.
    cgroup_version : int
        1 or 2; 0 without a control group.
    peak_bytes : int or None
        The most the process had, its page cache included.
    note : str
        Why it is not enforced, or not by a control group.
    """

    limit_bytes: int
    enforced: bool = False
    means: str = ""
    cgroup_version: int = 0
    peak_bytes: int | None = None
    note: str = ""


def run_job(job: Job, limit_bytes: int = 0) -> dict[str, Any]:
    """Run a job and wait for it.

    Parameters
    ----------
    job : Job
    limit_bytes : int
        0: no limit.

    Returns
    -------
    dict
        The job's result with ``memory``; or ``failed``, which says how it ended.
    """
    if not limit_bytes:
        return {**_run(job, None), "memory": asdict(MemoryLimit(0))}
    with ExitStack() as opened:
        try:
            group = opened.enter_context(memory_group(limit_bytes))
        except MemoryLimitUnavailable as error:
            return _run_without_group(job, limit_bytes, str(error))
        result = _run(job, group)
        memory = MemoryLimit(limit_bytes, True, "control group", group.version, group.peak_bytes())
        if "failed" in result and group.kills():
            result["failed"] = f"killed by the kernel: {limit_bytes:,} bytes were not enough"
    return {**result, "memory": asdict(memory)}


def _run_without_group(job: Job, limit_bytes: int, why: str) -> dict[str, Any]:
    """With the rest of the machine's memory taken away, where that was asked for; else without a limit."""
    if not job.config.bench.memory_balloon:
        return {**_run(job, None), "memory": asdict(MemoryLimit(limit_bytes, note=why))}
    with ExitStack() as opened:
        try:
            balloon = opened.enter_context(memory_balloon(limit_bytes))
        except MemoryLimitUnavailable as error:
            memory = MemoryLimit(limit_bytes, note=f"{why}; {error}")
            return {**_run(job, None), "memory": asdict(memory)}
        result = _run(job, None)
        note = f"no control group ({why}), so a process held {balloon.held_bytes:,} bytes of memory"
        held = balloon.holds
    if not held:
        note = f"{note}; it ended before the loader did: {limit_bytes:,} bytes were not enough"
    memory = MemoryLimit(limit_bytes, held, "balloon" if held else "", note=note)
    return {**result, "memory": asdict(memory)}


def _run(job: Job, group: MemoryGroup | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="job-", dir=job.work) as folder:
        job_file, result_file = Path(folder) / "job.json", Path(folder) / "result.json"
        job.write(job_file)
        command = [sys.executable, "-m", "gids.bench.child", str(job_file), str(result_file)]
        if group is not None:
            command = ["/bin/sh", "-c", _JOIN, str(group.members_file), *command]
        status = _wait(subprocess.Popen(command, env=child_environment(job.config.bench.threads)))
        if result_file.exists():
            result: dict[str, Any] = json.loads(result_file.read_text())
            return result
        reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return {"failed": f"the process ended with {reason}; its messages are on standard error"}


def child_environment(threads: int) -> dict[str, str]:
    """The environment every loader gets.

    Idle OpenMP threads sleep, so that other threads can run.
    """
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "DGLBACKEND": "pytorch"}
    if threads:
        environment |= {"OMP_NUM_THREADS": str(threads), "NUMBA_NUM_THREADS": str(threads)}
    return environment


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Exit status; the process does not outlive an interrupted wait."""
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
