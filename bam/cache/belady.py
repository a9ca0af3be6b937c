"""The fewest misses any policy can have on a known trace: Belady's MIN (IBM Systems Journal 5(2), 1966).

In the form in which a page need not be cached: of the pages in the cache and the incoming one, the one whose
next use is farthest goes. O(n log n): a heap of next uses, from which outdated entries are dropped when they
surface.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bam.cache.geometry import Geometry, sets_of
from bam.cache.simulate import TraceCounts, next_uses


def belady(trace: npt.NDArray[np.integer], n_lines: int) -> TraceCounts:
    """Optimum for a fully associative cache.

    Parameters
    ----------
    trace : integer array, shape (n,)
        Page ids in the order of access.
    n_lines : int
        At least 1.
    """
    return _one_set(trace.tolist(), next_uses(trace).tolist(), n_lines)


def belady_sets(trace: npt.NDArray[np.integer], shape: Geometry) -> TraceCounts:
    """Optimum for a set-associative cache: each set is a cache of its own.

    Parameters
    ----------
    trace : integer array, shape (n,)
        Page ids in the order of access.
    shape : Geometry
        Of the cache to compare with.
    """
    uses = next_uses(trace)
    order = np.argsort(sets_of(trace, shape.n_sets), kind="stable")
    counts = np.bincount(sets_of(trace, shape.n_sets), minlength=shape.n_sets)
    hits = misses = bypasses = 0
    for members in np.split(order, np.cumsum(counts)[:-1]):
        of_set = _one_set(trace[members].tolist(), uses[members].tolist(), shape.ways)
        hits += of_set.hits
        misses += of_set.misses
        bypasses += of_set.bypasses
    return TraceCounts(hits, misses, bypasses)


def _one_set(pages: Sequence[int], uses: Sequence[int], ways: int) -> TraceCounts:
    cached: dict[int, int] = {}  # page -> its next use
    farthest: list[tuple[int, int]] = []  # heap of (-next use, page); may hold entries of earlier accesses
    hits = bypasses = 0
    for page, use in zip(pages, uses, strict=True):
        if page in cached:
            hits += 1
        elif len(cached) == ways:
            while cached.get(farthest[0][1]) != -farthest[0][0]:
                heapq.heappop(farthest)
            if use > -farthest[0][0]:
                bypasses += 1
                continue
            del cached[heapq.heappop(farthest)[1]]
        cached[page] = use
        heapq.heappush(farthest, (-use, page))
    return TraceCounts(hits, len(pages) - hits, bypasses)
