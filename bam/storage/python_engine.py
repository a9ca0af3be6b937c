"""What the engines in plain Python have in common: they close safely, and notice a fork."""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bam.errors import ClosedError, ForkedError, WaitTimeout
from bam.storage.buffers import check_spans
from bam.storage.engine import ByteArray, Engine, FileInfo, ReadSpan

#: How long closing waits for reads of other threads.
CLOSE_TIMEOUT_S = 60.0


class PythonEngine(Engine):
    """Subclasses say how to read one span (:meth:`_read_span`) and what to release (:meth:`_release`)."""

    def __init__(self, name: str, files: Sequence[FileInfo]) -> None:
        self._name = name
        self._files = tuple(files)
        self._pid = os.getpid()
        self._idle = threading.Condition()
        self._reading = 0
        self._closed = False
        self._notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[FileInfo, ...]:
        return self._files

    def read(self, spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> list[int]:
        with self._in_use():
            check_spans(spans, buffers)
            return [self._read_span(span, buffer) for span, buffer in zip(spans, buffers, strict=True)]

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # the files are the parent's; the lock may be held by a thread that is not here
        with self._idle:
            if self._closed:
                return
            self._closed = True
            if not self._idle.wait_for(lambda: self._reading == 0, CLOSE_TIMEOUT_S):
                # They keep the files: closed under a read, a descriptor could become another file's.
                raise WaitTimeout(
                    f"{self._reading} reads by other threads",
                    CLOSE_TIMEOUT_S,
                    f"The files of engine {self._name!r} stay open. Check the disk",
                )
        self._release()

    def add_note(self, note: str) -> None:
        """Have :meth:`info` say `note` too."""
        self._notes += (note,)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keeps files open until the block is left."""
        if os.getpid() != self._pid:
            raise ForkedError(f"engine {self._name!r}")
        with self._idle:
            if self._closed:
                raise ClosedError(f"engine {self._name!r}")
            self._reading += 1
        try:
            yield
        finally:
            with self._idle:
                self._reading -= 1
                self._idle.notify_all()

    @abstractmethod
    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        """Bytes read, or ``-errno``."""

    @abstractmethod
    def _release(self) -> None:
        """Called once, when no read is under way."""
