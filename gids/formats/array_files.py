"""Arrays in npy files and in npz archives, read in place where they are stored as they are in memory.

An npz archive is a zip file, whose members numpy does not compress unless `savez_compressed` is used; then
an array is a run of bytes of the archive. Two dimensions in Fortran order are C order with the axes
exchanged.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

from bam.array.description import ArrayDescription, check_dtype, check_shape, open_regular
from bam.layout import Layout
from gids.errors import DatasetError
from gids.formats.staging import Staging

_MAX_HEADER_BYTES = 10_000
_LOCAL_HEADER_BYTES = 30


@dataclass(frozen=True)
class StoredArray:
    """An npy file, or a member of an npz archive.

    Attributes
    ----------
    path : Path
    member : str
        Name in the archive; empty: the file itself.
    shape : tuple of int
    dtype : numpy.dtype
    fortran : bool
        Stored with the first axis fastest.
    offset : int
        Where the data begins, in the file, or in a compressed member.
    compressed : bool
    """

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int
    compressed: bool

    @property
    def where(self) -> str:
        """File and member, for messages."""
        return f"{self.path}[{self.member}]" if self.member else str(self.path)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape in C order of the bytes as they lie."""
        return self.shape[::-1] if self.fortran else self.shape

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def describe(self, staging: Staging, name: str) -> ArrayDescription:
        """The bytes as they lie, shape `stored_shape`: in place, or decompressed to a file first."""
        if self.compressed:
            shape = self.stored_shape
            return staging.array(name, self.dtype, shape[1:], lambda: self._pieces(staging))
        with open_regular(str(self.path)) as (_, identity):
            length = check_shape(self.where, self.shape, self.dtype)
            layout = Layout.single(identity.path, self.offset, length)
        return ArrayDescription(self.stored_shape, self.dtype, layout, (identity,))

    def rows(self, staging: Staging) -> Iterator[npt.NDArray[Any]]:
        """Rows of an array in C order, a few at a time.

        Raises
        ------
        DatasetError
            It is in Fortran order, or ends too early.
        """
        if self.fortran:
            raise DatasetError(self.where, "rows one after the other (C order)", "Fortran order (columns)")
        yield from self._pieces(staging)

    def whole(self) -> npt.NDArray[Any]:
        """All of a small array."""
        with _Opened(self) as stream:
            data = self._read(stream, check_shape(self.where, self.shape, self.dtype))
        return self._array(data, self.stored_shape).reshape(self.shape, order="F" if self.fortran else "C")

    def _pieces(self, staging: Staging) -> Iterator[npt.NDArray[Any]]:
        shape = self.stored_shape
        row_bytes = check_shape(self.where, (1, *shape[1:]), self.dtype)
        step = staging.chunk_rows(row_bytes)
        with _Opened(self) as stream:
            for first in range(0, shape[0], step):
                count = min(step, shape[0] - first)
                yield self._array(self._read(stream, count * row_bytes), (count, *shape[1:]))

    def _read(self, stream: IO[bytes], n_bytes: int) -> bytes:
        try:
            return stream.read(n_bytes)
        except (zlib.error, zipfile.BadZipFile, EOFError, OSError) as error:
            raise DatasetError(self.where, "a whole member of the archive", str(error)) from error

    def _array(self, data: bytes, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        needed = check_shape(self.where, shape, self.dtype)
        if len(data) != needed:
            raise DatasetError(self.where, f"{needed} bytes", f"{len(data)}: the file was cut short")
        return np.frombuffer(data, self.dtype).reshape(shape)


def open_npy(path: Path) -> StoredArray:
    """An npy file.

    Raises
    ------
    DatasetError, bam.errors.SourceError
    """
    with open_regular(str(path)) as (_, identity), open(path, "rb") as stream:
        return _parsed(path, "", stream, 0, identity.bytes, False)


def open_npz(path: Path) -> dict[str, StoredArray]:
    """Every array of an npz archive.

    Raises
    ------
    DatasetError, bam.errors.SourceError
    """
    found = {}
    with open_regular(str(path)):
        pass
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                compressed = info.compress_type != zipfile.ZIP_STORED
                begin = 0 if compressed else _data_begin(path, info)
                with archive.open(info) as stream:
                    found[name] = _parsed(path, name, stream, begin, info.file_size, compressed)
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(str(path), "an npz archive", str(error)) from error
    return found


def member(archive: dict[str, StoredArray], path: Path, name: str) -> StoredArray:
    """One array of an archive.

    Raises
    ------
    DatasetError
        There is none of the name.
    """
    if name not in archive:
        raise DatasetError(str(path), f"an array {name!r}", ", ".join(sorted(archive)) or "none")
    return archive[name]


def _parsed(
    path: Path, name: str, stream: IO[bytes], begin: int, n_bytes: int, compressed: bool
) -> StoredArray:
    where = f"{path}[{name}]" if name else str(path)
    try:
        version = npy_format.read_magic(stream)
        read = {
            (1, 0): npy_format.read_array_header_1_0,
            (2, 0): npy_format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
    except Exception as error:
        # The text is arbitrary and goes through Python's and numpy's parsers, which may raise anything.
        raise DatasetError(where, "an npy array", f"{type(error).__name__}: {error}") from error
    check_dtype(where, dtype)
    needed, offset = check_shape(where, shape, dtype), stream.tell()
    if n_bytes - offset != needed:
        raise DatasetError(where, f"{needed} bytes of data for shape {shape}", f"{n_bytes - offset}")
    is_fortran = fortran and sum(length != 1 for length in shape) > 1
    if is_fortran and len(shape) != 2:
        raise DatasetError(where, "C order", f"Fortran order of shape {shape}")
    return StoredArray(path, name, shape, dtype, is_fortran, begin + offset, compressed)


def _data_begin(path: Path, info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: after its local header, whose extra field the directory does not tell."""
    with open(path, "rb") as stream:
        stream.seek(info.header_offset)
        header = stream.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or header[:4] != b"PK\3\4":
        raise DatasetError(str(path), f"a zip header before {info.filename}", repr(header[:4]))
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = info.header_offset + _LOCAL_HEADER_BYTES + names
    if begin + info.file_size > path.stat().st_size:
        raise DatasetError(str(path), f"{info.file_size} bytes of {info.filename}", "the end of the file")
    return begin


class _Opened:
    """The data of an array as a stream, after its header."""

    def __init__(self, array: StoredArray) -> None:
        self._array = array

    def __enter__(self) -> IO[bytes]:
        array = self._array
        if not array.compressed:
            self._archive = None
            self._stream: IO[bytes] = open(array.path, "rb")
        else:
            self._archive = zipfile.ZipFile(array.path)
            name = next(
                info.filename
                for info in self._archive.infolist()
                if info.filename.removesuffix(".npy") == array.member
            )
            self._stream = self._archive.open(name)
        self._stream.seek(array.offset)
        return self._stream

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        if self._archive is not None:
            self._archive.close()
