"""Sources: where arrays come from. Each describes itself once; nothing but headers is read here."""

from __future__ import annotations

import math
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bam.array.description import (
    ArrayDescription,
    FileIdentity,
    check_dtype,
    check_shape,
    open_regular,
)
from bam.array.npy_header import NpyHeader, has_magic, read_header
from bam.errors import ConfigError, SourceError
from bam.layout import Layout, striped_file_bytes

PathLike: TypeAlias = "str | os.PathLike[str]"


class Source(ABC):
    """Something an array can be opened from."""

    @abstractmethod
    def describe(self) -> ArrayDescription:
        """Shape, dtype and place of the bytes, checked against the files as they are now.

        Raises
        ------
        SourceError
        """


@dataclass(frozen=True)
class NpySource(Source):
    """A `.npy` file, whatever its name."""

    path: PathLike

    def describe(self) -> ArrayDescription:
        path = os.fspath(self.path)
        with open_regular(path) as (descriptor, identity):
            return _of_header(read_header(descriptor, path, identity.bytes), identity)


@dataclass(frozen=True)
class RawSource(Source):
    """A file without a header, whatever its name.

    Attributes
    ----------
    path : path
    dtype : dtype
    shape : tuple of int
        The first length may be -1: as many rows as the file holds.
    offset : int
        Where the data begins; it must reach to the end of the file exactly.
    """

    path: PathLike
    dtype: npt.DTypeLike
    shape: Sequence[int]
    offset: int = 0

    def describe(self) -> ArrayDescription:
        if self.offset < 0:
            raise ConfigError("offset", self.offset, "a position in the file, 0 or more")
        with open_regular(os.fspath(self.path)) as (_, identity):
            return _of_raw(identity, self.dtype, self.shape, self.offset)


@dataclass(frozen=True)
class FileSource(Source):
    """A file whose bytes say whether it has a header; the suffix of its name says nothing.

    Attributes
    ----------
    path : path
    dtype : dtype, optional
        Needed without a header; with one, both must agree.
    shape : tuple of int, optional
        The same; the first length may be -1.
    """

    path: PathLike
    dtype: npt.DTypeLike | None = None
    shape: Sequence[int] | None = None

    def describe(self) -> ArrayDescription:
        path = os.fspath(self.path)
        with open_regular(path) as (descriptor, identity):
            if self.dtype is not None and self.shape is not None and not has_magic(descriptor):
                return _of_raw(identity, self.dtype, self.shape)
            raw = self._without_header(identity)
            try:
                header = read_header(descriptor, path, identity.bytes)
            except SourceError:
                # With a row count that fits the size exactly, the magic bytes are data. A count of -1 fits
                # too easily: it would hand out a damaged header as rows.
                if raw is None or raw.shape != _shape(self.shape or ()):
                    raise
                return raw
        if self._agrees(path, header):
            return _of_header(header, identity)
        expected = f"dtype {self.dtype} and shape {self.shape}, as given"
        found = f"a header that says {header.dtype} and {header.shape}"
        if raw is not None:
            found += ", and a size that fits data without a header; use NpySource or RawSource to decide"
        raise SourceError(path, expected, found)

    def _without_header(self, identity: FileIdentity) -> ArrayDescription | None:
        if self.dtype is None or self.shape is None:
            return None
        try:
            return _of_raw(identity, self.dtype, self.shape)
        except SourceError:
            return None

    def _agrees(self, path: str, header: NpyHeader) -> bool:
        same_dtype = self.dtype is None or check_dtype(path, self.dtype) == header.dtype
        return same_dtype and (self.shape is None or _shape_fits(_shape(self.shape), header.shape))


@dataclass(frozen=True)
class ConcatenatedSource(Source):
    """Many files, one after the other along the rows. All agree on dtype and row shape.

    Attributes
    ----------
    paths : sequence of path
    dtype, shape : optional
        For files without header: of the whole array. The first length may be -1.
    """

    paths: Sequence[PathLike]
    dtype: npt.DTypeLike | None = None
    shape: Sequence[int] | None = None

    def describe(self) -> ArrayDescription:
        if not self.paths:
            raise ConfigError("paths", self.paths, "at least one file")
        shape = None if self.shape is None else _shape(self.shape)
        part_shape = None if shape is None else (-1, *shape[1:])
        parts = [FileSource(path, self.dtype, part_shape).describe() for path in self.paths]
        first = parts[0]
        for part in parts:
            if (part.stored_dtype, part.row_shape) != (first.stored_dtype, first.row_shape):
                expected = (
                    f"rows as in {first.files[0].path}: {first.stored_dtype} of shape {first.row_shape}"
                )
                found = f"{part.stored_dtype} of shape {part.row_shape}"
                raise SourceError(part.files[0].path, expected, found)
        total = (sum(part.shape[0] for part in parts), *first.row_shape)
        if shape is not None and not _shape_fits(shape, total):
            raise SourceError(os.fspath(self.paths[0]), f"shape {shape} in all files", f"shape {total}")
        check_shape(first.files[0].path, total, first.stored_dtype)
        return ArrayDescription(
            total, first.stored_dtype, _concatenated(parts), tuple(part.files[0] for part in parts)
        )


