"""Fast twins of :func:`gids.graph.feature_types.encode_rows` for float32 rows; they run without the GIL.

Each gives the number of stored elements that are NaN or infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from gids.graph.feature_types import INT8_MAX, FeatureDtype, encode_rows, is_non_finite

_INT8_MAX = np.float32(INT8_MAX)


def encode_into(
    rows: npt.NDArray[Any],
    dtype: FeatureDtype,
    scale: npt.NDArray[np.float32] | None,
    out: npt.NDArray[Any],
) -> int:
    """Encode `rows` into `out`; the number of elements that are not finite afterwards.

    Parameters
    ----------
    rows : float array, shape (n, dim)
    dtype : FeatureDtype
    scale : float32 array, shape (dim,)
        For int8.
    out : array of ``dtype.stored``, shape (n, dim)
    """
    if rows.dtype == np.float32 and dtype is not FeatureDtype.FLOAT64:
        bits = rows.reshape(-1).view(np.uint32)
        if dtype is FeatureDtype.FLOAT32:
            return int(_copy(bits, out.reshape(-1).view(np.uint32)))
        if dtype is FeatureDtype.BFLOAT16:
            return int(_to_bfloat16(bits, out.reshape(-1)))
        if dtype is FeatureDtype.FLOAT16:
            return int(_to_float16(bits, out.reshape(-1).view(np.uint16)))
        if scale is not None:
            return int(_to_int8(rows, scale, out))
    out[...] = encode_rows(rows, dtype, scale)
    return int(np.count_nonzero(is_non_finite(out, dtype)))


def raise_largest(rows: npt.NDArray[Any], largest: npt.NDArray[np.float32]) -> bool:
    """Raise `largest` to the absolute values of each column; False when a value is not finite."""
    floats = np.asarray(rows, np.float32)
    return bool(_raise_largest(floats, largest))


@njit(cache=True, nogil=True)
def _copy(bits: Any, out: Any) -> Any:
    wrong = 0
    for at in range(len(bits)):
        out[at] = bits[at]
        wrong += (bits[at] & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    return wrong


@njit(cache=True, nogil=True)
def _to_bfloat16(bits: Any, out: Any) -> Any:
    wrong = 0
    for at in range(len(bits)):
        x = bits[at]
        if (x & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000):
            rounded = np.uint32(x >> np.uint32(16)) | np.uint32(0x40)
        else:
            rounded = np.uint32(x + ((x >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)) >> np.uint32(
                16
            )
        out[at] = rounded
        wrong += (rounded & np.uint32(0x7F80)) == np.uint32(0x7F80)
    return wrong


@njit(cache=True, nogil=True)
def _to_float16(bits: Any, out: Any) -> Any:
    """IEEE 754 binary32 to binary16, to nearest, ties to even."""
    wrong = 0
    for at in range(len(bits)):
        x = np.int64(bits[at])
        sign, size = x >> 16 & 0x8000, x & 0x7FFFFFFF
        if size >= 0x477FF000:
            # Rounds past the largest half, or is not finite already.
            half = 0x7C00 if size <= 0x7F800000 else 0x7E00 | (size >> 13 & 0x3FF)
            wrong += 1
        elif size >= 0x38800000:
            half = (size - 0x38000000 + 0xFFF + (size >> 13 & 1)) >> 13
        elif size >= 0x33000000:
            # Below 2**-14 a half is a multiple of 2**-24.
            shift = 126 - (size >> 23)
            mantissa = size & 0x7FFFFF | 0x800000
            half = mantissa >> shift
            rest, tie = mantissa & (1 << shift) - 1, 1 << shift - 1
            half += rest > tie or (rest == tie and half & 1 == 1)
        else:
            half = 0
        out[at] = sign | half
    return wrong


@njit(cache=True, nogil=True)
def _to_int8(rows: Any, scale: Any, out: Any) -> Any:
    """Rows are finite: their scale was found by going through them."""
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            scaled = np.rint(rows[row, column] / scale[column])
            scaled = scaled if scaled < _INT8_MAX else _INT8_MAX
            out[row, column] = np.int8(scaled if scaled > -_INT8_MAX else -_INT8_MAX)
    return 0


@njit(cache=True, nogil=True)
def _raise_largest(rows: Any, largest: Any) -> Any:
    finite = True
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            size = abs(rows[row, column])
            if size > largest[column]:
                largest[column] = size
            finite = finite and size < np.inf
    return finite
