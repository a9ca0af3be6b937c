"""The compiled half of `NeighborSampler`: seeds to blocks in one call that never needs the interpreter lock.

`gids.sampling.neighbor` says what is computed. A hop is four steps: look up (degrees), prefix sums (where
each node's edges start), pick (choose positions, load source ids), relabel (source ids to local ids). All
but the last are data-parallel as they stand; the last is a ranking by first appearance, which a GPU does by
inserting with the smallest position, flagging those positions, and a prefix sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gids.sampling.compile import compiled, entry_point
from gids.sampling.fanouts import ALL
from gids.sampling.pick import DST_TYPE, SRC_TYPE, look_up, look_up_parallel, pick, pick_parallel
from gids.sampling.pick_shared import pick_shared, pick_shared_parallel, shared_keys
from gids.sampling.random import stream_key
from gids.sampling.relabel import bits_for_local_ids, find_or_add, new_slots, relabel

# What the first status word says; the others carry its details.
OK, DUPLICATE_SEED, SEED_OUT_OF_RANGE, BAD_INDPTR, BAD_INDEX, TOO_MANY_NODES = range(6)

_CHUNK = 256  # destination nodes of one unit of parallel work


# Loops instead of numpy's functions wherever they do: each of those adds a second to the first compilation.


@compiled
def _starts(counts: Any) -> Any:
    """Sums of the counts before each."""
    starts = np.empty(len(counts), np.int64)
    total = 0
    for t in range(len(counts)):
        starts[t] = total
        total += counts[t]
    return starts


@compiled
def _copy(source: Any, first: Any, target: Any, at: Any, count: Any) -> None:
    for i in range(count):
        target[at + i] = source[first + i]


@compiled
def _fail(status: Any, code: Any, index: Any, value: Any, position: Any) -> None:
    status[0] = code
    status[1] = index
    status[2] = value
    status[3] = position


@compiled
def _add_seeds(slots: Any, local_bits: Any, seeds: Any, counts: Any, num_nodes: Any, status: Any) -> None:
    position = first_key = 0
    for t in range(len(counts)):
        for local_id in range(counts[t]):
            node = seeds[position]
            if node < 0 or node >= num_nodes[t]:
                _fail(status, SEED_OUT_OF_RANGE, t, node, local_id)
                return
            if find_or_add(slots, local_bits, first_key + node, local_id) != -1:
                _fail(status, DUPLICATE_SEED, t, node, local_id)
                return
            position += 1
        first_key += num_nodes[t]


@compiled
def _chunks_of(table: Any, fanouts: Any, bases: Any, begins: Any, ends: Any) -> Any:
    """Rows (relation, first node, last node + 1, first entry of indptr), for every relation with a fanout."""
    number = 0
    for r in range(len(table)):
        t = table[r, DST_TYPE]
        if fanouts[r] != 0:
            number += (ends[t] - begins[t] + _CHUNK - 1) // _CHUNK
    chunks = np.empty((number, 4), np.int64)
    c = out = 0
    for r in range(len(table)):
        t = table[r, DST_TYPE]
        if fanouts[r] != 0:
            for first in range(begins[t], ends[t], _CHUNK):
                chunks[c, 0] = r
                chunks[c, 1] = bases[t] + first
                chunks[c, 2] = bases[t] + min(first + _CHUNK, ends[t])
                chunks[c, 3] = out + first - begins[t]
                c += 1
        out += ends[t] - begins[t] + 1
    return chunks


@compiled
def _prefix_sums(
    table: Any, begins: Any, ends: Any, fanouts: Any, replace: Any, degrees: Any, indptr: Any, offsets: Any
) -> None:
    """Column pointers of a hop's relations, each from 0; `offsets` adds the relations up."""
    out = 0
    for r in range(len(table)):
        length = ends[table[r, DST_TYPE]] - begins[table[r, DST_TYPE]]
        fanout = fanouts[r]
        total = 0
        for i in range(out, out + length):
            indptr[i] = total
            if fanout == 0 or degrees[i] == 0:
                continue
            takes_all = fanout == ALL or (degrees[i] <= fanout and not replace)
            total += degrees[i] if takes_all else fanout
        indptr[out + length] = total
        out += length + 1
        offsets[r + 1] = offsets[r] + total


@compiled
def _with_room(table: Any, num_nodes: Any, nodes: Any, bases: Any, counts: Any, offsets: Any) -> Any:
    """Node lists moved apart, so that each type has room for what a hop's edges can add; the largest room."""
    room = counts.copy()
    for r in range(len(table)):
        room[table[r, SRC_TYPE]] += offsets[r + 1] - offsets[r]
    total = largest = 0
    for t in range(len(counts)):
        room[t] = min(room[t], num_nodes[t])
        largest = max(largest, room[t])
        total += room[t]
    moved, moved_bases = np.empty(total, np.int64), _starts(room)
    for t in range(len(counts)):
        _copy(nodes, bases[t], moved, moved_bases[t], counts[t])
    return moved, moved_bases, largest


@compiled
def _resized(array: Any, used: Any, entries: Any) -> Any:
    larger = np.empty(entries, np.int64)
    _copy(array, 0, larger, 0, used)
    return larger


