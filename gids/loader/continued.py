"""Epochs that go over into each other: what a pipeline prepares, and one that outlives its epoch."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gids.loader.pipeline import Pipeline


@dataclass(frozen=True)
class BatchName:
    """Mini-batch `number` of an epoch, of those of this rank."""

    epoch: int
    number: int


@dataclass(frozen=True, eq=False)
class Continued:
    """A pipeline that prepares `epoch` from its start, before anybody iterates over it.

    Attributes
    ----------
    epoch : int
    pipeline : Pipeline
    keeper : weakref.finalize
        Closes it when the loader goes; called, it does so now.
    """

    epoch: int
    pipeline: Pipeline
    keeper: weakref.finalize[Any, Any]


def batch_names(epoch: int, first_batch: int, n_batches: int, crosses: bool) -> Iterator[BatchName]:
    """The rest of an epoch, and all later epochs where it `crosses` over into them."""
    for number in range(first_batch, n_batches):
        yield BatchName(epoch, number)
    if crosses:
        for later in itertools.count(epoch + 1):
            for number in range(n_batches):
                yield BatchName(later, number)
