"""How a loader samples and reads: on the host, or on a GPU. What both give are the same mini-batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.fetch.accumulator import Accumulator, AccumulatorReport
from gids.fetch.cuda.ahead import ReadAhead
from gids.fetch.cuda.fetcher import GpuFetcher
from gids.fetch.cuda.grouping import Grouping
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.forecast import Forecast
from gids.fetch.foresight import Foresight, ForesightDepth
from gids.fetch.output_pool import OutputPool
from gids.fetch.window_size import WindowSize
from gids.graph.graph import Graph
from gids.loader.arguments import label_tensor
from gids.loader.minibatch import MiniBatch
from gids.loader.pipeline import Prepared, Stages
from gids.sampling.block import SampledBatch
from gids.sampling.cuda.sampler import CudaSampler, why_on_host
from gids.sampling.launch import Seeds
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch


class ReadPathKind(Enum):
    """Where mini-batches are sampled and their features looked up, read and gathered."""

    AUTO = "auto"
    HOST = "host"
    GPU = "gpu"


class ReadPath(ABC):
    """One of the two ways. Holds nothing of the loader, whose threads may outlive it."""

    @abstractmethod
    def stages(self, first_batch: int, n_batches: int, window: WindowSize) -> Stages:
        """For an iteration from `first_batch` on, of an epoch of `n_batches`."""

    @abstractmethod
    def sampler_path(self) -> str:
        """Where sampling really runs, for reports."""

    @abstractmethod
    def report(self) -> AccumulatorReport:
        """Of the latest iteration."""

    @abstractmethod
    def hand_out(self, prepared: Prepared) -> MiniBatch:
        """The mini-batch for the consumer, who calls this."""

    @abstractmethod
    def close(self) -> None:
        """Release what the loader does not own; calling it again does nothing."""


class HostPath(ReadPath):
    """Sampled by numba, read by the host; tensors are copied to `device` at the end.

    Parameters
    ----------
    graph : Graph
    sampler : NeighborSampler
    features : FeatureStore
    labels : mapping of str to array
    device : torch.device
    dtype : torch.dtype, optional
        Of the features that are handed out; by default as they are stored.
    accumulate_bytes : int
    peak_share : float
    foresight : ForesightDepth
    """

    def __init__(
        self,
        graph: Graph,
        sampler: NeighborSampler,
        features: FeatureStore,
        labels: Mapping[str, npt.NDArray[Any]],
        device: torch.device,
        dtype: torch.dtype | None,
        accumulate_bytes: int,
        peak_share: float,
        foresight: ForesightDepth,
    ) -> None:
        self._graph, self._sampler, self._features, self._labels = graph, sampler, features, labels
        self._device, self._dtype, self._foresight = device, dtype, foresight
        self._budget = accumulate_bytes, peak_share
        self._pool = OutputPool()
        self._accumulator = Accumulator(features.storage, *self._budget)

    def stages(self, first_batch: int, n_batches: int, window: WindowSize) -> Stages:
        self._accumulator = Accumulator(self._features.storage, *self._budget)
        tables, requests = self._features.tables, self._features.requests
        forecast = Forecast(tables, requests, n_batches - first_batch, n_batches)
        fetcher = Fetcher(self._features, self._pool, self._accumulator, forecast)
        graph, sampler = self._graph, self._sampler

        def sample(seeds: Seeds, epoch: int, batch: int) -> SampledBatch:
            return sampler.sample(graph, seeds, epoch=epoch, batch=batch)

        depth = self._foresight
        if depth.max_batches == 0:
            return Stages(sample, fetcher)
        return Stages(sample, fetcher, lambda batches: fetcher.look_beyond(Foresight(batches, depth)))

    def sampler_path(self) -> str:
        return "host"

    def report(self) -> AccumulatorReport:
        return self._accumulator.report()

    def hand_out(self, prepared: Prepared) -> MiniBatch:
        batch = prepared.batch
        assert isinstance(batch, SampledBatch)
        labels = {
            name: label_tensor(values[batch.output_nodes[name]]) for name, values in self._labels.items()
        }
        scales = scales_of(self._features)
        made = MiniBatch(batch, prepared.fetched.tensors, labels, prepared.fetched.counts, scales)
        made = made if self._dtype is None else made.as_dtype(self._dtype)
        return made if self._device.type == "cpu" else made.to(self._device)

    def close(self) -> None:
        self._pool.trim()


class GpuPath(ReadPath):
    """Sampled on a GPU, whose kernels ask for the pages they miss.

    Parameters
    ----------
    graph : Graph
    sampler : CudaSampler or NeighborSampler
        The latter samples on the host, where draws are shared.
    features : GpuFeatureStore
    labels : mapping of str to array
    dtype, accumulate_bytes, peak_share, foresight
        As of :class:`HostPath`.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: CudaSampler | NeighborSampler,
        features: GpuFeatureStore,
        labels: Mapping[str, npt.NDArray[Any]],
        dtype: torch.dtype | None,
        accumulate_bytes: int,
        peak_share: float,
        foresight: ForesightDepth,
    ) -> None:
        self._graph, self._sampler, self._features = graph, sampler, features
        self._labels = {
            name: torch.from_numpy(np.array(values)).to(features.device) for name, values in labels.items()
        }
        self._dtype, self._budget = dtype, (accumulate_bytes, peak_share)
        self._foresight = foresight
        self._ahead = ReadAhead(features.storage, *self._budget)
        self._ranges = features.streams()

    def stages(self, first_batch: int, n_batches: int, window: WindowSize) -> Stages:
        self._ahead = ReadAhead(self._features.storage, *self._budget)
        streams = self._features.streams()
        fetcher = GpuFetcher(
            self._features,
            streams,
            self._ahead,
            Grouping(
                self._features.storage,
                self._budget[0],
                self._features.n_pages,
                merges=self._features.merges and self._features.reads_files,
                begins_alone=self._features.mostly_kept,
            ),
            window,
            n_batches - first_batch,
            n_batches,
            self._foresight,
        )
        draw = self._drawing()

        def sample(seeds: Seeds, epoch: int, batch: int) -> TensorBatch:
            with streams.sampling("gids sample"):
                return draw(seeds, epoch, batch)

        return Stages(sample, fetcher, one_thread=isinstance(self._sampler, CudaSampler), paced=True)

    def _drawing(self) -> Callable[[Seeds, int, int], TensorBatch]:
        graph, sampler, device = self._graph, self._sampler, self._features.device
        if isinstance(sampler, CudaSampler):
            return lambda seeds, epoch, batch: sampler.sample(seeds, epoch=epoch, batch=batch)

        def on_host(seeds: Seeds, epoch: int, batch: int) -> TensorBatch:
            return TensorBatch.of(sampler.sample(graph, seeds, epoch=epoch, batch=batch)).to(device)

        return on_host

    def sampler_path(self) -> str:
        if isinstance(self._sampler, CudaSampler):
            return "gpu"
        return f"host, because {why_on_host(self._sampler)}"

    def report(self) -> AccumulatorReport:
        return self._ahead.report()

    def hand_out(self, prepared: Prepared) -> MiniBatch:
        with self._ranges.waiting("gids hand over"):
            return self._handed_out(prepared)

    def _handed_out(self, prepared: Prepared) -> MiniBatch:
        batch, features = prepared.batch, prepared.fetched.tensors
        assert isinstance(batch, TensorBatch)
        if self._features.device.type == "cuda":
            # Made on other streams, and all done: what is left is when their memory may be used again.
            stream = torch.cuda.current_stream(self._features.device)
            batch.record_stream(stream)
            for tensor in features.values():
                tensor.record_stream(stream)
        labels = {}
        for name, values in self._labels.items():
            found = values[batch.output_nodes[name]]
            as_they_are = found.dtype.is_floating_point or found.dtype == torch.bool
            labels[name] = found if as_they_are else found.long()
        batch = batch.as_loaded()
        made = MiniBatch(batch, features, labels, prepared.fetched.counts, scales_of(self._features))
        return made if self._dtype is None else made.as_dtype(self._dtype)

    def close(self) -> None: ...


def scales_of(features: FeatureStore | GpuFeatureStore) -> dict[str, torch.Tensor]:
    """Of int8 features."""
    found = {name: table.scale for name, table in features.tables.items()}
    return {name: scale for name, scale in found.items() if scale is not None}
