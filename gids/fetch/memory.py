"""How much memory there is to take."""

from __future__ import annotations

from pathlib import Path


def available_memory_bytes() -> int:
    """Memory this process can still take: the machine's, or less where a memory cgroup says so."""
    available = _meminfo("MemAvailable")
    for limit, usage in _cgroup_files():
        try:
            bound, used = limit.read_text().strip(), int(usage.read_text())
        except (OSError, ValueError):
            continue
        if bound != "max":
            available = min(available, max(0, int(bound) - used))
    return available


def _meminfo(key: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _cgroup_files() -> list[tuple[Path, Path]]:
    """Limit and usage files of this process's memory cgroups, version 1 and 2."""
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            folder = Path("/sys/fs/cgroup") / path.lstrip("/")
            found.append((folder / "memory.max", folder / "memory.current"))
        elif "memory" in controllers.split(","):
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            found.append((folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"))
    return found
