"""How far a run's reads are from the fewest that any cache of as many lines could have made.

Counted when the clock has stopped, in a process of its own: the pages of every timed mini-batch, in the order
of reading, go through Belady's optimum (:mod:`bam.cache.belady`, whose results these are). A mini-batch asks
for each of its pages once, since one read serves all its rows; constant rows ask for none.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from bam.cache.page_cache import NEVER
from bam.cache.simulate import next_uses
from gids.fetch.feature_store import FeatureStore
from gids.fetch.window import Pages
from gids.sampling.block import SampledBatch


def page_trace(store: FeatureStore, batches: Iterable[SampledBatch]) -> Pages:
    """Pages that mini-batches ask the cache for, in order; those of each type have ids of their own."""
    stored = {name: table for name, table in store.tables.items() if not table.in_memory}
    n_pages = [table.pages_of(np.array([table.n_rows - 1])).last[0] + 1 for table in stored.values()]
    first_page = dict(zip(stored, np.cumsum([0, *n_pages]).tolist(), strict=False))

    def parts() -> Iterator[Pages]:
        for batch in batches:
            for name, table in stored.items():
                rows = table.rows_of(batch.nodes[name])
                if name in store.buffers:
                    rows = store.buffers[name].divide(rows).stored_rows
                pages = table.pages_of(rows)
                yield np.unique(_from_to(pages.first, pages.last)) + first_page[name]

    return np.concatenate([np.empty(0, np.int64), *parts()])


def _from_to(first: Pages, last: Pages) -> Pages:
    """All numbers from each `first` to its `last`."""
    counts = last - first + 1
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(int(counts.sum()))


def optimal_misses(trace: Pages, n_lines: int, first: int = 0) -> int:
    """Misses of Belady's optimum for a fully associative cache that is empty at first and may bypass.

    Parameters
    ----------
    trace : int64 array, shape (n,)
        Page ids in the order of access.
    n_lines : int
        At least 1.
    first : int
        Misses count from this access on.
    """
    return int(np.count_nonzero(missing_accesses(trace, n_lines)[first:]))


def missing_accesses(trace: Pages, n_lines: int) -> npt.NDArray[np.bool_]:
    """Which accesses of :func:`optimal_misses` miss; bool, shape (n,)."""
    uses = next_uses(trace)
    positions = np.where(uses == NEVER, np.uint64(0), uses).astype(np.int64) - (uses == NEVER)
    _, pages = np.unique(trace, return_inverse=True)
    missed = np.zeros(len(trace), np.bool_)
    _mark_misses(pages.astype(np.int64), positions, n_lines, missed)
    return missed


@njit(cache=True, nogil=True)
def _mark_misses(
    pages: npt.NDArray[np.int64], uses: npt.NDArray[np.int64], n_lines: int, missed: npt.NDArray[np.bool_]
) -> None:
    """`uses` are the positions of next accesses, -1 for none; such a page is not worth a line."""
    cached = np.zeros(len(pages), np.bool_)
    # Next uses of cached pages, negative, so that the farthest comes first; uses that have passed sink.
    farthest = [0 for _ in range(0)]
    lines = 0
    for now in range(len(pages)):
        page, use = pages[now], uses[now]
        if cached[page]:
            if use >= 0:
                heapq.heappush(farthest, -use)
            else:
                cached[page] = False
                lines -= 1
            continue
        missed[now] = True
        if use < 0:
            continue
        if lines == n_lines:
            if use > -farthest[0]:
                continue
            cached[pages[-heapq.heappop(farthest)]] = False
        else:
            lines += 1
        cached[page] = True
        heapq.heappush(farthest, -use)


def belady_gap(
    store: FeatureStore,
    warm_up: Iterable[SampledBatch],
    batches: Iterable[SampledBatch],
    n_lines: int,
    misses: int,
) -> dict[str, Any]:
    """The fields of `loaders.gids.belady` in a result file.

    Parameters
    ----------
    store : FeatureStore
        Its tables and constant rows count; nothing is read through it.
    warm_up, batches : iterable of SampledBatch
        Those read before the clock started, whose misses do not count, and those of the run.
    n_lines, misses : int
        Of the run.
    """
    before, trace = page_trace(store, warm_up), page_trace(store, batches)
    optimum = optimal_misses(np.concatenate([before, trace]), n_lines, len(before))
    return {
        "lines": n_lines,
        "pages_requested": len(trace),
        "pages_distinct": len(np.unique(trace)),
        "misses": misses,
        "optimal_misses": optimum,
        "gap": misses / optimum if optimum else None,
    }
