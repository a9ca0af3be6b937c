"""Picks edges by shared random numbers (compiled); `gids.sampling.shared_draws` says which."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from gids.sampling.compile import compiled, compiled_parallel, inlined
from gids.sampling.pick import EDGE_IDS, INDEX_BYTES, INDICES, SRC_TYPE, load_int32, load_int64
from gids.sampling.random import EDGE_STREAM, SHARED_STREAM, philox, stream_key

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_PHASE = np.uint64(0xFFFFFFFF)


@compiled
def shared_keys(table: Any, by_source: Any, seed: Any, epoch: Any) -> Any:
    """Key of each relation's numbers; uint64, shape (relations, 2)."""
    keys = np.empty((len(table), 2), np.uint64)
    for r in range(len(table)):
        stream = SHARED_STREAM + table[r, SRC_TYPE] if by_source else EDGE_STREAM + r
        keys[r, 0], keys[r, 1] = stream_key(seed, epoch, 0, 0, stream)
    return keys


@inlined
def _number(item: Any, batch: Any, kappa: Any, k0: Any, k1: Any) -> Any:
    low, high = np.uint64(item) & _LOW, np.uint64(item) >> _32
    renewed = np.uint64(batch)
    if kappa > 1:
        phase = philox(low, high, _PHASE, np.uint64(0), k0, k1)[0] * np.uint64(kappa) >> _32
        renewed = (renewed + phase) // np.uint64(kappa)
    words = philox(low, high, renewed & _LOW, np.uint64(0), k0, k1)
    return words[0] << _32 | words[1]


@inlined
def _source(relation: Any, position: Any) -> Any:
    if relation[INDEX_BYTES] == 4:
        return load_int32(relation[INDICES] + 4 * position)
    return load_int64(relation[INDICES] + 8 * position)


@compiled
def _pick_smallest(
    relation: Any,
    start: Any,
    degree: Any,
    by_source: Any,
    batch: Any,
    kappa: Any,
    key: Any,
    numbers: Any,
    chosen: Any,
) -> None:
    """Positions of the edges with the smallest numbers, rising."""
    count = len(chosen)
    filled = 0
    for position in range(start, start + degree):
        item = _source(relation, position) if by_source else position
        number = _number(item, batch, kappa, key[0], key[1])
        if filled == count and number >= numbers[count - 1]:
            continue
        at = filled if filled < count else count - 1
        filled = at + 1
        while at > 0 and numbers[at - 1] > number:
            numbers[at] = numbers[at - 1]
            chosen[at] = chosen[at - 1]
            at -= 1
        numbers[at] = number
        chosen[at] = position
    for i in range(1, count):
        position, at = chosen[i], i
        while at > 0 and chosen[at - 1] > position:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = position


@compiled
def _pick_chunk(
    chunk: Any,
    table: Any,
    starts: Any,
    degrees: Any,
    by_source: Any,
    batch: Any,
    kappa: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    r, first, stop, out = chunk
    relation, base = table[r], offsets[r]
    largest = 0
    for i in range(stop - first):
        largest = max(largest, indptr[out + i + 1] - indptr[out + i])
    numbers = np.empty(largest, np.uint64)
    for i in range(stop - first):
        begin, end = base + indptr[out + i], base + indptr[out + i + 1]
        start, degree = starts[out + i], degrees[out + i]
        chosen = sources[begin:end]
        if degree == end - begin:
            for j in range(degree):
                chosen[j] = start + j
        elif end > begin:
            _pick_smallest(relation, start, degree, by_source, batch, kappa, keys[r], numbers, chosen)
        for j in range(begin, end):
            if len(edge_ids) > 0:
                ids = relation[EDGE_IDS]
                edge_ids[j] = load_int64(ids + 8 * sources[j]) if ids else sources[j]
            sources[j] = _source(relation, sources[j])


@compiled
def pick_shared(
    chunks: Any,
    table: Any,
    starts: Any,
    degrees: Any,
    by_source: Any,
    batch: Any,
    kappa: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    for c in range(len(chunks)):
        _pick_chunk(
            chunks[c],
            table,
            starts,
            degrees,
            by_source,
            batch,
            kappa,
            keys,
            indptr,
            offsets,
            sources,
            edge_ids,
        )


@compiled_parallel
def pick_shared_parallel(
    chunks: Any,
    table: Any,
    starts: Any,
    degrees: Any,
    by_source: Any,
    batch: Any,
    kappa: Any,
    keys: Any,
    indptr: Any,
    offsets: Any,
    sources: Any,
    edge_ids: Any,
) -> None:
    for c in prange(len(chunks)):
        _pick_chunk(
            chunks[c],
            table,
            starts,
            degrees,
            by_source,
            batch,
            kappa,
            keys,
            indptr,
            offsets,
            sources,
            edge_ids,
        )
