"""Rows from memory to memory, in C++ where the library was built."""

from __future__ import annotations

from ctypes import c_uint64, c_void_p

import numpy as np
import numpy.typing as npt

from bam.native import available, function

RowIds = npt.NDArray[np.int64]


def copy_rows(
    source: npt.NDArray[np.uint8], rows: RowIds | None, out: npt.NDArray[np.uint8], out_rows: RowIds | None
) -> None:
    """Copy row ``rows[i]`` of `source` to row ``out_rows[i]`` of `out`; without a list, to or from row `i`.

    Parameters
    ----------
    source, out : uint8, shape (n, row_bytes)
        C-contiguous, of one row length, and not overlapping.
    rows, out_rows : int64, shape (k,), optional
        C-contiguous. Every number must be a row: it is not checked again here.
    """
    count = len(rows) if rows is not None else len(out_rows) if out_rows is not None else len(source)
    if available():
        copy = function("bam_copy_rows", None, [c_void_p, c_void_p, c_void_p, c_void_p, c_uint64, c_uint64])
        copy(source.ctypes.data, _address(rows), out.ctypes.data, _address(out_rows), count, source.shape[1])
        return
    chosen = source[:count] if rows is None else source[rows]
    if out_rows is None:
        out[:count] = chosen
    else:
        out[out_rows] = chosen


def _address(rows: RowIds | None) -> int | None:
    return None if rows is None else rows.ctypes.data
