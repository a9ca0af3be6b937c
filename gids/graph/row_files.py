"""Rows of a file by number, many reads in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types

from gids.errors import DatasetError

# Calls of the C library by name, so that the machine code can be kept between runs.
_pread: Any = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))
_fadvise: Any = types.ExternalFunction(
    "posix_fadvise", types.int32(types.int32, types.int64, types.int64, types.int32)
)
_WILL_NEED = 3


def gather_rows(
    descriptor: int, path: str, offset: int, rows: npt.NDArray[np.int64], out: npt.NDArray[Any]
) -> None:
    """Read rows by number. The GIL is free meanwhile.

    All rows are announced to the kernel first, which then reads them side by side.

    Parameters
    ----------
    descriptor : int
    path : str
        For messages.
    offset : int
        Where row 0 begins.
    rows : int64 array, shape (n,)
    out : array, shape (n, …)
        C-contiguous; its rows are as long as the file's.

    Raises
    ------
    DatasetError
        A row could not be read.
    """
    flat = out.reshape(len(out), -1).view(np.uint8)
    failed = _gather(descriptor, offset, rows, flat)
    if failed >= 0:
        expected = f"row {rows[failed]} of {flat.shape[1]} bytes"
        raise DatasetError(path, expected, "a file that ends before, or cannot be read there")


@njit(cache=True, nogil=True)
def _gather(descriptor: Any, offset: Any, rows: Any, out: Any) -> Any:
    """Position of the first row that cannot be read, or -1."""
    row_bytes = out.shape[1]
    for at in range(len(rows)):
        _fadvise(descriptor, offset + rows[at] * row_bytes, row_bytes, _WILL_NEED)
    for at in range(len(rows)):
        done = 0
        while done < row_bytes:
            begin = offset + rows[at] * row_bytes + done
            got = _pread(descriptor, out.ctypes.data + at * row_bytes + done, row_bytes - done, begin)
            if got <= 0:
                return at
            done += got
    return -1
