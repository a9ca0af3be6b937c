"""Headers of `.npy` files (numpy's NEP 1: versions 1.0, 2.0 and 3.0), read without ever trusting them."""

from __future__ import annotations

import ast
import io
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.lib import format as npy_format

from bam.array.description import check_dtype, check_shape
from bam.errors import SourceError

MAGIC = b"\x93NUMPY"
#: Longest text that is parsed; numpy's own limit for files it does not trust.
MAX_HEADER_BYTES = 10_000
_PREFIX_BYTES = {1: 10, 2: 12, 3: 12}


@dataclass(frozen=True)
class NpyHeader:
    """What a header says.

    Attributes
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    data_offset : int
        Bytes before the data.
    data_bytes : int
        Bytes the data has, if the header is right.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    data_offset: int
    data_bytes: int


def has_magic(descriptor: int) -> bool:
    """Whether the file begins like a `.npy` file."""
    return os.pread(descriptor, len(MAGIC), 0) == MAGIC


def read_header(descriptor: int, path: str, file_bytes: int) -> NpyHeader:
    """Header of the open file, checked against its size.

    Raises
    ------
    SourceError
        Not a `.npy` file; a header that is damaged, too long or does not fit the file's size; an array that
        cannot be read in place (Fortran order, Python objects, a single value).
    """
    return parse_header(lambda n_bytes, offset: os.pread(descriptor, n_bytes, offset), path, file_bytes)


def parse_header(read: Callable[[int, int], bytes], path: str, file_bytes: int) -> NpyHeader:
    """:func:`read_header` of anything that `read` gives bytes of, by length and offset."""
    prefix = read(12, 0)
    if not prefix.startswith(MAGIC):
        found = "an empty file" if not prefix else f"a file that begins with {prefix[:6]!r}"
        raise SourceError(path, "a .npy file", f"{found}; give dtype and shape to read a file without header")
    version = prefix[6] if len(prefix) > 6 else 0
    prefix_bytes = _PREFIX_BYTES.get(version)
    if prefix_bytes is None or prefix[7:8] != b"\0" or len(prefix) < prefix_bytes:
        raise SourceError(path, ".npy version 1.0, 2.0 or 3.0", f"the first bytes {prefix!r}")
    (text_bytes,) = struct.unpack_from("<H" if version == 1 else "<I", prefix, 8)
    if text_bytes > MAX_HEADER_BYTES:
        raise SourceError(path, f"a header of at most {MAX_HEADER_BYTES} bytes", f"one of {text_bytes} bytes")
    text = read(text_bytes, prefix_bytes)
    if len(text) < text_bytes:
        raise SourceError(
            path, f"a header of {text_bytes} bytes", f"a file that ends after {len(text)} of them"
        )
    shape, fortran_order, dtype = _parse(path, version, text)
    data_bytes = check_shape(path, shape, dtype)
    if fortran_order and data_bytes and sum(length != 1 for length in shape) > 1:
        remedy = "Fortran order (columns); save it with numpy.ascontiguousarray"
        raise SourceError(path, "rows one after the other (C order)", remedy)
    _check_size(path, data_bytes, file_bytes - prefix_bytes - text_bytes, shape, dtype)
    return NpyHeader(shape, dtype, prefix_bytes + text_bytes, data_bytes)


def _parse(path: str, version: int, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        if version == 3:
            shape, fortran_order, dtype = _parse_utf8(text)
        else:
            read = npy_format.read_array_header_1_0 if version == 1 else npy_format.read_array_header_2_0
            length = struct.pack("<H" if version == 1 else "<I", len(text))
            shape, fortran_order, dtype = read(io.BytesIO(length + text), max_header_size=MAX_HEADER_BYTES)
    except Exception as error:
        # The text is arbitrary and goes through Python's and numpy's parsers, which may raise anything.
        expected = "a header that describes shape, order and dtype"
        raise SourceError(path, expected, f"{text[:80]!r} ({type(error).__name__}: {error})") from error
    if not all(type(length) is int for length in shape):
        raise SourceError(path, "a shape of whole numbers", f"shape {shape}")
    return shape, fortran_order, check_dtype(path, dtype)


def _parse_utf8(text: bytes) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Version 3.0: as 2.0, but in UTF-8; numpy has no public function for it."""
    header = ast.literal_eval(text.decode("utf-8"))
    if set(header) != {"descr", "fortran_order", "shape"}:
        raise ValueError(f"keys {sorted(header)}")
    shape, fortran_order = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not isinstance(fortran_order, bool):
        raise ValueError(f"shape {shape!r}, fortran_order {fortran_order!r}")
    return shape, fortran_order, npy_format.descr_to_dtype(header["descr"])


def _check_size(
    path: str, data_bytes: int, found_bytes: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> None:
    if found_bytes == data_bytes:
        return
    if found_bytes < data_bytes:
        found = f"{found_bytes}: the file was cut short, or its header is wrong"
    else:
        found = f"{found_bytes}: {found_bytes - data_bytes} bytes follow the array"
    raise SourceError(path, f"{data_bytes} bytes of data for shape {shape} of {dtype}", found)
