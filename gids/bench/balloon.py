"""A memory limit without control groups: another process takes the rest of the machine's memory.

What it holds is anonymous and there is no swap for it, so the kernel gives page cache up instead: a loader
and its page cache get along with what is left, as on a machine with so much memory. It holds for the whole
machine, so nothing else should run there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gids.bench import balloon_process
from gids.bench.cgroup import MemoryLimitUnavailable
from gids.fetch.memory import available_memory_bytes


@dataclass(frozen=True, eq=False)
class Balloon:
    """The process that holds memory.

    Attributes
    ----------
    process : Popen
    held_bytes : int
    """

    process: subprocess.Popen[str]
    held_bytes: int

    @property
    def holds(self) -> bool:
        """Whether it is still there: the kernel ends it first when memory runs out."""
        return self.process.poll() is None


@contextmanager
def memory_balloon(limit_bytes: int) -> Iterator[Balloon]:
    """Leaves `limit_bytes` of the memory that is available now, for the time of the `with` block.

    Raises
    ------
    MemoryLimitUnavailable
        There is swap, or less than that is available, or the memory could not be taken.
    """
    if _swap_bytes():
        raise MemoryLimitUnavailable(("a balloon would go to swap",))
    held_bytes = available_memory_bytes() - limit_bytes
    if held_bytes <= 0:
        raise MemoryLimitUnavailable((f"a balloon: less than {limit_bytes:,} bytes are available",))
    process = subprocess.Popen(
        [sys.executable, str(Path(balloon_process.__file__)), str(held_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != balloon_process.READY:
            raise MemoryLimitUnavailable((f"a balloon of {held_bytes:,} bytes could not be filled",))
        yield Balloon(process, held_bytes)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _swap_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal:")), 0)
