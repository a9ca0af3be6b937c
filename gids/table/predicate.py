"""Conditions on columns: ``year >= 2018 and lang == 3``.

Comparisons between columns and numbers, chained ones too, ``in`` with a list of numbers, ``and``, ``or``,
``not`` and parentheses, as in Python; ``null`` compares as false and negates as false (SQL's way).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from gids.table.statistics import Bounds

Mask = npt.NDArray[np.bool_]
_ALLOWED = "comparisons of columns with numbers, joined by and, or, not, in [..]"


@dataclass(frozen=True)
class Column:
    """Values of one column in one batch; `valid` is false where they are null (None: nowhere)."""

    values: npt.NDArray[Any]
    valid: Mask | None = None


@dataclass(frozen=True)
class _Truth:
    """Rows for which it is known to be true, and known to be false; neither: null."""

    true: Mask
    false: Mask


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE},
    **{ast.Eq: ast.Eq, ast.NotEq: ast.NotEq},
}
_NEGATED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In},
}


class Predicate:
    """A condition, parsed.

    Parameters
    ----------
    text : str

    Raises
    ------
    ConfigError
        It is not of the form above.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConfigError("condition", text, f"{_ALLOWED} ({error})") from error
        self._check(self._tree)
        names = [node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)]
        self.columns = tuple(dict.fromkeys(names))

    def rows(self, columns: Mapping[str, Column]) -> Mask:
        """Rows for which it is true."""
        return self._truth(self._tree, columns).true

    def may_match(self, bounds: Mapping[str, Bounds]) -> bool:
        """Whether a batch with these bounds can have a row for which it is true; false is certain."""
        return self._may_match(self._tree, bounds, negated=False)

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.BoolOp):
            parts: list[ast.AST] = list(node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            parts = [node.operand]
        elif isinstance(node, ast.Compare):
            left: ast.expr = node.left
            for test, right in zip(node.ops, node.comparators, strict=True):
                if not self._is_comparison(left, test, right):
                    raise ConfigError("condition", self.text, _ALLOWED)
                left = right
            return
        else:
            raise ConfigError("condition", self.text, _ALLOWED)
        for part in parts:
            self._check(part)

    @staticmethod
    def _is_comparison(left: ast.expr, test: ast.cmpop, right: ast.expr) -> bool:
        if isinstance(test, (ast.In, ast.NotIn)):
            is_list = isinstance(right, (ast.List, ast.Tuple)) and all(map(_is_number, right.elts))
            return isinstance(left, ast.Name) and is_list
        ends = (isinstance(left, ast.Name), isinstance(right, ast.Name))
        numbers = (_is_number(left), _is_number(right))
        return (
            type(test) in _COMPARE and any(ends) and all(a or b for a, b in zip(ends, numbers, strict=True))
        )

    # Three-valued logic over rows

    def _truth(self, node: ast.AST, columns: Mapping[str, Column]) -> _Truth:
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(each, columns) for each in node.values]
            if isinstance(node.op, ast.And):
                return _Truth(_all(each.true for each in parts), _any(each.false for each in parts))
            return _Truth(_any(each.true for each in parts), _all(each.false for each in parts))
        if isinstance(node, ast.UnaryOp):
            inner = self._truth(node.operand, columns)
            return _Truth(inner.false, inner.true)
        assert isinstance(node, ast.Compare)
        found, left = [], node.left
        for test, right in zip(node.ops, node.comparators, strict=True):
            found.append(_compared(left, test, right, columns))
            left = right
        return _Truth(_all(each.true for each in found), _any(each.false for each in found))

    # Bounds; a negation is carried down to the comparisons, so that it excludes batches as well

    def _may_match(self, node: ast.AST, bounds: Mapping[str, Bounds], negated: bool) -> bool:
        if isinstance(node, ast.BoolOp):
            parts = [self._may_match(each, bounds, negated) for each in node.values]
            return all(parts) if isinstance(node.op, ast.And) != negated else any(parts)
        if isinstance(node, ast.UnaryOp):
            return self._may_match(node.operand, bounds, not negated)
        assert isinstance(node, ast.Compare)
        parts, left = [], node.left
        for test, right in zip(node.ops, node.comparators, strict=True):
            kind = _NEGATED[type(test)] if negated else type(test)
            parts.append(_possible(left, kind, right, bounds))
            left = right
        return any(parts) if negated else all(parts)


def _all(masks: Any) -> Mask:
    result: Mask = np.logical_and.reduce(list(masks))
    return result


def _any(masks: Any) -> Mask:
    result: Mask = np.logical_or.reduce(list(masks))
    return result


def _compared(left: ast.expr, test: ast.cmpop, right: ast.expr, columns: Mapping[str, Column]) -> _Truth:
    named = [columns[each.id] for each in (left, right) if isinstance(each, ast.Name)]
    valid = np.ones(len(named[0].values), np.bool_)
    for each in named:
        valid = valid if each.valid is None else valid & each.valid
    # Narrow floating point is compared as float64, so that 0.1 means the same here and against the bounds.
    is_float = named[0].values.dtype.kind == "f"
    ends = [_wide(columns[each.id].values) if isinstance(each, ast.Name) else each for each in (left, right)]
    if isinstance(test, (ast.In, ast.NotIn)):
        assert isinstance(right, (ast.List, ast.Tuple))
        result = np.zeros(len(valid), np.bool_)
        for item in right.elts:
            result |= ends[0] == _number(item, is_float)
        result = result if isinstance(test, ast.In) else ~result
    else:
        operands = [_number(each, is_float) if isinstance(each, ast.AST) else each for each in ends]
        result = np.asarray(_COMPARE[type(test)](*operands), np.bool_)
    return _Truth(result & valid, ~result & valid)


def _wide(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def _possible(left: ast.expr, kind: type[ast.cmpop], right: ast.expr, bounds: Mapping[str, Bounds]) -> bool:
    if isinstance(left, ast.Name) and isinstance(right, ast.Name):
        return not any(each.known and each.low is None for each in (bounds[left.id], bounds[right.id]))
    if isinstance(right, ast.Name):
        left, right, kind = right, left, _MIRRORED[kind]
    assert isinstance(left, ast.Name)
    found = bounds[left.id]
    if not found.known:
        return True
    low, high = found.low, found.high
    if low is None or high is None:  # nothing but nulls
        return False
    is_float = isinstance(low, float)
    if kind in (ast.In, ast.NotIn):
        assert isinstance(right, (ast.List, ast.Tuple))
        numbers = [_number(each, is_float) for each in right.elts]
        if kind is ast.In:
            return any(low <= number <= high for number in numbers)
        return not (low == high and low in numbers)
    number = _number(right, is_float)
    return bool(
        {
            ast.Lt: low < number,
            ast.LtE: low <= number,
            ast.Gt: high > number,
            ast.GtE: high >= number,
            ast.Eq: low <= number <= high,
            ast.NotEq: not low == high == number,
        }[kind]
    )


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        node = node.operand
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
        return False
    return isinstance(node.value, float) or (isinstance(node.value, int) and abs(node.value) < 2**64)


def _number(node: ast.AST, is_float: bool) -> Any:
    """A literal in the arithmetic of its column: 3.0 is 3 beside integers, which float64 would round."""
    if isinstance(node, ast.UnaryOp):
        number = _number(node.operand, is_float)
        return -number if isinstance(node.op, ast.USub) else number
    assert isinstance(node, ast.Constant)
    value = node.value
    assert isinstance(value, (int, float))
    if is_float:
        return float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value
