"""Relabel: node ids to local ids, numbered in order of first appearance (compiled).

One open-addressing hash table, sized by the mini-batch and not by the graph, holds the nodes of all types:
its keys are `first key of the type + node id`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gids.sampling.compile import compiled, inlined
from gids.sampling.pick import SRC_TYPE, prefetch, slots_for

_EMPTY = -1
_AHEAD = 12  # ids between one whose slot is asked for and the one looked up
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Fibonacci hashing
_32 = np.uint64(32)


@compiled
def bits_for_local_ids(total_nodes: Any) -> Any:
    """Bits of a table entry that a key below `total_nodes` leaves for the local id: 33 for 2^30 nodes."""
    bits = 63
    while total_nodes > 0:
        total_nodes >>= 1
        bits -= 1
    return bits


@compiled
def new_slots(entries: Any) -> Any:
    """An empty hash table that is at most half full with so many entries."""
    return np.full(slots_for(entries), _EMPTY)


@inlined
def _home(slots: Any, key: Any) -> Any:
    return np.int64((np.uint64(key) * _MULTIPLIER) >> _32) & (len(slots) - 1)


@inlined
def find_or_add(slots: Any, local_bits: Any, key: Any, local_id: Any) -> Any:
    """The local id a key has; -1 when it was new and now has the one given."""
    slot = _home(slots, key)
    while True:
        entry = slots[slot]
        if entry >> local_bits == key:
            return entry & ((1 << local_bits) - 1)
        if entry == _EMPTY:
            slots[slot] = (key << local_bits) | local_id
            return -1
        slot = (slot + 1) & (len(slots) - 1)


@compiled
def _rebuilt(entries: Any, local_bits: Any, nodes: Any, bases: Any, counts: Any, first_keys: Any) -> Any:
    """A larger table that holds all nodes found so far."""
    slots = new_slots(entries)
    for t in range(len(counts)):
        for local_id in range(counts[t]):
            find_or_add(slots, local_bits, first_keys[t] + nodes[bases[t] + local_id], local_id)
    return slots


@compiled
def _relabel(
    slots: Any,
    local_bits: Any,
    room: Any,
    ids: Any,
    num_nodes: Any,
    first_key: Any,
    nodes: Any,
    count: Any,
) -> Any:
    """Turn ids of one type into local ids, in order, appending new ones to `nodes`.

    Returns how many ids were done (it stops early when the table has no room or an id is out of range) and
    the number of nodes now known.
    """
    address = slots.ctypes.data
    known = count
    for i in range(len(ids)):
        node = ids[i]
        if node < 0 or node >= num_nodes or known - count == room:
            return i, known
        if i + _AHEAD < len(ids):
            prefetch(address + 8 * _home(slots, first_key + ids[i + _AHEAD]))
        local_id = find_or_add(slots, local_bits, first_key + node, known)
        if local_id == -1:
            nodes[known] = node
            local_id = known
            known += 1
        ids[i] = local_id
    return len(ids), known


@compiled
def relabel(
    table: Any,
    num_nodes: Any,
    first_keys: Any,
    slots: Any,
    local_bits: Any,
    nodes: Any,
    bases: Any,
    counts: Any,
    offsets: Any,
    sources: Any,
) -> Any:
    """Turn the sources of a hop's edges into local ids, relation by relation; `counts` grows by the new
    nodes.

    Returns the hash table, which may be a larger one, and the relation and the position of an id out of
    range (-1, -1 when there is none).
    """
    total = 0
    for t in range(len(counts)):
        total += counts[t]
    for r in range(len(table)):
        t = table[r, SRC_TYPE]
        first, stop = offsets[r], offsets[r + 1]
        while first < stop:
            room = len(slots) // 2 - total
            if room <= 0:
                slots = _rebuilt(4 * total, local_bits, nodes, bases, counts, first_keys)
                continue
            done, known = _relabel(
                slots,
                local_bits,
                room,
                sources[first:stop],
                num_nodes[t],
                first_keys[t],
                nodes[bases[t] :],
                counts[t],
            )
            is_full = known - counts[t] == room
            total += known - counts[t]
            counts[t] = known
            first += done
            if first < stop and not is_full:
                return slots, r, first
    return slots, -1, -1