@dataclass(frozen=True)
class StripedSource(Source):
    """Files without headers, on several disks for instance; unit `k` of the data lies in file ``k % n``.

    Attributes
    ----------
    paths : sequence of path
        In the order the units were dealt.
    stripe_bytes : int
        Size of a unit.
    dtype, shape
        Of the whole array. The first length may be -1: as many rows as the files hold.
    """

    paths: Sequence[PathLike]
    stripe_bytes: int
    dtype: npt.DTypeLike | None = None
    shape: Sequence[int] | None = None

    def describe(self) -> ArrayDescription:
        paths = [os.fspath(path) for path in self.paths]
        if not paths:
            raise ConfigError("paths", self.paths, "at least one file")
        if self.dtype is None or self.shape is None:
            raise SourceError(paths[0], "dtype and shape of the striped array", "neither; give both")
        dtype = check_dtype(paths[0], self.dtype)
        identities = []
        for path in paths:
            with open_regular(path) as (_, identity):
                identities.append(identity)
        found_bytes = sum(identity.bytes for identity in identities)
        shape = _raw_shape(" + ".join(paths), dtype, _shape(self.shape), found_bytes)
        layout = Layout.striped(paths, self.stripe_bytes, check_shape(paths[0], shape, dtype))
        sizes = striped_file_bytes(layout.logical_bytes, layout.stripe_bytes, len(paths))
        for identity, size in zip(identities, sizes, strict=True):
            if identity.bytes != size:
                expected = f"{size} bytes of {layout.logical_bytes} in stripes of {layout.stripe_bytes}"
                raise SourceError(identity.path, expected, f"{identity.bytes}")
        return ArrayDescription(shape, dtype, layout, tuple(identities))


@dataclass(frozen=True)
class MemorySource(Source):
    """A numpy array. It is read in place when it is in C order, else copied; do not change it meanwhile."""

    array: npt.NDArray[np.generic]

    def describe(self) -> ArrayDescription:
        name = "<array>"
        dtype = check_dtype(name, self.array.dtype)
        length = check_shape(name, self.array.shape, dtype)
        memory = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)
        return ArrayDescription(
            self.array.shape, dtype, Layout.single(name, 0, length), memory=(memory.reshape(-1),)
        )


def as_source(
    source: Source | PathLike | Sequence[PathLike] | npt.NDArray[np.generic],
    dtype: npt.DTypeLike | None = None,
    shape: Sequence[int] | None = None,
) -> Source:
    """The source meant by a path, a list of paths, or a numpy array; `dtype` and `shape` complete it.

    Raises
    ------
    ConfigError
        Nothing an array can be opened from; or dtype or shape for a source that has its own.
    """
    if isinstance(source, (str, os.PathLike)):
        return FileSource(source, dtype, shape)
    if isinstance(source, (list, tuple)):
        return ConcatenatedSource(tuple(source), dtype, shape)
    if isinstance(source, StripedSource):
        return StripedSource(
            source.paths,
            source.stripe_bytes,
            source.dtype if dtype is None else dtype,
            source.shape if shape is None else shape,
        )
    if dtype is not None or shape is not None:
        raise ConfigError("dtype, shape", (dtype, shape), "nothing: this source has its own")
    if isinstance(source, Source):
        return source
    if isinstance(source, np.ndarray):
        return MemorySource(source)
    raise ConfigError("source", source, "a path, a list of paths, a numpy array or a bam.Source")


def _of_header(header: NpyHeader, identity: FileIdentity) -> ArrayDescription:
    layout = Layout.single(identity.path, header.data_offset, header.data_bytes)
    return ArrayDescription(header.shape, header.dtype, layout, (identity,))


def _of_raw(
    identity: FileIdentity, dtype: npt.DTypeLike, shape: Sequence[int], offset: int = 0
) -> ArrayDescription:
    found = check_dtype(identity.path, dtype)
    full_shape = _raw_shape(identity.path, found, _shape(shape), identity.bytes - offset)
    length = check_shape(identity.path, full_shape, found)
    return ArrayDescription(full_shape, found, Layout.single(identity.path, offset, length), (identity,))


def _concatenated(parts: Sequence[ArrayDescription]) -> Layout:
    pieces = []
    for part in parts:
        offset = part.layout.extents[0].file_offset if part.layout.extents else 0
        pieces.append((part.files[0].path, offset, part.layout.logical_bytes))
    return Layout.concatenated(pieces)


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(operator.index(length) for length in shape)
    except TypeError:
        raise ConfigError("shape", shape, "a tuple of whole numbers") from None


def _shape_fits(given: tuple[int, ...], found: tuple[int, ...]) -> bool:
    return given == found or (given[:1] == (-1,) and given[1:] == found[1:])


def _raw_shape(
    where: str, dtype: np.dtype[np.generic], shape: tuple[int, ...], found_bytes: int
) -> tuple[int, ...]:
    """`shape` with its first length filled in, if `found_bytes` are exactly what it needs."""
    if shape[:1] == (-1,):
        row_bytes = check_shape(where, (1, *shape[1:]), dtype)
        rows, rest = divmod(found_bytes, row_bytes) if row_bytes else (0, found_bytes)
        if found_bytes < 0 or rest:
            raise SourceError(where, f"whole rows of {row_bytes} bytes", f"{found_bytes} bytes of data")
        return (rows, *shape[1:])
    needed = check_shape(where, shape, dtype)
    if needed != found_bytes:
        expected = f"{needed} bytes of data for {math.prod(shape)} items of {dtype}"
        raise SourceError(where, expected, f"{found_bytes}; correct dtype or shape, or restore the file")
    return shape
