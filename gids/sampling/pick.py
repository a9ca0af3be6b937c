"""Count and pick: which edges of each destination node are taken (compiled).

Arrays of the graph come as addresses in one table, so one compiled function serves any number of relations,
memory-mapped or not, with 32- or 64-bit ids.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from gids.graph.csc import MAX_DEGREE
from gids.sampling.compile import compiled, compiled_parallel, inlined
from gids.sampling.fanouts import ALL
from gids.sampling.random import below, words_of

# Columns of the relation table, one row per edge type in the schema's order.
INDPTR, INDICES, INDEX_BYTES, EDGE_IDS, NUM_EDGES, SRC_TYPE, DST_TYPE, COLUMNS = range(8)

_EMPTY = -1

LINEAR_SEARCH_MAX = 64
"""Up to this fanout, "was it chosen already?" looks through the chosen ones; above, through a hash table."""


def _prefetcher() -> Any:
    """A compiled function that brings the cache line of an address near, without waiting."""

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        read, keep, data = word(0), word(3), word(1)
        builder.call(function, [builder.inttoptr(arguments[0], byte), read, keep, data])
        return context.get_dummy_value()

    def prefetch(_context: Any, address: Any) -> Any:
        return types.void(types.int64), generate

    return intrinsic(prefetch)


prefetch = _prefetcher()


def _loader(bits: int) -> Any:
    """A compiled function that reads a signed integer at an address."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())
        return builder.sext(builder.load(pointer), ir.IntType(64))

    def load(_context: Any, address: Any) -> Any:
        return types.int64(types.int64), generate

    return intrinsic(load)


load_int32 = _loader(32)
load_int64 = _loader(64)


@compiled
def _look_up_chunk(relation: Any, nodes: Any, starts: Any, degrees: Any) -> Any:
    """Where each node's in-edges start and how many they are; the first node whose pointers are impossible,
    or -1.

    A loop of its own: lookups that do not wait for one another hide the latency of memory.
    """
    bad = -1
    for i in range(len(nodes)):
        pointer = relation[INDPTR] + 8 * nodes[i]
        start, end = load_int64(pointer), load_int64(pointer + 8)
        starts[i] = start
        degrees[i] = end - start
        if start < 0 or end < start or end > relation[NUM_EDGES] or end - start > MAX_DEGREE:
            bad = nodes[i]
    return bad


@compiled
def look_up(chunks: Any, table: Any, nodes: Any, starts: Any, degrees: Any, bad: Any) -> None:
    for c in range(len(chunks)):
        r, first, stop, out = chunks[c]
        part = slice(out, out + stop - first)
        bad[c] = _look_up_chunk(table[r], nodes[first:stop], starts[part], degrees[part])


@compiled_parallel
def look_up_parallel(chunks: Any, table: Any, nodes: Any, starts: Any, degrees: Any, bad: Any) -> None:
    for c in prange(len(chunks)):
        r, first, stop, out = chunks[c]
        part = slice(out, out + stop - first)
        bad[c] = _look_up_chunk(table[r], nodes[first:stop], starts[part], degrees[part])


# The draws of a node are written to `chosen[begin:end]`, as positions `start + t`. Slicing there would cost
# two atomic counts per node, and adding `start` later would read back what is still on its way to the cache.


@inlined
def _draw_with_replacement(
    degree: Any, key: Any, node: Any, chosen: Any, begin: Any, end: Any, start: Any
) -> None:
    for draw in range(end - begin):
        if draw & 3 == 0:
            words = words_of(key, node, draw)
        chosen[begin + draw] = start + below(degree, words[draw & 3], key, node, draw)


@inlined
def _draw_distinct(degree: Any, key: Any, node: Any, chosen: Any, begin: Any, end: Any, start: Any) -> None:
    """Floyd's choice of `end - begin` out of `degree`: every subset is equally likely."""
    first_last = degree - (end - begin)
    for draw in range(end - begin):
        if draw & 3 == 0:
            words = words_of(key, node, draw)
        last = first_last + draw
        candidate = start + below(last + 1, words[draw & 3], key, node, draw)
        for earlier in range(begin, begin + draw):
            if chosen[earlier] == candidate:
                candidate = start + last
                break
        chosen[begin + draw] = candidate


