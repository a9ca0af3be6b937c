"""As much of kvikio's module as bulk reads use, in plain Python, with faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np


class CompatMode(Enum):
    OFF = 0
    ON = 1
    AUTO = 2


@dataclass
class Defaults:
    """Settings, and a note of every change."""

    values: dict[str, Any] = field(
        default_factory=lambda: {
            "num_threads": 1,
            "task_size": 4 * 2**20,
            "auto_direct_io_read": False,
            "compat_mode": CompatMode.AUTO,
        }
    )
    affinities: list[frozenset[int]] = field(default_factory=list)
    #: What happened, in order: ``threads`` (their number was set, which waits for them), ``close`` of a file.
    events: list[str] = field(default_factory=list)

    def get(self, name: str) -> Any:
        return self.values[name]

    def set(self, *config: Any) -> AbstractContextManager[None]:
        """Takes effect at once; as a context it comes back, as in kvikio."""
        changed = config[0] if len(config) == 1 else {config[0]: config[1]}
        before = {name: self.values[name] for name in changed}
        self.values.update(changed)
        if "num_threads" in changed:
            self.events.append("threads")
            self.affinities.append(frozenset(os.sched_getaffinity(0)))
        return self._restored(before)

    @contextmanager
    def _restored(self, before: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        finally:
            self.values.update(before)


@dataclass(frozen=True)
class Future:
    work: Callable[[], int]

    def get(self) -> int:
        return self.work()


class FakeKvikio:
    """A module `kvikio`.

    Parameters
    ----------
    fault : callable, optional
        Takes the number of a read, from 1, and its size; returns bytes to read, or raises.
    """

    CompatMode = CompatMode

    def __init__(self, fault: Callable[[int, int], int] | None = None) -> None:
        self.defaults = Defaults()
        self.fault = fault or (lambda number, size: size)
        self.n_reads = self.n_open = 0
        self.seen: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def CuFile(self, path: str, flags: str) -> FakeFile:  # noqa: N802 - kvikio's name
        assert flags == "r"
        self.n_open += 1
        return FakeFile(self, path)

    def next_read(self, size: int) -> int:
        with self._lock:
            self.n_reads += 1
            self.seen.append(dict(self.defaults.values))
            return self.fault(self.n_reads, size)


class FakeFile:
    """A `kvikio.CuFile`."""

    def __init__(self, kvikio: FakeKvikio, path: str) -> None:
        self._kvikio, self._path = kvikio, path
        self._descriptor = os.open(path, os.O_RDONLY)

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, buffer: np.ndarray, size: int, file_offset: int, task_size: int) -> Future:
        assert task_size == self._kvikio.defaults.get("task_size")

        def work() -> int:
            allowed = self._kvikio.next_read(size)
            got = os.preadv(self._descriptor, [buffer[:allowed].data], file_offset)
            if got < allowed:
                raise RuntimeError("POSIX error on pread: EOF")
            return got

        return Future(work)

    def close(self) -> None:
        self._kvikio.defaults.events.append("close")
        os.close(self._descriptor)
        self._kvikio.n_open -= 1
