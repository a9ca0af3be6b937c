"""The random numbers of sampling and shuffling: counter-based, the same bits on every CPU and GPU.

A number is a pure function of what it is for, so no generator has a state, threads share nothing, and any
part of any mini-batch can be drawn again alone. All arithmetic is on unsigned integers; `u32` results wrap
modulo 2^32.

**Block.** `philox(c0, c1, c2, c3, k0, k1)` is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
numbers: as easy as 1, 2, 3", SC 2011, section 4): ten rounds of

    p0 = 0xD2511F53 * c0,  p1 = 0xCD9E8D57 * c2                      (64-bit products)
    c0, c1, c2, c3 = hi(p1) ^ c1 ^ k0,  lo(p1),  hi(p0) ^ c3 ^ k1,  lo(p0)
    k0 += 0x9E3779B9,  k1 += 0xBB67AE85                              (after each round)

**Stream.** The key of everything drawn for one (seed, epoch, batch, hop, relation) is two words:

    k0, k1 = philox(epoch, batch, hop, relation; key = lo(seed), hi(seed))[0:2]

`hop` counts layers from the seeds, 0 first; `relation` is the edge type's position in the schema's sorted
order; shuffling uses the relations from `SHUFFLE_STREAM` on. Seed is a u64, the others u32.

**Word.** Draw `d` for an item (a node id, u64), at attempt `a`, in a stream:

    word(item, d, a) = philox(lo(item), hi(item), d >> 2, a; key = k0, k1)[d & 3]

**Choice below n**, 1 <= n < 2^32 (Lemire: "Fast random integer generation in an interval", 2019), exactly
uniform:

    for a = 0, 1, 2 ...:  m = word(item, d, a) * n  (64-bit);  if lo(m) >= (2^32 - n) mod n: return hi(m)

A rejected word is replaced by one of its own (the next attempt), so draws never depend on one another, and a
warp may take them all at once. `gids.sampling.reference` says the same in plain Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gids.sampling.compile import compiled, inlined

SHUFFLE_STREAM = 0xFFFF0000
"""First relation number of shuffling, which stands for no edge type."""

SHARED_STREAM = 0xFFFE0000
EDGE_STREAM = 0xFFFD0000
"""First relation numbers of shared draws (`gids.sampling.shared_draws`)."""

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_2_TO_32 = np.uint64(1 << 32)


@inlined
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Four words of 32 bits in uint64s, from a counter of four and a key of two."""
    for _ in range(10):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@compiled
def stream_key(seed: Any, epoch: Any, batch: Any, hop: Any, relation: Any) -> Any:
    """Key words of one stream."""
    seed = np.uint64(seed)
    words = philox(
        np.uint64(epoch), np.uint64(batch), np.uint64(hop), np.uint64(relation), seed & _LOW, seed >> _32
    )
    return words[0], words[1]


@inlined
def words_of(key: Any, item: Any, draw: Any) -> Any:
    """The first attempts of draws `draw & ~3` to `draw | 3`: one block serves four draws."""
    item = np.uint64(item)
    return philox(item & _LOW, item >> _32, np.uint64(draw) >> _TWO, np.uint64(0), key[0], key[1])


@inlined
def below(n: Any, first_word: Any, key: Any, item: Any, draw: Any) -> Any:
    """Choice below `n` for one draw, given the word of its first attempt."""
    product = first_word * np.uint64(n)
    if product & _LOW < np.uint64(n):  # the threshold is below n, so only now, rarely, is a division needed
        product = _accepted(product, np.uint64(n), key, np.uint64(item), np.uint64(draw))
    return np.int64(product >> _32)


@compiled
def _accepted(product: Any, n: Any, key: Any, item: Any, draw: Any) -> Any:
    threshold = (_2_TO_32 - n) % n
    attempt = np.uint64(0)
    while product & _LOW < threshold:
        attempt += np.uint64(1)
        words = philox(item & _LOW, item >> _32, draw >> _TWO, attempt, key[0], key[1])
        product = words[draw & _THREE] * n
    return product
