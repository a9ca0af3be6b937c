"""Next uses in the window against the plain model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gids.fetch import reference
from gids.fetch.window import HORIZON, FutureBatch, RowPages, Window, WindowEntry

batches = st.lists(
    st.fixed_dictionaries(
        {
            "paper": st.lists(st.integers(0, 30), unique=True, max_size=20),
            "author": st.lists(st.integers(0, 5), unique=True, max_size=6),
        }
    ),
    min_size=1,
    max_size=9,
)


def entry_of(number: int, batch: dict[str, list[int]], row_bytes: int) -> WindowEntry:
    rows = {name: np.array(ids, np.int64) for name, ids in batch.items()}
    pages = {}
    for name, ids in rows.items():
        first = ids * row_bytes // 512
        pages[name] = RowPages.of(
            first, first if 512 % row_bytes == 0 else (ids * row_bytes + row_bytes - 1) // 512
        )
    return WindowEntry(number, rows, pages)


@given(batches, st.sampled_from([64, 200, 512, 700]))
def test_next_uses_are_those_of_the_plain_model(trace: list[dict[str, list[int]]], row_bytes: int) -> None:
    window = Window()
    entries = [entry_of(number, batch, row_bytes) for number, batch in enumerate(trace)]
    plain = [
        {name: reference.row_pages(rows, row_bytes, 512) for name, rows in entry.rows.items()}
        for entry in entries
    ]
    for entry in entries:
        window.push(FutureBatch(entry.number, {name: each.distinct for name, each in entry.pages.items()}))
    for number, batch in enumerate(trace):
        beyond = {name: HORIZON + np.arange(len(ids), dtype=np.uint64) for name, ids in batch.items()}
        later = [
            (at, {name: set().union(*rows) for name, rows in plain[at].items()})
            for at in range(number + 1, len(trace))
        ]
        assert window.pop().number == number
        found = window.next_uses(entries[number], beyond)
        expected = reference.next_uses(plain[number], later, beyond)
        for name in batch:
            np.testing.assert_array_equal(found[name], expected[name])
    assert len(window) == 0


def test_numbers_must_rise() -> None:
    window = Window()
    window.push(FutureBatch(3, {}))
    with pytest.raises(ValueError, match="does not follow"):
        window.push(FutureBatch(3, {}))
