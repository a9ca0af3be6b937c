"""ctypes mirrors of the structs in `gids/sampling/native` that kernels take, and of their constants."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_void_p
from enum import IntEnum

TILE = 256
#: `edge_slots` keeps one bit of 32 for itself.
MAX_SLOT_BITS = 31


class Stop(IntEnum):
    """`gids::Stop`: why a mini-batch stopped. From `MORE_ITEMS` on: a buffer was too small."""

    OK = 0
    DUPLICATE_SEED = 1
    SEED_OUT_OF_RANGE = 2
    BAD_INDPTR = 3
    BAD_INDEX = 4
    TOO_MANY_NODES = 5
    MORE_ITEMS = 6
    MORE_EDGES = 7
    MORE_NODES = 8
    MORE_SLOTS = 9


#: Words of a report before its tables; the first four are a status of `gids.sampling.batch_kernel`.
REPORT_WORDS = 8
#: Words of a request before the seeds of each type are counted: seed, epoch, batch.
REQUEST_WORDS = 3


class CRelation(ctypes.Structure):
    """`gids::Relation`."""

    _fields_ = [
        ("indptr", c_void_p),
        ("indices", c_void_p),
        ("edge_ids", c_void_p),
        ("num_edges", c_int64),
        ("index_bytes", c_int64),
        ("src_type", c_int64),
        ("dst_type", c_int64),
    ]


class CPlan(ctypes.Structure):
    """`gids::Plan`; plan.h says what each field is."""

    _fields_ = [
        ("relations", c_void_p),
        ("num_nodes", c_void_p),
        ("first_keys", c_void_p),
        ("fanouts", c_void_p),
        ("request", c_void_p),
        ("num_relations", c_int64),
        ("num_types", c_int64),
        ("num_hops", c_int64),
        ("replace", c_int64),
        ("resample", c_int64),
        ("slots", c_void_p),
        ("slot_bits", c_int64),
        ("local_bits", c_int64),
        ("nodes", c_void_p),
        ("node_bases", c_void_p),
        ("item_starts", c_void_p),
        ("item_degrees", c_void_p),
        ("indptr", c_void_p),
        ("drawn", c_void_p),
        ("positions", c_void_p),
        ("edge_slots", c_void_p),
        ("item_capacity", c_int64),
        ("edge_capacity", c_int64),
        ("tile_sums", c_void_p),
        ("keys", c_void_p),
        ("item_tiles", c_void_p),
        ("edge_tiles", c_void_p),
        ("new_bases", c_void_p),
        ("report", c_void_p),
        ("node_counts", c_void_p),
        ("item_firsts", c_void_p),
        ("edge_firsts", c_void_p),
    ]


class COutput(ctypes.Structure):
    """`gids::Output`."""

    _fields_ = [
        ("nodes", c_void_p),
        ("indptr", c_void_p),
        ("sources", c_void_p),
        ("edge_ids", c_void_p),
        ("item_places", c_void_p),
        ("edge_addends", c_void_p),
        ("edge_places", c_void_p),
    ]
