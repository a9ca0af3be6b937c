"""Which mini-batches a GPU reads together: those whose pages lie near each other, or are the same.

The part of the storage access accumulator (:mod:`gids.fetch.accumulator`) that merges. Their distinct rows
are gathered once, in rising order, so that the controller reads neighbouring pages together.
"""

from __future__ import annotations

from typing import Any, TypeVar

from gids.fetch.accumulator import NEWEST, NOTHING, WORTHWHILE_GAIN, GroupMember, Groups
from gids.fetch.storage_model import StorageModel

#: Groups under way: one is handed out while the next is read.
GROUPS = 2
#: Of a large store a share of its pages says enough, in runs of so many: what lies near stays near.
_SAMPLED_PAGES, _RUN_SHIFT = 2**18, 8
_SPREAD = 0x9E3779B1  # odd: the runs that are looked at lie all over the store

PageNumbers = TypeVar("PageNumbers")


class Grouping(Groups):
    """Groups of mini-batches whose pages lie near each other.

    Parameters
    ----------
    storage, budget_bytes
        As of :class:`gids.fetch.accumulator.Groups`; memory as if none of the rows were shared.
    n_pages : int
        Of the whole store.
    merges : bool
        Whether neighbouring pages are read together at all.
    begins_alone : bool
        Where most likely nothing is read: the first mini-batches are read one by one, until one has told.
        Sampling those of a whole group first would only be waited for.

    Attributes
    ----------
    on : bool
        Whether anything is grouped: what longer reads cost must have been measured (`gids calibrate`).
    """

    def __init__(
        self,
        storage: StorageModel,
        budget_bytes: int,
        n_pages: int = 0,
        merges: bool = True,
        begins_alone: bool = False,
    ) -> None:
        self.on = merges and budget_bytes > 0 and storage.cost is not None
        super().__init__(storage, budget_bytes if self.on else 0)
        self._one_in = 1 << max(0, (n_pages // _SAMPLED_PAGES).bit_length() - 1)
        self._read_share = 1.0
        self._alone = begins_alone

    def sampled(self, pages: PageNumbers) -> PageNumbers:
        """Those of `pages` (int64 array or tensor) that a :class:`GroupMember` is to have."""
        if self._one_in == 1:
            return pages
        numbers: Any = pages
        found: PageNumbers = numbers[((numbers >> _RUN_SHIFT) * _SPREAD >> 16 & (self._one_in - 1)) == 0]
        return found

    def _wants(self, member: GroupMember) -> bool:
        # Where all is in memory there is nothing to wait for.
        is_read = self._group.n_pages * self._read_share >= NOTHING
        return is_read and not self._alone and self._group.gain(member) >= WORTHWHILE_GAIN

    def begun(self) -> int:
        """The group is being read, and the next one begins; about how many distinct pages it has."""
        n_pages = self._group.n_pages * self._one_in
        self._begin()
        return n_pages

    def observe(self, n_pages: int, n_read: int) -> None:
        """Of the `n_pages` of a group so many were read, and not in the cache."""
        self._alone = False
        if n_pages:
            self._read_share += NEWEST * (min(1.0, n_read / n_pages) - self._read_share)
