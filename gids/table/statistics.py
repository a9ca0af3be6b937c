"""Smallest and largest value of each record batch, in the field's metadata as `pg2arrow --stat` has them.

Source: PG-Strom, src/arrow_pgsql.c (functions write_*_stat): keys ``min_values`` and ``max_values``, a list
with a comma between batches. Integers, dates and times are decimal numbers; floating point is the bit pattern
as a decimal number, signed for 32 and 64 bits and unsigned for 16; ``null`` where a batch has no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

MIN_KEY, MAX_KEY = b"min_values", b"max_values"

_BITS: dict[int, np.dtype[Any]] = {2: np.dtype(np.uint16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


@dataclass(frozen=True)
class Bounds:
    """Smallest and largest value of a batch: None when it has no value; not `known` without statistics."""

    low: float | int | None
    high: float | int | None
    known: bool = True


UNKNOWN = Bounds(None, None, known=False)


def token(value: float | int | None, dtype: np.dtype[Any]) -> str:
    """One value as it stands in the list."""
    if value is None:
        return "null"
    if dtype.kind == "f":
        return str(int(np.array(value, dtype).view(_BITS[dtype.itemsize])))
    return str(int(value))


def value(text: str, dtype: np.dtype[Any]) -> float | int | None:
    """The value of a token.

    Raises
    ------
    ValueError
        It is none, or out of the column's range.
    """
    if text == "null":
        return None
    number = int(text)
    kind = _BITS[dtype.itemsize] if dtype.kind == "f" else dtype
    limits = np.iinfo(kind)
    if not limits.min <= number <= limits.max:
        raise ValueError(f"{number} is no {kind}")
    return float(np.array(number, kind).view(dtype)) if dtype.kind == "f" else number


def read_bounds(metadata: Mapping[bytes, bytes] | None, dtype: np.dtype[Any], n_batches: int) -> list[Bounds]:
    """Bounds of each batch of a field; unknown where there are none or they make no sense.

    Statistics only save reads: wrong in form, they are left aside, and every batch is read.
    """
    if not metadata or MIN_KEY not in metadata or MAX_KEY not in metadata:
        return [UNKNOWN] * n_batches
    low, high = (metadata[key].decode("ascii", "replace").split(",") for key in (MIN_KEY, MAX_KEY))
    if not len(low) == len(high) == n_batches:
        return [UNKNOWN] * n_batches
    return [_bounds(*pair, dtype) for pair in zip(low, high, strict=True)]


def _bounds(low: str, high: str, dtype: np.dtype[Any]) -> Bounds:
    try:
        found = Bounds(value(low.strip(), dtype), value(high.strip(), dtype))
    except (ValueError, OverflowError):
        return UNKNOWN
    if (found.low is None) != (found.high is None):
        return UNKNOWN
    # NaN is in no order; a batch with one has bounds of its other values, which do not bound it.
    if found.low is not None and found.high is not None and not found.low <= found.high:
        return UNKNOWN
    return found


def bounds_of(values: npt.NDArray[Any]) -> Bounds:
    """Of the values of one batch, nulls left out. With a NaN there are none: nothing bounds it."""
    if len(values) == 0:
        return Bounds(None, None)
    low, high = values.min(), values.max()
    if values.dtype.kind == "f":
        return UNKNOWN if np.isnan(low) or np.isnan(high) else Bounds(float(low), float(high))
    return Bounds(int(low), int(high))


def metadata_of(bounds: Sequence[Bounds], dtype: np.dtype[Any]) -> dict[bytes, bytes]:
    """The two lists; nothing when a batch has no bounds, since the lists have no word for that."""
    if not all(each.known for each in bounds):
        return {}
    return {
        MIN_KEY: ",".join(token(each.low, dtype) for each in bounds).encode(),
        MAX_KEY: ",".join(token(each.high, dtype) for each in bounds).encode(),
    }
