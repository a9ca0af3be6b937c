"""Where the bytes of an array lie in files.

The logical address space of a store holds the row data and nothing else: logical byte 0 is the first byte of
row 0, and headers of files are outside it. C++ twin: extent.h.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from bam.errors import ConfigError


@dataclass(frozen=True)
class Extent:
    """Logical bytes that lie contiguously in one file.

    Attributes
    ----------
    logical_offset, length : int
        Which logical bytes.
    file : int
        Number of the file in :attr:`Layout.files`.
    file_offset : int
        Where they begin in it.
    """

    logical_offset: int
    length: int
    file: int
    file_offset: int


@dataclass(frozen=True)
class FileRun:
    """`length` bytes at `file_offset` of file number `file`."""

    file: int
    file_offset: int
    length: int


@dataclass(frozen=True)
class Layout:
    """Maps logical bytes to bytes of files, by a table of extents or, striped, by arithmetic.

    Attributes
    ----------
    files : tuple of str
        Paths, or names of memory regions.
    logical_bytes : int
        Size of the logical address space.
    extents : tuple of Extent
        Table form: sorted by logical offset, without gaps, none empty. Empty when striped or without bytes.
    stripe_bytes : int
        Striped form: unit `k` of the data lies in file ``k % n_files`` as its unit ``k // n_files``. Else 0.

    Raises
    ------
    ConfigError
        Extents that overlap, leave gaps or name a file that is not there.
    """

    files: tuple[str, ...]
    logical_bytes: int
    extents: tuple[Extent, ...] = ()
    stripe_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.files:
            raise ConfigError("files", self.files, "at least one file")
        if self.stripe_bytes < 0 or (self.stripe_bytes and self.extents):
            raise ConfigError("stripe_bytes", self.stripe_bytes, "a positive size and no extents, or 0")
        if self.stripe_bytes:
            return
        position = 0
        for extent in self.extents:
            inside = 0 <= extent.file < len(self.files) and extent.file_offset >= 0 and extent.length > 0
            if not inside or extent.logical_offset != position:
                raise ConfigError("extents", extent, f"bytes of a listed file that continue at {position}")
            position += extent.length
        if position != self.logical_bytes:
            raise ConfigError("logical_bytes", self.logical_bytes, f"the sum of all extents, {position}")

    @classmethod
    def single(cls, file: str, file_offset: int, length: int) -> Layout:
        """All bytes in one piece of one file."""
        return cls.concatenated([(file, file_offset, length)])

    @classmethod
    def concatenated(cls, pieces: Sequence[tuple[str, int, int]]) -> Layout:
        """Pieces (file, file offset, length) one after the other; empty pieces need no extent."""
        extents = []
        position = 0
        for number, (_, file_offset, length) in enumerate(pieces):
            if length:
                extents.append(Extent(position, length, number, file_offset))
                position += length
        return cls(tuple(file for file, _, _ in pieces), position, tuple(extents))

    @classmethod
    def striped(cls, files: Sequence[str], stripe_bytes: int, logical_bytes: int) -> Layout:
        """Units of `stripe_bytes` dealt to the files in turn."""
        if stripe_bytes < 1:
            raise ConfigError("stripe_bytes", stripe_bytes, "a positive number of bytes")
        return cls(tuple(files), logical_bytes, stripe_bytes=stripe_bytes)

    def locate(self, logical_offset: int, length: int) -> FileRun:
        """The longest run that starts at `logical_offset`, at most `length` bytes.

        Both must lie in the logical address space, and `length` be positive.
        """
        if self.stripe_bytes:
            stripe, inside = divmod(logical_offset, self.stripe_bytes)
            unit, file = divmod(stripe, len(self.files))
            left = self.stripe_bytes - inside
            return FileRun(file, unit * self.stripe_bytes + inside, min(length, left))
        extent = self.extents[bisect_right(self._logical_offsets, logical_offset) - 1]
        inside = logical_offset - extent.logical_offset
        return FileRun(extent.file, extent.file_offset + inside, min(length, extent.length - inside))

    def runs(self, logical_offset: int, length: int) -> Iterator[FileRun]:
        """The runs that hold `length` logical bytes from `logical_offset` on, in order."""
        while length > 0:
            run = self.locate(logical_offset, length)
            yield run
            logical_offset += run.length
            length -= run.length

    @cached_property
    def _logical_offsets(self) -> list[int]:
        return [extent.logical_offset for extent in self.extents]


def striped_file_bytes(logical_bytes: int, stripe_bytes: int, n_files: int) -> list[int]:
    """Size that each file of a striped store has when it ends with the data."""
    units, rest = divmod(logical_bytes, stripe_bytes)
    sizes = [(units // n_files + (file < units % n_files)) * stripe_bytes for file in range(n_files)]
    sizes[units % n_files] += rest
    return sizes
