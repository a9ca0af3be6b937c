"""`gids.DataLoader`."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import numpy.typing as npt
import torch

import bam
from bam.errors import ClosedError, ConfigError
from gids.fetch.counts import FetchCounts, merged
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.device_model import PEAK_SHARE, USUAL_SSD, SsdFacts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.foresight import parse_foresight
from gids.fetch.open import FeatureSettings
from gids.fetch.window_size import parse_window
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.loader.arguments import (
    Rows,
    at_least,
    checked_labels,
    required,
    usable_device,
)
from gids.loader.cache_report import CacheReport
from gids.loader.continued import BatchName, Continued, batch_names
from gids.loader.metrics import LoaderMetrics, LoaderTimes
from gids.loader.minibatch import MiniBatch
from gids.loader.open_path import PathRequest, open_path
from gids.loader.pipeline import AnyBatch, Pipeline, Prepared
from gids.sampling.cuda.sampler import CudaSampler
from gids.sampling.launch import Seeds
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

STATE_VERSION = 1
#: Mini-batches whose counts are added up later.
_MOST_COUNTED = 64


class DataLoader:
    """Mini-batches with their features, in the place of a PyTorch, DGL or PyG loader.

    Sampling and reading run in two threads ahead of the consumer. Mini-batches depend on `seed`, the epoch
    and their number alone: not on `window`, `cache`, `cpu_buffer`, the engine, the speed of any thread, or on
    where an interrupted epoch was taken up again. Every seed comes exactly once an epoch.

    Parameters
    ----------
    graph : Graph or Dataset
        A data set (see `gids.open_dataset`) brings its features along.
    indices : mapping of str to integers, or integers
        Seeds of each type; an array where the graph has one node type.
    sampler : NeighborSampler or CudaSampler
        The latter for a loader that reads on a GPU, which else makes one.
    batch_size : int
        Seeds of a mini-batch.
    shuffle, drop_last : bool
        As in PyTorch's loader.
    features : mapping of str to rows, or FeatureStore, optional
        Rows of each node type: a virtual array, an array or CPU tensor in memory. Node types without rows
        have no features. A `FeatureStore` or `GpuFeatureStore` can be shared by several loaders. Default: the
        data set's.
    labels : mapping of str to array, or str, optional
        Labels of each node type; or the name of one of the data set's tasks.
    device : str or torch.device
        Where the tensors of a mini-batch are handed out. On a GPU, its kernels sample, look pages up in a
        cache in the GPU's memory and ask for those they miss; nodes and blocks are tensors there, too.
    read_path : str
        ``"auto"``: as `device` says; ``"host"``: sample and read on the host all the same, and copy at the
        end; ``"gpu"``: on the GPU, or raise.
    dtype : torch.dtype, optional
        Of the features that are handed out; scales of int8 rows are multiplied in. Default: as stored.
    cache : int, str or float
        Page cache for stored features: bytes, ``"512MiB"``, or a share of the features (``0.1``, ``"10%"``).
        ``"auto"``: a quarter of the memory that is available, at most all features. On a GPU it is of the
        GPU's memory: ``"auto"`` takes half of what is free.
    cpu_buffer : int, str or float
        Constant buffer, likewise; 0 for none. It is filled while training runs. A GPU reads it in place, in
        pinned memory.
    gpu_buffer : int, str or float
        Constant rows in the GPU's memory, the hottest of all, likewise.
    graph_bytes : int or str, optional
        See :class:`gids.CudaSampler`.
    gpu : bam.GpuSettings, optional
        Queues, staging memory and threads of the read path on a GPU.
    window : int or str
        Mini-batches that are sampled ahead, so that the cache knows what they will need; 0 for none. As text:
        as many as ask for that many bytes (``"256MiB"``), or ``"auto"``: for eight times the cache, 4 to 32.
    foresight : int or str
        Mini-batches beyond those that are sampled, 0 to 64, of which the cache knows the pages: they are
        sampled twice, or, on a GPU, wait. ``"auto"``: as many as ask for four times the cache; none without a
        window.
    cross_epochs : bool
        When the last mini-batches of an epoch are handed out, the first of the next one are sampled and in
        the window already. Else an epoch ends with nothing under way.
    prefetch : int
        Mini-batches that are read ahead and wait, at least 1. Each takes the memory of its features.
    seed : int
        Of shuffling. The sampler has its own.
    rank, world_size : int
        This process's part of the seeds.
    accumulate : int or str
        Bytes of features that may be read together, so that storage always has enough reads under way and
        near pages become one read; 0: each mini-batch is read alone. ``"auto"``: a sixteenth of the memory
        that is available, at most 256 MiB, on a GPU 8 GiB. Up to twice as much is in memory at a time.
    contiguous : bool
        Merge pages that lie near each other into longer reads, as far as `gids calibrate` found that to pay.
    ssd : SsdFacts, optional
        What the storage can do, in place of what `gids calibrate` measured.
    calibration : str
        Folder where `gids calibrate` left what it measured; empty: the data set's own.
    bulk : BulkSettings, str or None
        How constant rows are read where they follow each other, as in a hot-first store: ``"auto"``, as `gids
        calibrate` measured it to be best; a :class:`bam.BulkSettings`; None, as other rows are read.
    peak_share : float
        Share of the storage's peak that reads under way are to reach.
    engine, page_bytes, policy, queue_depth : optional
        See :func:`bam.open_array`; the policy is ``look_ahead_global`` unless `window` is 0.

    Raises
    ------
    ConfigError, UnknownNodeType, NodeOutOfRange
        Before any work.
    GpuMemoryExceeded
        What is to be held on the GPU does not fit; names what to lower.
    bam.errors.EngineUnavailable
        A GPU is asked for, and CuPy, NVRTC or the GPU is missing.
    """

    def __init__(
        self,
        graph: Graph | Dataset,
        indices: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        sampler: NeighborSampler | CudaSampler,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        features: Mapping[str, Rows] | FeatureStore | GpuFeatureStore | None = None,
        labels: Mapping[str, npt.ArrayLike] | str | None = None,
        device: torch.device | str = "cpu",
        read_path: str = "auto",
        dtype: torch.dtype | None = None,
        cache: int | str | float = "auto",
        cpu_buffer: int | str | float = 0,
        gpu_buffer: int | str | float = 0,
        graph_bytes: int | str | None = None,
        gpu: bam.GpuSettings | None = None,
        window: int | str = 8,
        foresight: int | str = "auto",
        cross_epochs: bool = False,
        prefetch: int = 1,
        accumulate: int | str = "auto",
        contiguous: bool = True,
        ssd: SsdFacts | None = None,
        calibration: str = "",
        bulk: bam.BulkSettings | str | None = "auto",
        peak_share: float = PEAK_SHARE,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        engine: str = "auto",
        page_bytes: int = 4096,
        policy: str | None = None,
        queue_depth: int = 256,
    ) -> None:
        dataset = graph if isinstance(graph, Dataset) else None
        self.graph = required("graph", graph.graph if isinstance(graph, Dataset) else graph, Graph)
        drawn = sampler.sampler if isinstance(sampler, CudaSampler) else sampler
        self.sampler = required("sampler", drawn, NeighborSampler)
        self.sampler.check(self.graph)
        parse_window(window, 0)  # raises, before any work
        parse_foresight(foresight, 0)
        self.window, self.prefetch = window, at_least("prefetch", prefetch, 1)
        self.device = usable_device(device)
        self._seeds = SeedBatches(
            indices,
            self.graph.schema,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            seed=seed,
            rank=rank,
            world_size=world_size,
        )
        settings = FeatureSettings(
            cache=cache,
            cpu_buffer=cpu_buffer,
            engine=engine,
            page_bytes=page_bytes,
            policy=policy or ("look_ahead_global" if window else "clock"),
            queue_depth=queue_depth,
            contiguous=contiguous,
            ssd=ssd,
            calibration=calibration,
            bulk=bulk,
        )
        (ssd or USUAL_SSD).reads_needed(peak_share)  # raises where no share is given
        request = PathRequest(
            graph=self.graph,
            sampler=sampler,
            given=dataset if features is None else features,
            labels=checked_labels(labels, dataset, self.graph.schema),
            seeds=self._seeds,
            device=self.device,
            kind=read_path,
            dtype=dtype,
            settings=settings,
            gpu_buffer=gpu_buffer,
            graph_bytes=graph_bytes,
            gpu=gpu,
            accumulate=accumulate,
            peak_share=peak_share,
            prefetch=self.prefetch,
            foresight=foresight if window else 0,
            window=window,
        )
        self._owns_features = not isinstance(features, FeatureStore | GpuFeatureStore)
        opened = open_path(request)
        self.features, self._path = opened.features, opened.path
        self._window = parse_window(window, self.features.cache_bytes)
        self._crosses = bool(cross_epochs) and len(self._seeds) > 0
        self._continued: Continued | None = None
        self._epoch, self._first_batch = 0, 0
        self._delivered = 0  # of that epoch, by the iterator that was asked last
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._closed = False
        self._metrics = LoaderMetrics(0, 0.0, 0.0, 0.0, 0, {}, {})
        self._counted: list[Mapping[str, FetchCounts]] = []  # of mini-batches that are not in it yet

    def __len__(self) -> int:
        """Mini-batches of an epoch, for this rank."""
        return len(self._seeds)

    def __iter__(self) -> LoaderIterator:
        """Mini-batches of the next epoch, or of the rest of the one that was loaded."""
        if self._closed:
            raise ClosedError("loader")
        iterator = LoaderIterator(self, self._epoch, self._first_batch)
        self._first_batch, self._delivered = 0, self._first_batch
        self._iterators.add(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its start."""
        self._epoch, self._first_batch, self._delivered = at_least("epoch", epoch, 0), 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: mini-batches handed out count, those under way do not. Plain JSON types.

        It may be taken in the loop or after it was left by `break`.
        """
        return {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "batch": self._first_batch or self._delivered,
            "seeds": self._seeds.settings(),
            "sampler": self._sampler_settings(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on where `state` was taken.

        Raises
        ------
        ConfigError
            It is of a loader with other seeds or settings, whose mini-batches would not be the same.
        """
        if state.get("version") != STATE_VERSION:
            raise ConfigError("state['version']", state.get("version"), str(STATE_VERSION))
        for key in ("epoch", "batch", "seeds", "sampler"):
            if key not in state:
                raise ConfigError("state", list(state), f"what state_dict() gave; {key!r} is missing")
        for part, mine in (("seeds", self._seeds.settings()), ("sampler", self._sampler_settings())):
            for key, value in mine.items():
                if state[part].get(key) != value:
                    raise ConfigError(f"state[{part!r}][{key!r}]", state[part].get(key), repr(value))
        batch = int(state["batch"])
        if not 0 <= batch <= len(self):
            raise ConfigError("state['batch']", batch, f"at most {len(self)}")
        self._epoch = int(state["epoch"]) + (1 if len(self) and batch == len(self) else 0)
        self._first_batch, self._delivered = 0 if batch == len(self) else batch, 0
        for iterator in list(self._iterators):
            iterator.close()
        self._end_continued()

    def times(self) -> LoaderTimes:
        """The clocks of :meth:`metrics` alone."""
        now = self._metrics
        return LoaderTimes(now.batches, now.sample_s, now.plan_s, now.fetch_s, now.wait_s)

    def metrics(self) -> LoaderMetrics:
        """What was handed out so far, and what it took."""
        self._add_counts()
        metrics = self._metrics
        return LoaderMetrics(
            metrics.batches,
            metrics.sample_s,
            metrics.fetch_s,
            metrics.wait_s,
            metrics.edges,
            metrics.counts,
            self.features.describe(),
            self._path.report(),
            self._path.sampler_path(),
            metrics.plan_s,
        )

    def cache_report(self, dataset: str = "", optimal_pages: int | None = None) -> CacheReport:
        """The same as a report: tables, JSON, curves; `gids.loader.cache_report_text` puts it into words.

        Parameters
        ----------
        dataset : str
            What to call the data set.
        optimal_pages : int, optional
            Pages that Belady's optimum reads, where it was worked out (`gids.bench.belady_gap`).
        """
        return CacheReport.of(self.metrics(), dataset, optimal_pages)

    def close(self) -> None:
        """Stop all iterations, and close the features unless they were given; may be called again."""
        self._closed = True
        for iterator in list(self._iterators):
            iterator.close()
        self._end_continued()
        if self._owns_features:
            self.features.close()
        self._path.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What the iterators use

    def _pipeline(self, epoch: int, first_batch: int) -> Pipeline:
        """The one that runs on from the epoch before, or a new one."""
        continued, self._continued = self._continued, None
        if continued is not None:
            if (continued.epoch, 0) == (epoch, first_batch):
                continued.keeper.detach()
                return continued.pipeline
            continued.keeper()
        names, again = (batch_names(epoch, first_batch, len(self), self._crosses) for _ in range(2))
        stages = self._path.stages(first_batch, len(self), self._window)
        sample = partial(_sample_batch, self._seeds, stages.sample)
        if stages.look_beyond is not None:
            stages.look_beyond(map(sample, again))
        return Pipeline(
            names, sample, stages.fetcher, self._window, self.prefetch, stages.one_thread, stages.paced
        )

    def _continue(self, epoch: int, pipeline: Pipeline) -> None:
        """The pipeline goes on with this epoch; closed with the loader if nobody asks for it."""
        self._end_continued()
        self._continued = Continued(epoch, pipeline, weakref.finalize(self, pipeline.close))

    def _end_continued(self) -> None:
        continued, self._continued = self._continued, None
        if continued is not None:
            continued.keeper()

    def _hand_out(self, prepared: Prepared, wait_s: float) -> MiniBatch:
        batch, metrics = prepared.batch, self._metrics
        self._metrics = LoaderMetrics(
            metrics.batches + 1,
            metrics.sample_s + prepared.sample_s,
            metrics.fetch_s + prepared.fetch_s,
            metrics.wait_s + wait_s,
            metrics.edges + batch.num_edges,
            metrics.counts,
            {},
            plan_s=metrics.plan_s + prepared.plan_s,
        )
        self._counted.append(prepared.fetched.counts)
        if len(self._counted) == _MOST_COUNTED:
            self._add_counts()
        return self._path.hand_out(prepared)

    def _add_counts(self) -> None:
        # Not at every mini-batch: adding up takes longer than handing one out.
        counted, self._counted = self._counted, []
        counts = self._metrics.counts
        for each in counted:
            counts = merged(counts, each)
        self._metrics = replace(self._metrics, counts=counts)

    def _sampler_settings(self) -> dict[str, Any]:
        sampler = self.sampler
        text = repr((sampler.layers, sampler.replace, sampler.resample))
        if sampler.shared is not None:
            text += repr(sampler.shared)
        return {"seed": sampler.seed, "settings": hashlib.sha256(text.encode()).hexdigest()[:16]}