@entry_point
def sample_batch(
    table: Any,
    num_nodes: Any,
    fanouts: Any,
    replace: Any,
    resample: Any,
    want_edge_ids: Any,
    seeds: Any,
    seed_counts: Any,
    seed: Any,
    epoch: Any,
    batch: Any,
    expected_nodes: Any,
    parallel: Any,
    shared: Any,
) -> Any:
    """Sample one mini-batch.

    Parameters
    ----------
    table : int64 array, shape (relations, COLUMNS)
    num_nodes : int64 array, shape (node types,)
    fanouts : int64 array, shape (hops, relations)
        Hop 0 is the one at the seeds.
    replace, resample, want_edge_ids : bool
    seeds : int64 array
        Those of the first node type, then those of the second ...
    seed_counts : int64 array, shape (node types,)
    seed, epoch, batch : int
    expected_nodes : int
        Size the hash table starts with; a good guess saves rebuilding it and changes nothing else.
    parallel : None or True
        None compiles a version that never touches numba's threads.
    shared : None or tuple of int
        `by_source` and `kappa` of `gids.sampling.shared_draws.SharedDraws`; None: draws of their own.

    Returns
    -------
    status : int64 array, shape (4,)
        OK, or what is wrong and where; then nothing else counts.
    nodes, bases : int64 arrays
        Distinct nodes; those of type `t` start at `bases[t]`.
    node_counts : int64 array, shape (hops + 1, node types)
        Nodes of each type known before hop 0 (the seeds), and after each hop.
    indptr : int64 array
        For each hop and relation the column pointers, from 0, of the nodes expanded.
    offsets : int64 array, shape (hops, relations + 1)
        Where the edges of each hop and relation stand in `sources`.
    sources, edge_ids : int64 arrays
        Local source ids; edge ids when wanted.
    """
    hops, relations = fanouts.shape
    status = np.zeros(4, np.int64)
    offsets = np.zeros((hops, relations + 1), np.int64)
    node_counts = np.zeros((hops + 1, len(num_nodes)), np.int64)
    _copy(seed_counts, 0, node_counts[0], 0, len(seed_counts))
    nodes, bases = seeds, _starts(seed_counts)
    begins = np.zeros(len(seed_counts), np.int64)
    indptr, sources, edge_ids = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    keys = np.empty((relations, 2), np.uint64)
    if shared is not None:
        common = shared_keys(table, shared[0], seed, epoch)
    first_keys = _starts(num_nodes)
    local_bits = bits_for_local_ids(first_keys[-1] + num_nodes[-1])
    slots = new_slots(max(len(seeds), expected_nodes))
    _add_seeds(slots, local_bits, seeds, seed_counts, num_nodes, status)
    for hop in range(hops):
        if status[0] != OK:
            break
        ends = node_counts[hop]
        out = len(indptr)
        entries = relations
        for r in range(relations):
            entries += ends[table[r, DST_TYPE]] - begins[table[r, DST_TYPE]]
            keys[r, 0], keys[r, 1] = stream_key(seed, epoch, batch, hop, r)
        indptr = _resized(indptr, out, out + entries)
        starts, degrees = np.empty(entries, np.int64), np.empty(entries, np.int64)
        chunks = _chunks_of(table, fanouts[hop], bases, begins, ends)
        bad_nodes = np.empty(len(chunks), np.int64)
        if parallel is None:
            look_up(chunks, table, nodes, starts, degrees, bad_nodes)
        else:
            look_up_parallel(chunks, table, nodes, starts, degrees, bad_nodes)
        for c in range(len(chunks)):
            if bad_nodes[c] >= 0:
                _fail(status, BAD_INDPTR, chunks[c, 0], bad_nodes[c], 0)
        if status[0] != OK:
            break

        edges = offsets[hop]
        edges[0] = len(sources)
        _prefix_sums(table, begins, ends, fanouts[hop], replace, degrees, indptr[out:], edges)
        sources = _resized(sources, edges[0], edges[relations])
        if want_edge_ids:
            edge_ids = _resized(edge_ids, edges[0], edges[relations])
        drawn = (starts, degrees, fanouts[hop], replace, keys, indptr[out:], edges, sources, edge_ids)
        if shared is not None:
            numbers = (starts, degrees, shared[0], batch, shared[1], common)
            taken = (indptr[out:], edges, sources, edge_ids)
            if parallel is None:
                pick_shared(chunks, table, *numbers, *taken)
            else:
                pick_shared_parallel(chunks, table, *numbers, *taken)
        elif parallel is None:
            pick(chunks, table, nodes, *drawn)
        else:
            pick_parallel(chunks, table, nodes, *drawn)

        nodes, bases, largest = _with_room(table, num_nodes, nodes, bases, ends, edges)
        if largest > 1 << local_bits:
            _fail(status, TOO_MANY_NODES, 0, largest, 0)
            break
        counts = node_counts[hop + 1]
        _copy(ends, 0, counts, 0, len(ends))
        slots, relation, position = relabel(
            table, num_nodes, first_keys, slots, local_bits, nodes, bases, counts, edges, sources
        )
        if relation >= 0:
            _fail(status, BAD_INDEX, relation, sources[position], 0)
        if not resample:
            begins = ends
    return status, nodes, bases, node_counts, indptr, offsets, sources, edge_ids
