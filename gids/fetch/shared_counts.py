"""Divides what reading a group of mini-batches cost among them."""

from __future__ import annotations

from collections.abc import Sequence

from gids.fetch.counts import FetchCounts


def divided(
    total: FetchCounts, stored_rows: Sequence[int], constant_rows: Sequence[int]
) -> list[FetchCounts]:
    """A part of `total` for each mini-batch, in proportion to its rows; the parts add up to it.

    The number of rows of each is exactly its own. How many of them came from storage is only known of all
    together, as a page is read once for all mini-batches of the group that need it.

    Parameters
    ----------
    total : FetchCounts
        Of the stored rows of all.
    stored_rows, constant_rows : sequence of int
        Of each mini-batch.
    """
    rows = [total.rows_cache, total.rows_joined, total.rows_storage]
    pages = [total.pages_hit, total.pages_joined, total.pages_read]
    others = [total.pages_bypassed, total.reads, total.bytes_read, total.bytes_useful]
    parts, rows_left, pages_left = [], sum(stored_rows), sum(pages)
    for stored, constant in zip(stored_rows, constant_rows, strict=True):
        n_pages = pages_left * stored // rows_left if rows_left else 0
        mine, my_pages = _take(rows, stored), _take(pages, n_pages)
        my_others = [each * stored // rows_left if rows_left else 0 for each in others]
        rows_left, pages_left = rows_left - stored, pages_left - n_pages
        others = [left - taken for left, taken in zip(others, my_others, strict=True)]
        parts.append(_counts(stored, constant, mine, my_pages, my_others))
    return parts


def _counts(stored: int, constant: int, rows: list[int], pages: list[int], others: list[int]) -> FetchCounts:
    return FetchCounts(
        rows_requested=stored + constant,
        rows_constant=constant,
        rows_cache=rows[0],
        rows_joined=rows[1],
        rows_storage=rows[2],
        pages_requested=sum(pages),
        pages_hit=pages[0],
        pages_joined=pages[1],
        pages_read=pages[2],
        pages_bypassed=others[0],
        reads=others[1],
        bytes_read=others[2],
        bytes_useful=others[3],
    )


def _take(left: list[int], count: int) -> list[int]:
    """Take `count` from `left`, which changes, in proportion to what is there; rounding goes to the first."""
    total = sum(left)
    taken = [each * count // total if total else 0 for each in left]
    for i, each in enumerate(left):
        taken[i] += min(each - taken[i], count - sum(taken))
    left[:] = [each - mine for each, mine in zip(left, taken, strict=True)]
    return taken
