"""The engine interface: what moves bytes from files into memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.config import EngineKind as EngineKind

ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class FileInfo:
    """One open file of an engine.

    Attributes
    ----------
    path : str
    bytes : int
        Size when it was opened.
    offset_alignment, memory_alignment : int
        Offsets and lengths of reads, and destination addresses, are multiples of these (bytes).
    direct : bool
        Whether reads bypass the page cache (O_DIRECT).
    """

    path: str
    bytes: int
    offset_alignment: int = 1
    memory_alignment: int = 1
    direct: bool = False


@dataclass(frozen=True)
class ReadSpan:
    """One read: `length` bytes at `offset` of file number `file`, both aligned; may reach past its end."""

    file: int
    offset: int
    length: int


@dataclass(frozen=True)
class EngineInfo:
    """Which path really runs.

    Attributes
    ----------
    engine : str
        Name of the engine (`uring`, `file`, `memory`) or wrapper.
    implementation : str
        ``native`` or ``python``.
    direct : bool
        Whether every file is read with O_DIRECT.
    features : dict
        What was probed and found (registered buffers, ...).
    notes : tuple of str
        Why something asked for is not what runs.
    inner : tuple of EngineInfo
        Of a wrapper: what it wraps.
    """

    engine: str
    implementation: str
    direct: bool
    features: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    inner: tuple[EngineInfo, ...] = ()


class Engine(ABC):
    """Reads aligned spans of a fixed list of files. Safe to use from several threads.

    An engine never retries and never hides anything: a read may come back short (at the end of a file, or at
    any time), or with a negative errno, EINTR and EAGAIN included. Whoever uses it asks again.
    """

    @property
    @abstractmethod
    def files(self) -> tuple[FileInfo, ...]:
        """The open files, by number."""

    @abstractmethod
    def read(self, spans: Sequence[ReadSpan], buffers: Sequence[ByteArray]) -> list[int]:
        """Read each span into the buffer of the same index.

        Parameters
        ----------
        spans : sequence of ReadSpan
        buffers : sequence of uint8 arrays
            C-contiguous, writable, of ``span.length`` bytes, aligned to ``memory_alignment``; the caller's.

        Returns
        -------
        list of int
            Per span the bytes read, or ``-errno``.

        Raises
        ------
        ClosedError
        """

    def check_file(self, file: int, end: int = 0) -> int:
        """Whether the file's bytes before `end` are what they were when it was opened; wrappers ask below.

        Asked after bytes arrived, before they are handed out.

        Returns
        -------
        int
            0, ENODATA (it was cut and ends before `end`), ESTALE (it was rewritten), or the errno of looking.
        """
        return 0

    def bytes_now(self, file: int) -> int:
        """Size of the file now: whether a short read is to be continued or the file was cut there."""
        return self.files[file].bytes

    def explain(self, file: int, offset: int) -> str:
        """What the device said of the last failed read of that byte; empty where errno says it all."""
        return ""

    @abstractmethod
    def info(self) -> EngineInfo:
        """Which path really runs."""

    @abstractmethod
    def close(self) -> None:
        """Release files and queues; calling it again does nothing."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
