"""Loaders that sample, then index rows: of a memory map as DGL's users do, of a tuned one, or in memory."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from gids.bench.dgl_source import DglSource
from gids.bench.loaders.ahead import one_ahead
from gids.bench.loaders.base import BenchLoader, Deliveries, LoadedBatch, LoaderData, Work
from gids.bench.loaders.copy import row_copy
from gids.bench.loaders.mapped import (
    Rows,
    ThreadedTake,
    as_tensor,
    open_mapped,
    open_random_mapped,
    read_all,
)
from gids.bench.sources import BatchSource, RecordedSource, SampledSource
from gids.config.sections import RunConfig
from gids.fetch.counts import FetchCounts
from gids.sampling.block import SampledBatch


class PlainLoader(BenchLoader):
    """Samples a mini-batch, then copies the rows of its input nodes."""

    samples_with_dgl = True
    runs_ahead = False

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        self.way = row_copy(self.device, overlapped=self.runs_ahead)

    @abstractmethod
    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        """Feature rows of a node type, by row number."""

    def counts(self, batch: SampledBatch) -> dict[str, FetchCounts] | None:
        """Where the rows of a mini-batch came from; None: the kernel's page cache does not say."""
        return None

    def gather(self, batch: SampledBatch) -> dict[str, torch.Tensor]:
        """Features of the input nodes."""
        features = self.data.mapped_features
        return {name: self.rows(name, each.rows_of(batch.nodes[name])) for name, each in features.items()}

    def scales(self) -> dict[str, torch.Tensor]:
        """Scales of int8 rows."""
        scales = {name: each.scale for name, each in self.data.mapped_features.items()}
        given = {name: torch.from_numpy(scale) for name, scale in scales.items() if scale is not None}
        return {name: scale.to(self.device.device) for name, scale in given.items()}

    def source(self, work: Work) -> BatchSource:
        """Where mini-batches come from."""
        if work.recorded is not None:
            return RecordedSource(work.recorded)
        if self.samples_with_dgl and not work.same_batches:
            return DglSource(self.data.dataset.graph, work.plan, self.config.bench.dgl_workers)
        return SampledSource(self.data.dataset.graph, work.plan)

    def deliver(self, work: Work) -> Deliveries:
        return _PlainDeliveries(self, self.source(work))

    def warm_up(self, work: Work) -> None:
        """Samples only: a memory map read at a large read-ahead would fill the page cache."""
        next(self.source(work).batches(0), None)

    def close(self) -> None:
        """Memory and maps go with the object."""


class DglMmapLoader(PlainLoader):
    """`dgl-mmap`: DGL's sampler and loader, `torch.index_select` over `np.load(mmap_mode="r")`."""

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        features = data.mapped_features
        self._tensors = {name: as_tensor(open_mapped(each), each.dtype) for name, each in features.items()}

    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        return torch.index_select(self._tensors[name], 0, torch.from_numpy(rows))

    def describe(self) -> dict[str, Any]:
        loader = "torch.index_select over np.load(mmap_mode='r')"
        return {"loader": loader, "copy": self.way.describe()}


class DglMmapTunedLoader(PlainLoader):
    """`dgl-mmap-tuned`: MADV_RANDOM, many threads that touch pages, and the next mini-batch made ahead; for a
    GPU in pinned memory, and copied while it trains."""

    runs_ahead = True

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        self._mapped = {name: open_random_mapped(each) for name, each in data.mapped_features.items()}
        self._taker = ThreadedTake(config.bench.tuned_threads, self.way)

    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        return self._taker.take(self._mapped[name], rows, self.data.mapped_features[name].dtype)

    def describe(self) -> dict[str, Any]:
        threads = self.config.bench.tuned_threads
        loader = f"np.take over mmap with MADV_RANDOM by {threads} threads, one mini-batch ahead"
        return {"loader": loader, "copy": self.way.describe()}

    def close(self) -> None:
        self._taker.close()


class InMemoryLoader(PlainLoader):
    """`in-memory`: all features in memory, the upper bound; samples with `gids`, reuses output memory.

    For a GPU the next mini-batch is gathered and copied ahead.
    """

    holds_features = True
    samples_with_dgl = False

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        self.runs_ahead = config.loader.device != "cpu"
        super().__init__(data, config)
        self._tensors = {name: read_all(each) for name, each in data.mapped_features.items()}

    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        table = self._tensors[name]
        out = self.way.empty(len(rows), tuple(table.shape[1:]), table.dtype)
        return torch.index_select(table, 0, torch.from_numpy(rows), out=out)

    def counts(self, batch: SampledBatch) -> dict[str, FetchCounts]:
        return {name: FetchCounts.of(len(batch.nodes[name])) for name in self._tensors}

    def describe(self) -> dict[str, Any]:
        return {"loader": "torch.index_select of tensors in memory", "copy": self.way.describe()}


class OnDeviceLoader(PlainLoader):
    """`on-device`: all features in the memory of the training device, the other upper bound."""

    holds_features = True
    samples_with_dgl = False

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        mapped, device = data.mapped_features, self.device.device
        self._tensors = {name: read_all(each).to(device) for name, each in mapped.items()}

    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        places = torch.from_numpy(rows).to(self.device.device, non_blocking=True)
        return torch.index_select(self._tensors[name], 0, places)

    def counts(self, batch: SampledBatch) -> dict[str, FetchCounts]:
        return {name: FetchCounts.of(len(batch.nodes[name])) for name in self._tensors}

    def describe(self) -> dict[str, Any]:
        return {"loader": f"torch.index_select of tensors on {self.device.name}", "copy": "none"}


class _PlainDeliveries(Deliveries):
    def __init__(self, owner: PlainLoader, source: BatchSource) -> None:
        self._owner, self._source = owner, source
        self.resumes = source.resumes
        self._scales = owner.scales()

    def __len__(self) -> int:
        return len(self._source)

    def settings(self) -> dict[str, Any]:
        return self._source.settings()

    def epoch(self, epoch: int, first: int = 0) -> Iterator[LoadedBatch]:
        if self._owner.runs_ahead:
            return one_ahead(lambda: self._made(epoch, first))
        return self._made(epoch, first)

    def _made(self, epoch: int, first: int) -> Iterator[LoadedBatch]:
        batches = self._source.batches(epoch, first)
        made = self._next(batches)
        while made:
            yield made.pop()  # nothing here keeps its features while the next mini-batch is made
            made = self._next(batches)

    def _next(self, batches: Iterator[SampledBatch]) -> list[LoadedBatch]:
        """The next mini-batch in a list, from which the caller takes it; empty at the end."""
        begin, adapted = time.perf_counter(), self._source.adapt_s
        batch = next(batches, None)
        if batch is None:
            return []
        sampled, adapt_s = time.perf_counter(), self._source.adapt_s - adapted
        features = self._owner.gather(batch)
        gathered = time.perf_counter()
        features, moved = self._owner.way.copy(features), self._owner.way.move(batch)
        done = time.perf_counter()
        loaded = LoadedBatch(
            moved,
            features,
            self._owner.labels_of(batch),
            self._scales,
            sample_s=sampled - begin - adapt_s,
            feature_wait_s=gathered - sampled,
            adapt_s=adapt_s,
            copy_s=done - gathered,
            counts=self._owner.counts(batch),
        )
        return [loaded]

    def close(self) -> None:
        """Iterators that are dropped stop by themselves."""
