"""Where a benchmark ran: what every result file names."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any


def describe_machine(path: Path) -> dict[str, Any]:
    """Machine, kernel and the disk under `path`."""
    device = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    queue = block / "queue" if (block / "queue").is_dir() else block.parent / "queue"
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "disk": {
            "device": block.name,
            "file_system": _file_system(path),
            "read_ahead_kib": _read_number(queue / "read_ahead_kb"),
            "rotational": _read_number(queue / "rotational"),
        },
    }


def commit() -> str:
    """The commit of the working tree this package lies in, with `-dirty`; empty when it is not in one.

    ``BAM_COMMIT`` in the environment goes over it: a copy may be without its history, or with an older one.
    """
    if told := os.environ.get("BAM_COMMIT"):
        return told
    folder = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def command() -> str:
    """The command line that is running."""
    return shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, file_system, *_ = line.split()
        if str(path.resolve()).startswith(mount) and len(mount) > len(best):
            best, kind = mount, file_system
    return kind


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
