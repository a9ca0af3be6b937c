"""ctypes mirrors of the structs that kernels take (device_store.h, device_rows.h, page_cache.h)."""

from __future__ import annotations

import ctypes
from ctypes import c_uint32, c_uint64, c_void_p

import numpy as np


class CCacheState(ctypes.Structure):
    """`bam::CacheState`, its `bam::Frames` at the end."""

    _fields_ = [
        ("lines", c_void_p),
        ("metas", c_void_p),
        ("sets", c_void_p),
        ("n_sets", c_uint64),
        ("ways", c_uint32),
        ("policy", c_uint32),
        ("seed", c_uint64),
        ("frame_of_line", c_void_p),
        ("frame_counters", c_void_p),
        ("n_frames", c_uint64),
    ]


class CDeviceStore(ctypes.Structure):
    """`bam::DeviceStore`."""

    _fields_ = [
        ("cache", CCacheState),
        ("lines", c_void_p),
        ("queues", c_void_p),
        ("owners", c_void_p),
        ("staging", c_void_p),
        ("results", c_void_p),
        ("sources", c_void_p),
        ("flights", c_void_p),
        ("lone_slots", c_void_p),
        ("failure", c_void_p),
        ("pointers", c_void_p),
        ("first_block", c_uint64),
        ("n_blocks", c_uint64),
        ("timeout_ns", c_uint64),
        ("n_queues", c_uint32),
        ("n_flights", c_uint32),
        ("slots_per_flight", c_uint32),
        ("n_lone_slots", c_uint32),
        ("page_shift", c_uint32),
        ("block_shift", c_uint32),
        ("nsid", c_uint32),
        ("reserved", c_uint32),
    ]


class CArrayView(ctypes.Structure):
    """`bam::ArrayView`."""

    _fields_ = [("store", CDeviceStore), ("first_byte", c_uint64), ("n_items", c_uint64)]


class CConstantRows(ctypes.Structure):
    """`bam::ConstantRows`."""

    _fields_ = [
        ("bytes", c_void_p),
        ("n_rows", c_uint64),
        ("first_row", c_uint64),
        ("words", c_void_p),
        ("ranks", c_void_p),
    ]


class CBatchPart(ctypes.Structure):
    """`bam::BatchPart`."""

    _fields_ = [
        ("first_row", c_uint64),
        ("n_rows", c_uint64),
        ("first_byte", c_uint64),
        ("out", c_void_p),
        ("out_rows", c_void_p),
        ("resident", CConstantRows),
        ("constant", CConstantRows),
    ]


#: Parts of a batch that fit into the structure itself (`kFewParts`).
FEW_PARTS = 4


class CRowBatch(ctypes.Structure):
    """`bam::RowBatch`."""

    _fields_ = [
        ("ids", c_void_p),
        ("next_use", c_void_p),
        ("parts", c_void_p),
        ("first_row", c_uint64),
        ("n_rows", c_uint32),
        ("n_parts", c_uint32),
        ("row_bytes", c_uint32),
        ("pages_per_row", c_uint32),
        ("flight", c_uint32),
        ("reserved", c_uint32),
        ("few_parts", CBatchPart * FEW_PARTS),
    ]


#: `bam::FlightReport`.
FLIGHT_REPORT = np.dtype(
    [
        ("result", "u8"),
        ("page_id", "u8"),
        ("row", "u8"),
        ("submitted", "u4"),
        ("hits", "u4"),
        ("joins", "u4"),
        ("claims", "u4"),
        ("bypasses", "u4"),
        ("constant_rows", "u4"),
    ]
)

#: `bam::Flight`.
FLIGHT = np.dtype(
    [
        ("looked_up", "u4"),
        ("submitted", "u4"),
        ("completed", "u4"),
        ("first_failed", "u4"),
        ("stuck", "u4"),
        ("gathered", "u4"),
        ("hits", "u4"),
        ("joins", "u4"),
        ("claims", "u4"),
        ("bypasses", "u4"),
        ("constant_rows", "u4"),
        ("left", "u4"),
        ("wants_credit", "u4"),
        ("reserved", "u4", 3),
    ]
)

#: `bam::PartCounts`.
PART_COUNTS = np.dtype(
    [
        ("rows_resident", "u4"),
        ("rows_constant", "u4"),
        ("rows_hit", "u4"),
        ("rows_joined", "u4"),
        ("rows_read", "u4"),
        ("pages_hit", "u4"),
        ("pages_joined", "u4"),
        ("pages_claimed", "u4"),
        ("pages_bypassed", "u4"),
        ("reserved", "u4", 3),
    ]
)

#: `bam::DataPointer`.
DATA_POINTER = np.dtype([("first", "u8"), ("second", "u8"), ("flags", "u1"), ("padding", "u1", 7)])

#: Bytes of `bam::QueueWords`, and where in it reading begins.
QUEUE_WORDS_BYTES = 256
SQE_BYTES, CQE_BYTES = 64, 16
NO_PIECE = 2**32 - 1
#: Bytes of `bam::SetState`.
SET_BYTES = 8

assert ctypes.sizeof(CDeviceStore) == 208
assert ctypes.sizeof(CArrayView) == 224
assert ctypes.sizeof(CBatchPart) == 120
assert ctypes.sizeof(CRowBatch) == 56 + FEW_PARTS * 120
assert FLIGHT_REPORT.itemsize == PART_COUNTS.itemsize == 48
assert FLIGHT.itemsize == 64
