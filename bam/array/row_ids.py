"""What can stand in the brackets: row ids, slices and masks, checked before anything is read."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from bam.errors import RowIndexTypeError, RowOutOfRange

IdArray: TypeAlias = "npt.NDArray[np.int64]"


def as_row_ids(ids: object, n_rows: int) -> IdArray:
    """Row ids as non-negative int64.

    Parameters
    ----------
    ids : array_like of integers
        Of any shape and integer dtype; lists and tensors on the CPU too. Negative ids count from the end.
    n_rows : int

    Returns
    -------
    int64 array of the same shape
        C-contiguous; `ids` itself where nothing has to change.

    Raises
    ------
    RowOutOfRange
        Of the first id that is not a row.
    RowIndexTypeError
        Not integers.
    """
    array = _as_integers(ids, n_rows)
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    smallest, largest = int(array.min()), int(array.max())
    if smallest < -n_rows or largest >= n_rows:
        wrong = ((array < -n_rows) if array.dtype.kind == "i" else np.False_) | (array >= n_rows)
        position = int(np.argmax(wrong))
        raise RowOutOfRange(int(array.reshape(-1)[position]), n_rows, position)
    found: IdArray = np.ascontiguousarray(array, np.int64).reshape(array.shape)
    if smallest < 0:
        found = np.where(found < 0, found + n_rows, found)
    return found


def _as_integers(ids: object, n_rows: int) -> npt.NDArray[np.integer[Any]]:
    try:
        array = np.asarray(ids)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RowIndexTypeError(f"{type(ids).__name__} ({error})") from error
    if array.dtype.kind in "iu":
        return array
    if array.dtype == object and array.ndim == 0 and isinstance(ids, SupportsIndex):
        return _as_integers([operator.index(ids)], n_rows).reshape(())
    if not isinstance(ids, np.ndarray) and isinstance(ids, Sequence):
        if array.size == 0:
            return array.astype(np.int64)
        _find_huge_id(ids, n_rows)
    raise RowIndexTypeError(f"{type(ids).__name__} of {array.dtype}")


def _find_huge_id(ids: Sequence[object], n_rows: int) -> None:
    """Integers beyond 64 bits become floats or objects in numpy, but they are ids, and out of range."""
    items = np.asarray(ids, dtype=object).reshape(-1).tolist()
    if all(isinstance(item, (int, np.integer)) and not isinstance(item, bool) for item in items):
        for position, item in enumerate(items):
            if not -n_rows <= item < n_rows:
                raise RowOutOfRange(int(item), n_rows, position)


@dataclass(frozen=True)
class Selection:
    """Rows to gather, and what to do with them.

    Attributes
    ----------
    rows : range or int64 array, shape (n,)
        Non-negative row ids.
    index : tuple
        Applied to the gathered rows, shape (n, *row_shape), it gives what numpy gives for the whole key.
        Empty: the rows are the result.
    """

    rows: range | IdArray
    index: tuple[Any, ...] = ()


def select(key: object, shape: tuple[int, ...]) -> Selection:
    """What ``array[key]`` means for an array of `shape`.

    Raises
    ------
    RowOutOfRange
    RowIndexTypeError
    IndexError
        From numpy, for what follows the row ids.
    """
    first, *rest = _expand(key, shape)
    if isinstance(first, slice):
        selection = Selection(_as_range(first, shape[0]), (slice(None), *rest) if rest else ())
    else:
        # A Python integer may be beyond 64 bits, which as_row_ids() looks for in lists.
        ids = as_row_ids([first] if isinstance(first, int) else first, shape[0])
        if isinstance(first, int) or ids.ndim == 0:
            selection = Selection(ids.reshape(1), (0, *rest))
        elif ids.ndim == 1 and not rest:
            selection = Selection(ids)
        else:
            # Standing in for the ids, positions of gathered rows keep numpy's rules for combined indices.
            positions = np.arange(ids.size).reshape(ids.shape)
            selection = Selection(ids.reshape(-1), (positions, *rest))
    if rest:
        # Let numpy raise before anything is read: the same index on as many rows of nothing.
        np.broadcast_to(np.False_, (len(selection.rows), *shape[1:]))[selection.index]
    return selection


def _as_range(rows: slice, n_rows: int) -> range:
    try:
        return range(*rows.indices(n_rows))
    except (TypeError, ValueError) as error:
        raise RowIndexTypeError(f"{rows} ({error})") from error


def _expand(key: object, shape: tuple[int, ...]) -> list[Any]:
    """The entries of the key, the first for the rows; ellipsis and leading mask replaced by their meaning."""
    entries: list[Any] = list(key) if isinstance(key, tuple) else [key]
    places = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if len(places) > 1:
        raise RowIndexTypeError("more than one ellipsis")
    if places:
        used = sum(_dimensions(entry) for entry in entries)
        entries[places[0] : places[0] + 1] = [slice(None)] * (len(shape) - used)
    if not entries:
        return [slice(None)]
    if entries[0] is None:
        raise RowIndexTypeError("a new axis before the rows")
    mask = _as_mask(entries[0])
    if mask is None:
        return entries
    if mask.ndim == 0:
        raise RowIndexTypeError("a single boolean")
    if mask.shape != shape[: mask.ndim]:
        raise RowIndexTypeError(f"a boolean mask of shape {mask.shape} (the array has shape {shape})")
    return [*mask.nonzero(), *entries[1:]]


def _dimensions(entry: object) -> int:
    """Dimensions of the array that an entry of the key stands for."""
    if entry is None or entry is Ellipsis:
        return 0
    mask = _as_mask(entry)
    return 1 if mask is None else mask.ndim


def _as_mask(entry: object) -> npt.NDArray[np.bool_] | None:
    if isinstance(entry, slice) or (isinstance(entry, int) and not isinstance(entry, bool)):
        return None
    try:
        array = np.asarray(entry)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RowIndexTypeError(f"{type(entry).__name__} ({error})") from error
    return array if array.dtype == np.bool_ else None
