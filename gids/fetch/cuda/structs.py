"""ctypes mirrors of the structs of next_uses.h."""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_uint32, c_uint64, c_void_p

#: `gids::kMaxTables` and `gids::kMaxLater`.
MAX_TABLES, MAX_LATER = 32, 64

#: `gids::Estimate`.
UNKNOWN, RUNS, COUNTS = 0, 1, 2


class CUseTable(ctypes.Structure):
    """`gids::UseTable`."""

    _fields_ = [
        ("row_bytes", c_uint64),
        ("first_byte", c_uint64),
        ("n_rows", c_uint64),
        ("estimate", c_uint64),
        ("run_ends", c_void_p),
        ("run_uses", c_void_p),
        ("n_runs", c_uint64),
        ("levels", c_void_p),
        ("seen", c_void_p),
    ]


class CLaterBatch(ctypes.Structure):
    """`gids::LaterBatch`."""

    _fields_ = [("pages", c_void_p), ("n_pages", c_uint64), ("number", c_uint64)]


class CUseRequest(ctypes.Structure):
    """`gids::UseRequest`."""

    _fields_ = [
        ("tables", c_void_p),
        ("rows", c_void_p),
        ("uses", c_void_p),
        ("counts", c_void_p),
        ("passed", c_double),
        ("correction", c_double),
        ("n_tables", c_uint32),
        ("n_later", c_uint32),
        ("page_shift", c_uint32),
        ("begins", c_uint32),
        ("firsts", c_uint64 * (MAX_TABLES + 1)),
        ("later", CLaterBatch * MAX_LATER),
    ]


assert ctypes.sizeof(CUseTable) == 72
assert ctypes.sizeof(CUseRequest) == 64 + 8 * (MAX_TABLES + 1) + 24 * MAX_LATER
