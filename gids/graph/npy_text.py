"""Headers of npy files whose data is written piece by piece."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Header of a C-ordered npy file, format 1.0."""
    stream = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()
