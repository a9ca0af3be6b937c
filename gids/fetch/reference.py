"""Oracles of the fetch stages: slow, readable, complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gids.fetch.window import HORIZON, RowIds, Uses


def next_uses(
    pages: Mapping[str, Sequence[set[int]]],
    later: Sequence[tuple[int, Mapping[str, set[int]]]],
    beyond: Mapping[str, Uses],
) -> dict[str, Uses]:
    """What :meth:`gids.fetch.window.Window.next_uses` must give: the first of `later` with a page of the row.

    Parameters
    ----------
    pages : mapping of str to sets of int
        First and last page of each row.
    later : sequence of (number, pages by node type)
    beyond : mapping of str to uint64 array
        For rows of which none of `later` has a page.
    """
    return {
        name: np.array(
            [
                next((number for number, batch in later if mine & batch[name]), int(estimate))
                for mine, estimate in zip(rows, beyond[name].tolist(), strict=True)
            ],
            dtype=np.uint64,
        )
        for name, rows in pages.items()
    }


def row_pages(rows: RowIds, row_bytes: int, page_bytes: int) -> list[set[int]]:
    """First and last page of each row."""
    return [
        {row * row_bytes // page_bytes, (row * row_bytes + row_bytes - 1) // page_bytes}
        for row in rows.tolist()
    ]


def forecast_uses(
    rows: Sequence[int],
    row_bytes: int,
    page_bytes: int,
    counts: Sequence[float],
    seen: Sequence[float],
    passed: float,
    dispersion: float,
) -> list[int]:
    """What :meth:`gids.fetch.forecast.Forecast.estimates` must give, as the formula there is written.

    Parameters
    ----------
    rows : sequence of int
    row_bytes, page_bytes : int
    counts, seen : sequences, one number for each row of the table
        Expected of the epoch, and asked for so far.
    passed, dispersion : float
    """
    left = 1 - passed
    k = left * (1 - dispersion) / (passed * dispersion + left) if left > 0 else 0.0

    def to_come(row: int) -> float:
        count = float(counts[row])
        return max(left * count - k * (float(seen[row]) - passed * count), 0.02 * count)

    uses = []
    for row in rows:
        page, total = row * row_bytes // page_bytes, 0.0
        nearest = page * page_bytes // row_bytes
        for other in range(nearest, min(len(counts), nearest + page_bytes // row_bytes + 2)):
            if other * row_bytes // page_bytes == page:
                total += to_come(other)
        uses.append(HORIZON + int((HORIZON - 1) / (1 + total)))
    return uses
