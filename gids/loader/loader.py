"""`gids.DataLoader`."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

import bam
from bam.errors import ClosedError, ConfigError
from gids.errors import UnknownNodeType
from gids.fetch.accumulator import Accumulator, accumulate_bytes
from gids.fetch.counts import merged
from gids.fetch.device_model import PEAK_SHARE, USUAL_SSD, SsdFacts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.forecast import Forecast
from gids.fetch.open import FeatureSettings, open_features
from gids.fetch.output_pool import OutputPool
from gids.fetch.storage_model import storage_model
from gids.fetch.table import FeatureTable, as_table
from gids.fetch.window_size import parse_window
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.loader.cache_report import CacheReport
from gids.loader.continued import BatchName, Continued, batch_names
from gids.loader.metrics import LoaderMetrics
from gids.loader.minibatch import MiniBatch
from gids.loader.pipeline import Pipeline, Prepared
from gids.sampling.block import SampledBatch
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

Rows = FeatureTable | bam.VirtualArray | torch.Tensor | npt.NDArray[Any]

Kind = TypeVar("Kind")

STATE_VERSION = 1


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
    sampler : NeighborSampler
    batch_size : int
        Seeds of a mini-batch.
    shuffle, drop_last : bool
        As in PyTorch's loader.
    features : mapping of str to rows, or FeatureStore, optional
        Rows of each node type: a virtual array, an array or CPU tensor in memory. Node types without rows
        have no features. A `FeatureStore` can be shared by several loaders. Default: the data set's.
    labels : mapping of str to array, or str, optional
        Labels of each node type; or the name of one of the data set's tasks.
    device : str or torch.device
        Where the tensors of a mini-batch are handed out.
    cache : int, str or float
        Page cache for stored features: bytes, ``"512MiB"``, or a share of the features (``0.1``, ``"10%"``).
        ``"auto"``: a quarter of the memory that is available, at most all features.
    cpu_buffer : int, str or float
        Constant buffer, likewise; 0 for none. It is filled while training runs.
    window : int or str
        Mini-batches that are sampled ahead, so that the cache knows what they will need; 0 for none. As text:
        as many as ask for that many bytes (``"256MiB"``), or ``"auto"``: for eight times the cache, 4 to 32.
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
        that is available, at most 256 MiB. Up to twice as much is in memory at a time.
    contiguous : bool
        Merge pages that lie near each other into longer reads, as far as `gids calibrate` found that to pay.
    ssd : SsdFacts, optional
        What the storage can do, in place of what `gids calibrate` measured.
    calibration : str
        Folder where `gids calibrate` left what it measured; empty: the data set's own.
    peak_share : float
        Share of the storage's peak that reads under way are to reach.
    engine, page_bytes, policy, queue_depth : optional
        See :func:`bam.open_array`; the policy is ``look_ahead_global`` unless `window` is 0.

    Raises
    ------
    ConfigError, UnknownNodeType, NodeOutOfRange
        Before any work.
    """

    def __init__(
        self,
        graph: Graph | Dataset,
        indices: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        sampler: NeighborSampler,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        features: Mapping[str, Rows] | FeatureStore | None = None,
        labels: Mapping[str, npt.ArrayLike] | str | None = None,
        device: torch.device | str = "cpu",
        cache: int | str | float = "auto",
        cpu_buffer: int | str | float = 0,
        window: int | str = 8,
        cross_epochs: bool = False,
        prefetch: int = 1,
        accumulate: int | str = "auto",
        contiguous: bool = True,
        ssd: SsdFacts | None = None,
        calibration: str = "",
        peak_share: float = PEAK_SHARE,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        engine: str = "auto",
        page_bytes: int = 4096,
        policy: str | None = None,
        queue_depth: int = 256,
    ) -> None:
        self._dataset = graph if isinstance(graph, Dataset) else None
        self.graph = _required("graph", graph.graph if isinstance(graph, Dataset) else graph, Graph)
        self.sampler = _required("sampler", sampler, NeighborSampler)
        sampler.check(self.graph)
        parse_window(window, 0)  # raises, before any work
        self.window, self.prefetch = window, _at_least("prefetch", prefetch, 1)
        self.device = _usable_device(device)
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
        self._labels = self._checked_labels(labels)
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
        )
        self._accumulate_bytes = accumulate_bytes(accumulate)
        self._peak_share = peak_share
        (ssd or USUAL_SSD).reads_needed(peak_share)  # raises where no share is given
        self._owns_features = not isinstance(features, FeatureStore)
        self.features = self._open_features(features, settings)
        self._window = parse_window(window, self.features.cache_bytes)
        self._crosses = bool(cross_epochs) and len(self._seeds) > 0
        self._continued: Continued | None = None
        self._pool = OutputPool()
        self._epoch, self._first_batch = 0, 0
        self._delivered = 0  # of that epoch, by the iterator that was asked last
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()
        self._closed = False
        self._metrics = LoaderMetrics(0, 0.0, 0.0, 0.0, 0, {}, {})
        self._accumulator = self._new_accumulator()

    def _open_features(
        self, features: Mapping[str, Rows] | FeatureStore | None, settings: FeatureSettings
    ) -> FeatureStore:
        if isinstance(features, FeatureStore):
            store = features
        elif features is None:
            store = open_features(self._dataset, settings)
        else:
            tables = {name: as_table(name, rows) for name, rows in features.items()}
            model = storage_model(
                None,
                settings.page_bytes,
                contiguous=settings.contiguous,
                ssd=settings.ssd,
                calibration=settings.calibration,
            )
            store = FeatureStore(tables, storage=model)
        for name, table in store.tables.items():
            index = self.graph.schema.node_type_index(name)  # raises where there is no such type
            expected = self.graph.schema.num_nodes[self.graph.schema.node_types[index]]
            if table.n_rows != expected:
                raise ConfigError(
                    f"features[{name!r}]", f"{table.n_rows} rows", f"{expected}, one for each node"
                )
        return store

    def _checked_labels(
        self, labels: Mapping[str, npt.ArrayLike] | str | None
    ) -> dict[str, npt.NDArray[Any]]:
        if isinstance(labels, str):
            tasks = {} if self._dataset is None else self._dataset.tasks
            if labels not in tasks:
                known = ", ".join(map(repr, tasks)) or "none: give a mapping of node types to arrays"
                raise ConfigError("labels", labels, f"a task of the data set ({known})")
            labels = {tasks[labels].node_type: tasks[labels].labels}
        checked = {}
        for name, values in (labels or {}).items():
            if name not in self.graph.schema.num_nodes:
                raise UnknownNodeType(name, self.graph.schema.num_nodes)
            array = np.asarray(values)
            if len(array) != self.graph.schema.num_nodes[name]:
                expected = f"{self.graph.schema.num_nodes[name]}, one for each node"
                raise ConfigError(f"labels[{name!r}]", f"{len(array)} labels", expected)
            checked[name] = array
        return checked

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
        self._epoch, self._first_batch, self._delivered = _at_least("epoch", epoch, 0), 0, 0

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

    def metrics(self) -> LoaderMetrics:
        """What was handed out so far, and what it took."""
        metrics = self._metrics
        return LoaderMetrics(
            metrics.batches,
            metrics.sample_s,
            metrics.fetch_s,
            metrics.wait_s,
            metrics.edges,
            metrics.counts,
            self.features.describe(),
            self._accumulator.report(),
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
        self._pool.trim()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What the iterators use

    def _new_accumulator(self) -> Accumulator:
        return Accumulator(self.features.storage, self._accumulate_bytes, self._peak_share)

    def _fetcher(self, first_batch: int) -> Fetcher:
        self._accumulator = self._new_accumulator()
        forecast = Forecast(self.features.tables, self.features.requests, len(self) - first_batch, len(self))
        return Fetcher(self.features, self._pool, self._accumulator, forecast)

    def _pipeline(self, epoch: int, first_batch: int) -> Pipeline:
        """The one that runs on from the epoch before, or a new one."""
        continued, self._continued = self._continued, None
        if continued is not None:
            if (continued.epoch, 0) == (epoch, first_batch):
                continued.keeper.detach()
                return continued.pipeline
            continued.keeper()
        names = batch_names(epoch, first_batch, len(self), self._crosses)
        sample = partial(_sample_batch, self.graph, self._seeds, self.sampler)
        return Pipeline(names, sample, self._fetcher(first_batch), self._window, self.prefetch)

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
            merged(metrics.counts, prepared.fetched.counts),
            {},
        )
        labels = {
            name: _label_tensor(values[batch.output_nodes[name]]) for name, values in self._labels.items()
        }
        scales = {
            name: table.scale for name, table in self.features.tables.items() if table.scale is not None
        }
        made = MiniBatch(batch, prepared.fetched.tensors, labels, prepared.fetched.counts, scales)
        return made if self.device.type == "cpu" else made.to(self.device)

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
    graph: Graph, seeds: SeedBatches, sampler: NeighborSampler, name: BatchName
) -> SampledBatch:
    """Not a method: a pipeline that goes on after an epoch must not keep its loader alive."""
    found = seeds.batch(name.epoch, name.number)
    return sampler.sample(graph, found.nodes, epoch=name.epoch, batch=found.number)


def _required(name: str, value: Any, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise ConfigError(name, type(value).__name__, f"a {kind.__name__}")
    return value


def _at_least(name: str, value: int, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise ConfigError(name, value, f"a whole number from {low} on")
    return int(value)


def _label_tensor(labels: npt.NDArray[Any]) -> torch.Tensor:
    """Class numbers as int64, which PyTorch's losses take; other labels as they are."""
    return torch.from_numpy(labels.astype(np.int64) if labels.dtype.kind in "iu" else labels)


def _usable_device(device: torch.device | str) -> torch.device:
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError("device", str(device), f"a device this PyTorch can use ({error})") from error
    return found