@compiled
def _draw_distinct_hashed(
    degree: Any, key: Any, node: Any, chosen: Any, begin: Any, end: Any, start: Any
) -> None:
    """The same for a large fanout: a table of the chosen ones instead of a search through them."""
    members = np.full(slots_for(end - begin), _EMPTY)
    first_last = degree - (end - begin)
    for draw in range(end - begin):
        if draw & 3 == 0:
            words = words_of(key, node, draw)
        last = first_last + draw
        candidate = below(last + 1, words[draw & 3], key, node, draw)
        if not _add_member(members, candidate):
            candidate = last
            _add_member(members, candidate)
        chosen[begin + draw] = start + candidate


@compiled
def slots_for(entries: Any) -> Any:
    slots = 64
    while slots < 2 * entries:
        slots *= 2
    return slots


@compiled
def _add_member(members: Any, value: Any) -> Any:
    """Put a value into an open-addressing set; whether it was new."""
    mask = len(members) - 1
    slot = (value * 0x9E3779B1) & mask
    while members[slot] != _EMPTY:
        if members[slot] == value:
            return False
        slot = (slot + 1) & mask
    members[slot] = value
    return True


@compiled
def _pick_chunk(
    relation: Any,
    nodes: Any,
    starts: Any,
    degrees: Any,
    replace: Any,
    key: Any,
    indptr: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    """Choose the edges of some destination nodes; source ids (of the graph, not yet local) and edge ids."""
    for i in range(len(nodes)):
        begin, end = indptr[i], indptr[i + 1]
        start, degree = starts[i], degrees[i]
        if begin == end:
            continue
        if replace:
            _draw_with_replacement(degree, key, nodes[i], sources, begin, end, start)
        elif degree == end - begin:
            for j in range(degree):
                sources[begin + j] = start + j
        elif end - begin <= LINEAR_SEARCH_MAX:
            _draw_distinct(degree, key, nodes[i], sources, begin, end, start)
        else:
            _draw_distinct_hashed(degree, key, nodes[i], sources, begin, end, start)
    first, stop = indptr[0], indptr[len(nodes)]
    if len(edge_ids) > 0:
        ids = relation[EDGE_IDS]
        for j in range(first, stop):
            edge_ids[j] = load_int64(ids + 8 * sources[j]) if ids else sources[j]
    indices = relation[INDICES]
    if relation[INDEX_BYTES] == 4:
        for j in range(first, stop):
            sources[j] = load_int32(indices + 4 * sources[j])
    else:
        for j in range(first, stop):
            sources[j] = load_int64(indices + 8 * sources[j])


@compiled
def _pick_part(
    chunk: Any,
    table: Any,
    nodes: Any,
    starts: Any,
    degrees: Any,
    fanouts: Any,
    replace: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    r, first, stop, out = chunk
    length = stop - first
    edges = slice(offsets[r], offsets[r + 1])
    _pick_chunk(
        table[r],
        nodes[first:stop],
        starts[out : out + length],
        degrees[out : out + length],
        replace and fanouts[r] != ALL,
        (keys[r, 0], keys[r, 1]),
        indptr[out : out + length + 1],
        sources[edges],
        edge_ids[edges],
    )


@compiled
def pick(
    chunks: Any,
    table: Any,
    nodes: Any,
    starts: Any,
    degrees: Any,
    fanouts: Any,
    replace: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    for c in range(len(chunks)):
        _pick_part(
            chunks[c],
            table,
            nodes,
            starts,
            degrees,
            fanouts,
            replace,
            keys,
            indptr,
            offsets,
            sources,
            edge_ids,
        )


@compiled_parallel
def pick_parallel(
    chunks: Any,
    table: Any,
    nodes: Any,
    starts: Any,
    degrees: Any,
    fanouts: Any,
    replace: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    for c in prange(len(chunks)):
        _pick_part(
            chunks[c],
            table,
            nodes,
            starts,
            degrees,
            fanouts,
            replace,
            keys,
            indptr,
            offsets,
            sources,
            edge_ids,
        )
