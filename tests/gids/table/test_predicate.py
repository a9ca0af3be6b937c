"""Conditions: rows against plain Python, and bounds that never exclude a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.table.predicate import Column, Predicate
from gids.table.statistics import Bounds, bounds_of, metadata_of, read_bounds

NAMES = ("a", "b", "c")
DTYPES = {"a": np.dtype(np.int64), "b": np.dtype(np.float32), "c": np.dtype(np.uint8)}
NUMBERS = st.one_of(
    st.integers(-3, 12), st.sampled_from([0.1, 2.5, 3.0, -0.5, 1e300]), st.sampled_from([2**53 + 1, -(2**63)])
)
COMPARISONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


@st.composite
def comparison(draw: Any) -> str:
    name = draw(st.sampled_from(NAMES))
    form = draw(st.integers(0, 4))
    if form == 0:
        items = ", ".join(map(str, draw(st.lists(NUMBERS, max_size=3))))
        return f"{name} {draw(st.sampled_from(['in', 'not in']))} [{items}]"
    if form == 1:
        return f"{draw(NUMBERS)} {draw(COMPARISONS)} {name}"
    if form == 2:
        return f"{draw(NUMBERS)} {draw(COMPARISONS)} {name} {draw(COMPARISONS)} {draw(NUMBERS)}"
    return f"{name} {draw(COMPARISONS)} {draw(NUMBERS)}"


CONDITIONS = st.recursive(
    comparison(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda text: f"not ({text})"),
    ),
    max_leaves=5,
)
PRESENT = {
    "a": st.one_of(st.integers(-3, 12), st.sampled_from([2**53, 2**53 + 1, 2**63 - 1])),
    "b": st.sampled_from([0.1, 2.5, -1.0, 7.0, 3.0]),
    "c": st.integers(0, 12),
}
VALUES = {name: st.one_of(st.none(), values) for name, values in PRESENT.items()}


def column(values: list[Any], dtype: np.dtype[Any]) -> Column:
    valid = np.array([value is not None for value in values], np.bool_)
    filled = np.array([0 if value is None else value for value in values], dtype)
    return Column(filled, valid)


def plain(condition: str, row: dict[str, Any]) -> bool:
    """Whether it is true, by Python's own evaluation; for rows without nulls."""
    return bool(eval(condition, {}, row))


@given(condition=CONDITIONS, data=st.data())
@settings(max_examples=150)
def test_rows_are_those_of_plain_python(condition: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    drawn = {name: data.draw(st.lists(VALUES[name], min_size=n, max_size=n)) for name in NAMES}
    columns = {name: column(drawn[name], DTYPES[name]) for name in NAMES}
    predicate = Predicate(condition)
    found = predicate.rows(columns)
    for row in range(n):
        stored = {name: columns[name].values[row].item() for name in NAMES}
        used = [drawn[name][row] for name in predicate.columns]
        if None not in used:
            assert found[row] == plain(condition, stored), (condition, stored)
    everything = {name: bounds_of(each.values[each.valid]) for name, each in columns.items()}
    if found.any():
        assert predicate.may_match(everything), (condition, everything)


@given(condition=CONDITIONS, data=st.data())
@settings(max_examples=80)
def test_nulls_are_neither_true_nor_false(condition: str, data: st.DataObject) -> None:
    columns = {name: column([data.draw(PRESENT[name]), None], DTYPES[name]) for name in NAMES}
    single = Predicate(condition)
    negated = Predicate(f"not ({condition})")
    both = single.rows(columns) & negated.rows(columns)
    assert not both.any()
    if len(single.columns) == 1:
        assert not single.rows(columns)[1]
        assert not negated.rows(columns)[1]


def test_bounds_exclude_what_they_can() -> None:
    bounds = {"a": Bounds(10, 20), "b": Bounds(0.5, 0.5), "c": Bounds(None, None)}
    for condition, possible in (
        ("a > 20", False),
        ("a >= 20", True),
        ("not (a <= 20)", False),
        ("a < 10 or a == 15", True),
        ("a in [1, 2, 30]", False),
        ("a in [1, 11]", True),
        ("b != 0.5", False),
        ("b not in [0.5, 3]", False),
        ("c == 1", False),
        ("c == 1 or a == 12", True),
        ("5 <= a < 10", False),
        ("not (5 <= a < 10)", True),
        ("30 < a", False),
    ):
        assert Predicate(condition).may_match(bounds) == possible, condition


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "a",
        "1 < 2",
        "a >",
        "__import__('os').system('true') == 0",
        "a.real > 1",
        "a > 'x'",
        "a + 1 > 2",
        "f(a) > 1",
        "a is 1",
        "a in b",
        "a == True",
        "a > 1; a",
        "a > 10**30",
        f"a > {10**30}",
        "(" * 300 + "a > 1" + ")" * 300,
    ],
)
def test_other_things_are_no_conditions(condition: str) -> None:
    with pytest.raises(ConfigError, match="condition"):
        Predicate(condition)


@given(st.lists(st.lists(VALUES["b"], max_size=4), min_size=1, max_size=4))
def test_statistics_come_back_as_they_were_written(batches: list[list[Any]]) -> None:
    for dtype in (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)):
        bounds = [bounds_of(np.array([v for v in batch if v is not None], dtype)) for batch in batches]
        assert read_bounds(metadata_of(bounds, dtype), dtype, len(batches)) == bounds


def test_tokens_are_pg_stroms() -> None:
    """Floating point is its bit pattern: of float16 unsigned, else signed."""
    kinds = {
        np.dtype(np.int32): (Bounds(-5, 7), b"-5", b"7"),
        np.dtype(np.float16): (Bounds(-1.0, 1.0), b"48128", b"15360"),
        np.dtype(np.float32): (Bounds(-1.0, 1.0), b"-1082130432", b"1065353216"),
        np.dtype(np.float64): (Bounds(-1.0, 1.0), b"-4616189618054758400", b"4607182418800017408"),
    }
    for dtype, (bounds, low, high) in kinds.items():
        found = metadata_of([bounds, Bounds(None, None)], dtype)
        assert found == {b"min_values": low + b",null", b"max_values": high + b",null"}


@pytest.mark.parametrize(
    "text", [b"", b"1", b"1,2,3", b"x,2", b"1,99999999999", b"9,9", b"null,2", b"\xff,2"]
)
def test_statistics_that_make_no_sense_are_left_aside(text: bytes) -> None:
    good = b"5,5"
    bounds = read_bounds({b"min_values": text, b"max_values": good}, np.dtype(np.int32), 2)
    assert [each.known for each in bounds][:1] == [text == b"1,99999999999"]
    assert read_bounds(None, np.dtype(np.int32), 1)[0].known is False
