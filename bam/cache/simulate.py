"""Run a recorded trace through a page cache and count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.cache.page_cache import NEVER, Outcome, PageCache


@dataclass(frozen=True)
class TraceCounts:
    """What became of the accesses of a trace.

    Attributes
    ----------
    hits, misses : int
        Their sum is the length of the trace.
    bypasses : int
        The misses that were not cached.
    """

    hits: int
    misses: int
    bypasses: int

    @property
    def miss_rate(self) -> float:
        """Misses over accesses; 0 for an empty trace."""
        return self.misses / max(1, self.hits + self.misses)


def next_uses(trace: npt.NDArray[np.integer]) -> npt.NDArray[np.uint64]:
    """Position of the next access to the same page.

    Parameters
    ----------
    trace : integer array, shape (n,)
        Page ids in the order of access.

    Returns
    -------
    uint64 array, shape (n,)
        :data:`bam.cache.page_cache.NEVER` where there is none.
    """
    order = np.argsort(trace, kind="stable")
    uses = np.full(len(trace), NEVER, dtype=np.uint64)
    earlier, later = order[:-1], order[1:]
    same = trace[earlier] == trace[later]
    uses[earlier[same]] = later[same]
    return uses


def simulate(
    cache: PageCache, trace: npt.NDArray[np.integer], uses: npt.NDArray[np.uint64] | None = None
) -> TraceCounts:
    """Access each page of the trace in turn; a miss is filled and every pin dropped at once.

    Parameters
    ----------
    cache : PageCache
        Left as the last access leaves it.
    trace : integer array, shape (n,)
        Page ids.
    uses : uint64 array, shape (n,), optional
        Next use of each access, as :func:`next_uses` gives it; what the look-ahead policy orders by.
    """
    later = [NEVER] * len(trace) if uses is None else uses.tolist()
    hits = bypasses = 0
    for page_id, use in zip(trace.tolist(), later, strict=True):
        acquired = cache.acquire(page_id, use)
        if acquired.line_id is None:
            bypasses += 1
            continue
        if acquired.outcome is Outcome.CLAIMED:
            cache.publish(acquired.line_id)
        else:
            hits += 1
        cache.unpin(acquired.line_id)
    return TraceCounts(hits, len(trace) - hits, bypasses)
