"""Reads features ahead for mini-batches that another library's sampler makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gids.fetch.counts import FetchCounts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.output_pool import OutputPool
from gids.graph.csc import Int64Array
from gids.loader.channel import Channel
from gids.loader.pipeline import Pipeline


@dataclass(frozen=True, eq=False)
class ForeignBatch:
    """A mini-batch of any sampler.

    Attributes
    ----------
    nodes : mapping of str to int64 array
        Whose rows are needed, for every node type that has features in the store.
    payload : object
        What the sampler made; handed out as it is.
    """

    nodes: Mapping[str, Int64Array]
    payload: Any


@dataclass(frozen=True, eq=False)
class ReadBatch:
    """A mini-batch with its rows: `tensors` and `counts` by node type."""

    payload: Any
    tensors: Mapping[str, torch.Tensor]
    counts: Mapping[str, FetchCounts]


class ReadAhead(Iterator[ReadBatch]):
    """Hands out the mini-batches of `source` in their order, each with its rows.

    Parameters
    ----------
    source : iterator of ForeignBatch
    n_batches : int
        As many as `source` has.
    features : FeatureStore
        Not owned.
    window, prefetch : int
        As of :class:`gids.DataLoader`.
    in_thread : bool
        Whether `source` may run in a thread of its own. Without it, it runs in the consumer's thread, some
        mini-batches ahead: samplers whose random numbers belong to a thread then give what they always gave.
    """

    def __init__(
        self,
        source: Iterator[ForeignBatch],
        n_batches: int,
        features: FeatureStore,
        *,
        window: int,
        prefetch: int,
        in_thread: bool,
    ) -> None:
        self._source, self._left = source, 0 if in_thread else n_batches
        self._ahead = window + prefetch + 3  # as many as the pipeline can take before it hands one out
        self._fed = self._delivered = 0
        self._feed: Channel[ForeignBatch | Exception] = Channel(self._ahead)
        feed = self._feed  # not `self`: the pipeline's thread would keep a dropped iterator alive
        # The pipeline and the fetcher look at nothing of a mini-batch but its nodes.
        take: Callable[[int], Any] = (lambda _: next(source)) if in_thread else (lambda _: _taken(feed))
        self._pipeline = Pipeline(range(n_batches), take, Fetcher(features, OutputPool()), window, prefetch)

    def __next__(self) -> ReadBatch:
        self._run_ahead()
        prepared = self._pipeline.next()
        self._delivered += 1
        batch: Any = prepared.batch
        return ReadBatch(batch.payload, prepared.fetched.tensors, prepared.fetched.counts)

    def _run_ahead(self) -> None:
        while self._left and self._fed - self._delivered < self._ahead:
            try:
                batch = next(self._source)
            except Exception as error:  # raised after the mini-batches before it
                self._feed.put(error)
                self._left = 0
                return
            self._feed.put(batch)
            self._fed, self._left = self._fed + 1, self._left - 1

    def close(self) -> None:
        """Stop; calling it again does nothing."""
        self._feed.close()
        self._pipeline.close()

    def __del__(self) -> None:
        if hasattr(self, "_pipeline"):
            self.close()


def _taken(feed: Channel[ForeignBatch | Exception]) -> ForeignBatch:
    item = feed.get()
    if isinstance(item, Exception):
        raise item
    return item
