"""Element types of stored features, and the conversion of rows to them."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

INT8_MAX = 127


class FeatureDtype(Enum):
    """How elements of feature rows are stored.

    ``bfloat16`` is kept as the upper half of a float32 in uint16, since numpy has no such type. ``int8`` rows
    are ``round(x / scale)`` with one float32 scale for each column (the column's largest absolute value /
    127), so that rows stay a power of two long and a model may fold the scales into its first layer.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    FLOAT64 = "float64"

    @property
    def stored(self) -> np.dtype[Any]:
        """numpy's dtype of the bytes."""
        return np.dtype(np.uint16 if self is FeatureDtype.BFLOAT16 else self.value)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.stored.itemsize


def encode_rows(
    rows: npt.NDArray[Any], dtype: FeatureDtype, scale: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[Any]:
    """Rows of floats as they are stored; values too large for `dtype` become infinite.

    Parameters
    ----------
    rows : float array, shape (n, dim)
    dtype : FeatureDtype
    scale : float32 array, shape (dim,)
        For ``int8``; rows must be finite.
    """
    if dtype is FeatureDtype.BFLOAT16:
        return _to_bfloat16(rows.astype(np.float32, copy=False))
    if dtype is FeatureDtype.INT8:
        if scale is None:
            raise ValueError("int8 needs a scale")
        scaled = np.divide(rows, scale, dtype=np.float32)
        np.rint(scaled, out=scaled)
        np.clip(scaled, -INT8_MAX, INT8_MAX, out=scaled)
        encoded = np.empty(scaled.shape, np.int8)
        encoded[...] = scaled
        return encoded
    with np.errstate(over="ignore"):
        return np.asarray(rows, dtype.stored)


def decode_rows(
    rows: npt.NDArray[Any], dtype: FeatureDtype, scale: npt.NDArray[np.float32] | None = None
) -> npt.NDArray[np.float32]:
    """Stored rows as float32."""
    if dtype is FeatureDtype.BFLOAT16:
        decoded = np.empty(rows.shape, np.float32)
        decoded.view(np.uint32)[...] = rows.astype(np.uint32) << np.uint32(16)
        return decoded
    decoded = np.array(rows, np.float32)
    if dtype is FeatureDtype.INT8:
        if scale is None:
            raise ValueError("int8 needs a scale")
        decoded *= scale
    return decoded


def column_scale(largest: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """int8 scale of columns whose largest absolute values are given; 1 for columns of zeros."""
    scale = np.divide(largest, INT8_MAX, dtype=np.float32)
    scale[scale == 0] = 1
    return np.asarray(scale)


def is_non_finite(encoded: npt.NDArray[Any], dtype: FeatureDtype) -> npt.NDArray[np.bool_]:
    """Where stored rows are NaN or infinite."""
    if dtype is FeatureDtype.BFLOAT16:
        return np.asarray((encoded & 0x7F80) == 0x7F80)
    return np.asarray(~np.isfinite(encoded))


def _to_bfloat16(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; NaN stays NaN."""
    bits = rows.view(np.uint32)
    rounded: npt.NDArray[np.uint16] = ((bits + (bits >> 16 & 1) + np.uint32(0x7FFF)) >> 16).astype(np.uint16)
    is_nan = np.isnan(rows)
    if is_nan.any():
        rounded[is_nan] = (bits[is_nan] >> 16).astype(np.uint16) | 0x40
    return rounded
