"""Memory limits by control groups, version 1 or 2: a process's page cache counts, too.

A group is made below the one this process is in, or below the nearest ancestor where that is permitted, so
limits above stay in force. See the kernel's `admin-guide/cgroup-v1/memory` and `admin-guide/cgroup-v2`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gids.errors import GidsError

logger = logging.getLogger(__name__)

_REMOVE_TIMEOUT_S = 10.0


class MemoryLimitUnavailable(GidsError, OSError):
    """This process may not make a memory control group here.

    Attributes
    ----------
    reasons : tuple of str
        Why, for each place that was tried.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons
        tried = "; ".join(reasons) or "no memory control group is mounted"
        super().__init__(
            f"a memory limit cannot be set: {tried}. Run as root, or under "
            "`systemd-run --user --scope -p Delegate=yes`"
        )


@dataclass(frozen=True)
class MemoryGroup:
    """A control group with a limit.

    Attributes
    ----------
    folder : Path
    version : int
        1 or 2.
    limit_bytes : int
    """

    folder: Path
    version: int
    limit_bytes: int

    @property
    def members_file(self) -> Path:
        """A process that writes its id there is in the group."""
        return self.folder / "cgroup.procs"

    def peak_bytes(self) -> int | None:
        """The most memory the group had, page cache included; None where the kernel does not say."""
        name = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
        return _read_number(self.folder / name)

    def kills(self) -> int:
        """Processes the kernel killed because the limit left no room."""
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        try:
            lines = (self.folder / name).read_text().splitlines()
        except OSError:
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A group for the time of the `with` block; its processes must have ended by then.

    Raises
    ------
    MemoryLimitUnavailable
    """
    group = _make(limit_bytes)
    try:
        yield group
    finally:
        _remove(group.folder)


def _make(limit_bytes: int) -> MemoryGroup:
    reasons = []
    for parent, version in _parents():
        folder = parent / f"gids-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            folder.mkdir()
        except OSError as error:
            reasons.append(f"{parent}: {error.strerror}")
            continue
        limit = "memory.limit_in_bytes" if version == 1 else "memory.max"
        try:
            (folder / limit).write_text(str(limit_bytes))
            _forbid_swap(folder, version, limit_bytes)
            return MemoryGroup(folder, version, limit_bytes)
        except OSError as error:
            reasons.append(f"{folder / limit}: {error.strerror}")
            _remove(folder)
    raise MemoryLimitUnavailable(tuple(reasons))


def _forbid_swap(folder: Path, version: int, limit_bytes: int) -> None:
    """Otherwise pages would go to swap and not be dropped; kernels without swap accounting lack the file."""
    name, value = ("memory.memsw.limit_in_bytes", limit_bytes) if version == 1 else ("memory.swap.max", 0)
    if (folder / name).exists():
        (folder / name).write_text(str(value))


def _parents() -> Iterator[tuple[Path, int]]:
    """Where a group may be made: this process's own group and its ancestors, the nearest first."""
    mounts = _mounts()
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        version = 2 if controllers == "" else 1
        if version == 1 and "memory" not in controllers.split(","):
            continue
        mount = mounts.get(version)
        if mount is None:
            continue
        group = mount / own.lstrip("/")
        for parent in (group, *group.parents):
            # In version 2 only groups that hand the controller on can have children with limits.
            if parent.is_dir() and (version == 1 or "memory" in _controllers_of_children(parent)):
                yield parent, version
            if parent == mount:
                break


def _mounts() -> dict[int, Path]:
    found: dict[int, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found.setdefault(2, Path(place))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.setdefault(1, Path(place))
    return found


def _controllers_of_children(folder: Path) -> list[str]:
    try:
        return (folder / "cgroup.subtree_control").read_text().split()
    except OSError:
        return []


def _remove(folder: Path) -> None:
    """Waits for processes that are just ending."""
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                logger.warning("%s could not be removed: %s", folder, error.strerror)
                return
            time.sleep(0.05)


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
