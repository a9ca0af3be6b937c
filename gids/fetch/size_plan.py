"""Sizes that fit a machine's memory, and what hit rates to expect of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gids.fetch.read_plan import Pages

#: Share of the available memory that is planned with; the rest is for what grows while training runs.
USED_SHARE = 0.8
#: Mini-batches of features in memory at a time beside those read ahead: one trained on, one being read.
BATCHES_IN_HAND = 2
#: Longer windows raised no hit rate further in simulations of recorded epochs.
MAX_WINDOW = 8


@dataclass(frozen=True)
class Sizes:
    """Settings of a loader.

    Attributes
    ----------
    cache_bytes, cpu_buffer_bytes : int
    window : int
    """

    cache_bytes: int
    cpu_buffer_bytes: int
    window: int


@dataclass(frozen=True)
class TierPages:
    """Distinct pages of a mini-batch by where they are expected to be; means over mini-batches.

    Attributes
    ----------
    requested, constant, cached : float
    missing : tuple of int64 array
        Of each mini-batch the pages left for storage, rising.
    """

    requested: float
    constant: float
    cached: float
    missing: tuple[Pages, ...]


def recommend_sizes(
    available_bytes: int,
    features_bytes: int,
    batch_bytes: int,
    batches: Sequence[Pages],
    page_bytes: int,
    prefetch: int = 1,
) -> Sizes:
    """Settings for a machine whose cache and constant buffer share one memory.

    All that is free goes to the cache: it holds hot rows as a constant buffer would, and those of the window.

    Parameters
    ----------
    available_bytes : int
        Memory that can be taken.
    features_bytes : int
        Of all stored features.
    batch_bytes : int
        Features of a mini-batch.
    batches : sequence of int64 array
        Distinct pages of some mini-batches, in order.
    page_bytes, prefetch : int
    """
    free = int(USED_SHARE * available_bytes) - (prefetch + BATCHES_IN_HAND) * batch_bytes
    cache_bytes = max(page_bytes, min(free, features_bytes)) // page_bytes * page_bytes
    if cache_bytes >= features_bytes:
        return Sizes(cache_bytes, 0, 1)
    window = 1
    for longer in range(2, min(MAX_WINDOW, len(batches)) + 1):
        if len(np.unique(np.concatenate(batches[:longer]))) * page_bytes > cache_bytes:
            break
        window = longer
    return Sizes(cache_bytes, 0, window)


def expected_tiers(batches: Sequence[Pages], constant_pages: int, cache_pages: int) -> TierPages:
    """Where the pages of the second half of some mini-batches would be.

    The pages that the mini-batches before asked for most often are constant, the next most often cached; of
    equally frequent ones those with the smaller number. So a page seen for the first time is missing, and few
    mini-batches give too low a hit rate.

    Parameters
    ----------
    batches : sequence of int64 array
        Distinct pages of each, at least two mini-batches.
    constant_pages, cache_pages : int
        What fits.
    """
    half = len(batches) // 2
    requested = constant = cached = 0
    missing = []
    for number in range(half, len(batches)):
        pages, counts = np.unique(np.concatenate(batches[:number]), return_counts=True)
        hottest = pages[np.lexsort((pages, -counts))]
        held, kept = hottest[:constant_pages], hottest[constant_pages : constant_pages + cache_pages]
        mine = np.unique(batches[number])
        in_buffer, in_cache = np.isin(mine, held), np.isin(mine, kept)
        requested += len(mine)
        constant += int(in_buffer.sum())
        cached += int(in_cache.sum())
        missing.append(mine[~(in_buffer | in_cache)])
    count = max(1, len(batches) - half)
    return TierPages(requested / count, constant / count, cached / count, tuple(missing))


def pages_of_rows(rows: npt.NDArray[np.int64], row_bytes: int, page_bytes: int, first_page: int) -> Pages:
    """Distinct pages that rows lie in, rising; page 0 of the table is called `first_page`."""
    begin = rows * row_bytes
    first, last = begin // page_bytes, (begin + row_bytes - 1) // page_bytes
    longest = int((last - first).max(initial=0))
    inside = [np.minimum(first + step, last) for step in range(longest + 1)]
    return np.unique(np.concatenate(inside)) + first_page
