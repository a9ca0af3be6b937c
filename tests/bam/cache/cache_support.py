"""What the cache tests share: caches by kind, and their whole state in one form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from bam.cache.geometry import MAX_PINS
from bam.cache.host import HostCache
from bam.cache.page_cache import LineState, PolicyKind
from bam.cache.reference import ReferenceCache
from bam.native import available

PAGE_BYTES = 512
POLICIES = list(PolicyKind)


def policy_name(policy: PolicyKind) -> str:
    return policy.value


def host_cache(n_lines: int, policy: PolicyKind, seed: int = 0) -> HostCache:
    if not available():
        pytest.skip("the native library was not built, so there is no host cache to test")
    return HostCache(n_lines, PAGE_BYTES, policy, seed)


def reference_cache(n_lines: int, policy: PolicyKind, seed: int = 0) -> ReferenceCache:
    return ReferenceCache(n_lines, PAGE_BYTES, policy, seed)


@dataclass(frozen=True)
class WholeState:
    """Everything a cache knows, in the C++ cache's form."""

    words: list[int]
    metas: list[int]
    hands: list[int]
    frames: list[int]


def whole_state(cache: HostCache | ReferenceCache) -> WholeState:
    if isinstance(cache, HostCache):
        raw = cache.raw_state()
        return WholeState(raw.words.tolist(), raw.metas.tolist(), raw.hands.tolist(), raw.frames.tolist())
    lines = [line for cache_set in cache.sets for line in cache_set.lines]
    return WholeState(
        [line.page_id << 22 | line.pins << 2 | line.state.value for line in lines],
        [line.meta for line in lines],
        [cache_set.hand for cache_set in cache.sets],
        []
        if cache.n_pages == cache.n_lines
        else [0 if line.frame is None else line.frame + 1 for line in lines],
    )


def set_pins(cache: HostCache | ReferenceCache, line_id: int, pins: int) -> None:
    """Pretends that there are so many holders."""
    if isinstance(cache, HostCache):
        words = cache.raw_state().words
        words[line_id] = np.uint64(int(words[line_id]) & ~(MAX_PINS << 2) | pins << 2)
        return
    set_id, way = divmod(line_id, cache.ways)
    cache.sets[set_id].lines[way].pins = pins


def add_insertions(cache: HostCache | ReferenceCache, count: int) -> None:
    """Makes a SIEVE cache look as if `count` more pages had come and gone in every set long ago."""
    if isinstance(cache, HostCache):
        raw = cache.raw_state()
        in_use = in_use_words(raw.words)
        raw.metas[in_use] += np.uint64(count << 1)
        raw.hands[raw.hands > 0] += np.uint32(count)
        return
    for cache_set in cache.sets:
        for line in cache_set.lines:
            line.meta += count << 1 if line.in_use else 0
        cache_set.hand += count if cache_set.hand > 0 else 0


def in_use_words(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    states = words & np.uint64(3)
    return (states == LineState.READING.value) | (states == LineState.VALID.value)
