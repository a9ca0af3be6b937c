"""The compiled half of shuffling: places of an epoch's seeds, each computed alone.

A permutation of `range(n)` is a Feistel network on the smallest even number of bits that holds n - 1, walked
until it ends below n (Black, Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002). Six rounds; the
round function is the first word of Philox under the epoch's shuffle stream (`gids.sampling.random`):

    l, r = r, l ^ (philox(r, round, 0, 0; key = k0, k1)[0] & mask)

So no list is shuffled: a mini-batch of an epoch with 150 million seeds costs as much as one with 150.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gids.sampling.compile import compiled, entry_point
from gids.sampling.random import SHUFFLE_STREAM, philox, stream_key

ROUNDS = 6


@compiled
def _feistel(place: Any, half_bits: Any, key: Any) -> Any:
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = place >> half_bits, place & mask
    for number in range(ROUNDS):
        word = philox(right, np.uint64(number), np.uint64(0), np.uint64(0), key[0], key[1])[0]
        left, right = right, left ^ (word & mask)
    return (left << half_bits) | right


@entry_point
def shuffled_places(first: Any, step: Any, count: Any, n: Any, seed: Any, epoch: Any) -> Any:
    """Where the permutation sends `first`, `first + step` ... (`count` of them), all below `n`."""
    key = stream_key(seed, epoch, 0, 0, SHUFFLE_STREAM)
    half_bits = np.uint64(1)
    while np.uint64(1) << (half_bits + half_bits) < np.uint64(n):
        half_bits += np.uint64(1)
    places = np.empty(count, np.int64)
    for i in range(count):
        place = np.uint64(first + i * step)
        place = _feistel(place, half_bits, key)
        while place >= np.uint64(n):
            place = _feistel(place, half_bits, key)
        places[i] = np.int64(place)
    return places
