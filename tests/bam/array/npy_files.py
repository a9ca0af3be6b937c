"""Writes `.npy` files of every version, and with headers that are not what numpy would write."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy_format

VERSIONS = ((1, 0), (2, 0), (3, 0))


def npy_bytes(array: npt.NDArray[np.generic], version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    npy_format.write_array(stream, array, version=version, allow_pickle=False)
    return stream.getvalue()


def npy_with_header(header: str, data: bytes = b"", version: int = 1, padding: int = 0) -> bytes:
    """A file with exactly this header text, `padding` spaces and a line end."""
    text = header.encode("utf-8" if version == 3 else "latin1") + b" " * padding + b"\n"
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def header_text(array: npt.NDArray[np.generic], **changes: object) -> str:
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape} | changes
    return repr(fields)


def write(folder: Path, content: bytes, name: str = "a.npy") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path
