"""`python balloon_process.py BYTES`: holds so much memory until its standard input ends.

Imports nothing of this package, so that little else is held.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

READY = "full"
_PART_BYTES = 256 * 2**20


def fill(memory: mmap.mmap, n_bytes: int, threads: int) -> None:
    """Write to all of it, so that the kernel has to find real memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def write(first: int) -> None:
        ctypes.memset(address + first, 1, min(_PART_BYTES, n_bytes - first))

    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(write, range(0, n_bytes, _PART_BYTES)))


def main(n_bytes: int) -> None:
    """Fill, say so, and wait."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # where memory runs out this process is the one to go
    memory = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    fill(memory, n_bytes, len(os.sched_getaffinity(0)))
    print(READY, flush=True)
    sys.stdin.read()
    os._exit(0)  # memory goes with the process; a tidy end would only take longer


if __name__ == "__main__":
    main(int(sys.argv[1]))
