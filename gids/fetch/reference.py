"""Oracles of the fetch stages: slow, readable, complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gids.fetch.window import RowIds, Uses


def next_uses(
    rows: Mapping[str, RowIds],
    later: Sequence[tuple[int, Mapping[str, RowIds]]],
    beyond: Mapping[str, Uses],
) -> dict[str, Uses]:
    """What :meth:`gids.fetch.window.Window.next_uses` must give: the first of `later` that has the row."""
    uses: dict[str, Uses] = {}
    for name, ids in rows.items():
        uses[name] = np.array(
            [
                next((number for number, batch in later if row in batch[name]), int(estimate))
                for row, estimate in zip(ids.tolist(), beyond[name].tolist(), strict=True)
            ],
            dtype=np.uint64,
        )
    return uses
