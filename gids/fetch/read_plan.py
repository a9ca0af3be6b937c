"""Which reads a set of missing pages becomes: the rule of gather_read.cc, over pages known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Pages = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ReadRules:
    """When pages become one read.

    Attributes
    ----------
    page_bytes : int
    merge_bytes : int
        Longest read.
    bridge_bytes : int
        Longest hole that is read along.
    """

    page_bytes: int = 4096
    merge_bytes: int = 65536
    bridge_bytes: int = 0

    @classmethod
    def page_by_page(cls, page_bytes: int) -> ReadRules:
        """Each page is a read of its own."""
        return cls(page_bytes, page_bytes, 0)


def read_lengths(pages: Pages, rules: ReadRules) -> npt.NDArray[np.int64]:
    """Length in bytes of each read that fetches `pages`, in their order.

    Parameters
    ----------
    pages : int64 array
        Distinct, rising.
    rules : ReadRules
    """
    most = max(1, rules.merge_bytes // rules.page_bytes)
    spans = np.empty(len(pages), np.int64)
    count = _spans(pages, most, rules.bridge_bytes // rules.page_bytes, spans)
    return spans[:count] * rules.page_bytes


@njit(cache=True, nogil=True)
def _spans(pages: Any, most: Any, bridged: Any, spans: Any) -> Any:
    """Pages from the first to the last of each read; returns how many reads there are."""
    count = 0
    first = 0
    for i in range(len(pages)):
        if count > 0 and pages[i] - pages[i - 1] <= 1 + bridged and pages[i] - first < most:
            spans[count - 1] = pages[i] - first + 1
        else:
            first = pages[i]
            spans[count] = 1
            count += 1
    return count