class LoaderIterator(Iterator[MiniBatch]):
    """Mini-batches of one epoch from `next_batch` on. Closes itself at the end, and when it is dropped."""

    def __init__(self, loader: DataLoader, epoch: int, first_batch: int) -> None:
        self._loader, self.epoch, self.next_batch = loader, epoch, first_batch
        self.finished = False
        self._pipeline = loader._pipeline(epoch, first_batch)
        # A loop that is left by `break` drops the iterator; its threads must not outlive it.
        self._finalizer = weakref.finalize(self, self._pipeline.close)

    def __next__(self) -> MiniBatch:
        begin = time.perf_counter()
        if self._loader._crosses and self.next_batch == len(self._loader):
            self._finish()
            raise StopIteration
        try:
            prepared = self._pipeline.next()
        except StopIteration:
            self._finish()
            raise
        self.next_batch += 1
        if self._loader._epoch == self.epoch:
            self._loader._delivered = self.next_batch
        return self._loader._hand_out(prepared, time.perf_counter() - begin)

    def _finish(self) -> None:
        if not self.finished:
            self.finished = True
            if self._loader._epoch == self.epoch:
                self._loader._epoch, self._loader._delivered = self.epoch + 1, 0
                if self._loader._crosses and self._finalizer.detach() is not None:
                    self._loader._continue(self.epoch + 1, self._pipeline)
        self.close()

    def close(self) -> None:
        """Stop sampling and reading; calling it again does nothing."""
        self._finalizer()


def _sample_batch(
    seeds: SeedBatches, sample: Callable[[Seeds, int, int], AnyBatch], name: BatchName
) -> AnyBatch:
    """Not a method: a pipeline that goes on after an epoch must not keep its loader alive."""
    found = seeds.batch(name.epoch, name.number)
    return sample(found.nodes, name.epoch, found.number)
