"""The bulk reader interface: long ranges of a store into memory, by several threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from bam.errors import ConfigError
from bam.layout import Layout
from bam.storage.bulk.memory import BulkMemory
from bam.storage.bulk.path import BulkPath
from bam.storage.bulk.settings import BulkSettings


@dataclass(frozen=True)
class BulkRange:
    """Logical bytes of a store, and where they go.

    Attributes
    ----------
    offset, length : int
        Logical bytes.
    begin : int
        Byte of the memory that the first of them goes to.
    """

    offset: int
    length: int
    begin: int = 0


@dataclass(frozen=True)
class BulkReport:
    """How bytes were read.

    Attributes
    ----------
    engine : str
        ``native (uring)``, ``native (file)``, ``kvikio``, ...
    path : BulkPath
        Which way they took, and why.
    direct : bool
        Whether the reads bypassed the page cache.
    settings : BulkSettings
    placement : str
        Where the threads ran, and why there.
    n_bytes : int
    reads : int
        Asked of the system, or of kvikio.
    seconds : float
    notes : tuple of str
        Why something asked for is not what ran.
    """

    engine: str
    path: BulkPath
    direct: bool
    settings: BulkSettings
    placement: str
    n_bytes: int
    reads: int
    seconds: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        how = "direct" if self.direct else "through the page cache"
        tasks = f"{self.settings.threads} threads, {self.settings.bytes_of_task} bytes a task"
        return "; ".join((f"{self.engine}, {how}, {tasks}", str(self.path), self.placement, *self.notes))


class BulkReader(ABC):
    """Reads long ranges of a store. One call at a time; the caller closes it."""

    @abstractmethod
    def read(self, ranges: Sequence[BulkRange], memory: BulkMemory) -> BulkReport:
        """Read all ranges; returns when all bytes are there.

        Parameters
        ----------
        ranges : sequence of BulkRange
            Of the layout's bytes, each to another part of the memory.
        memory : BulkMemory
            Kept alive until every read has ended, also those that were given up.

        Returns
        -------
        BulkReport

        Raises
        ------
        ConfigError
            A range outside the store or the memory. Nothing was read.
        StorageError
            The first run of file bytes that could not be read; no read is under way any more, and what the
            memory holds is undefined.
        WaitTimeout
            No progress for ``timeout_s``; reads that were given up may still write to the memory.
        EngineUnavailable, ClosedError
        """

    @abstractmethod
    def close(self) -> None:
        """Release the files; calling it again does nothing."""

    def __enter__(self) -> BulkReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_ranges(layout: Layout, ranges: Sequence[BulkRange], memory: BulkMemory) -> None:
    """Raise :class:`ConfigError` unless every range lies in the store and in the memory."""
    for each in ranges:
        inside = each.offset >= 0 and each.length >= 0 and each.begin >= 0
        if not inside or each.offset + each.length > layout.logical_bytes:
            raise ConfigError("ranges", each, f"some of the store's {layout.logical_bytes} bytes")
        if each.begin + each.length > memory.n_bytes:
            raise ConfigError("ranges", each, f"to lie in memory of {memory.n_bytes} bytes")
