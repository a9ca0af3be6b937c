"""`NeighborLoader` with PyG's signature over our sampler, stores and read-ahead."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler

from bam.errors import ConfigError
from gids.adapters.pyg_graph import graph_of
from gids.adapters.pyg_sampler import NumNeighbors, Sampler, nodes_of
from gids.adapters.pyg_stores import StoreFeatures, StoreGraph, Stores, X, Y, open_stores
from gids.adapters.read_ahead import ForeignBatch, ReadAhead, ReadBatch
from gids.adapters.rows import as_numbers
from gids.fetch.counts import FetchCounts, merged
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.loader.arguments import Rows, open_rows

logger = logging.getLogger(__name__)

#: Of PyTorch's loader: about worker processes, in whose place sampling and reading have threads.
_WORKER_SETTINGS = (
    *("num_workers", "persistent_workers", "prefetch_factor"),
    *("multiprocessing_context", "worker_init_fn", "timeout"),
)


class NeighborLoader(NodeLoader):  # type: ignore[misc]  # PyG has no types
    """In the place of `torch_geometric.loader.NeighborLoader`; needs neither pyg-lib nor torch-sparse.

    Mini-batches have what PyG's have. Sampling runs in a thread, and rows that lie in files are read ahead
    of the training loop, so `num_workers` and its like are taken and not used.

    Parameters
    ----------
    data : Data, HeteroData, (FeatureStore, GraphStore) or Dataset
        Of a data set of ours, or its pair from :func:`gids.pyg.open_stores`, features stay in files.
    num_neighbors, input_nodes, input_time, replace, transform, transform_sampler_output
        As in PyG.
    neighbor_sampler : BaseSampler, optional
        Samples in the place of ours. It runs in the thread that iterates, some mini-batches ahead, so that
        its random numbers are those it always had.
    subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr, directed
        Only PyG's defaults; others need a `neighbor_sampler` of PyG's.
    is_sorted, filter_per_worker
        Taken, and without effect.
    features : mapping of str to rows, optional
        Rows that become ``x`` of each node type in addition to what `data` holds: virtual arrays, memory
        maps. A single value where the graph is homogeneous.
    labels, dtype
        With a `Dataset`; see :func:`gids.pyg.open_stores`.
    window, prefetch, cache, cpu_buffer, engine
        See :class:`gids.DataLoader`.
    seed : int, optional
        Of our sampler; default: PyTorch's (`torch.manual_seed`).
    **kwargs
        Of PyTorch's loader: batch_size, shuffle, drop_last, sampler, batch_sampler, generator, pin_memory.

    Raises
    ------
    ConfigError, GraphError, UnknownNodeType
        Before any work.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: NumNeighbors,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[..., Any] | None = None,
        transform_sampler_output: Callable[..., Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: BaseSampler | None = None,
        directed: bool = True,
        *,
        features: Mapping[str, Rows] | Rows | None = None,
        labels: str | None = None,
        dtype: torch.dtype | None = None,
        window: int = 8,
        prefetch: int = 1,
        cache: int | str | float = "auto",
        cpu_buffer: int | str | float = 0,
        engine: str = "auto",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if neighbor_sampler is None:
            _refuse_unsupported(subgraph_type, disjoint, temporal_strategy, time_attr, weight_attr, directed)
        self._owned: list[Any] = []
        settings = {"cache": cache, "cpu_buffer": cpu_buffer, "engine": engine}
        data, graph = self._opened(data, labels, dtype, settings)
        self._rows = self._rows_of(data, graph, features, settings)
        self._dtype, self._window, self._prefetch = dtype, window, prefetch
        self._user_transform, self._epoch = transform, 0
        self._transform_output = transform_sampler_output
        self._read: ReadBatch | None = None
        self._samples_here = neighbor_sampler is not None
        self._counts: dict[str, FetchCounts] = {}
        self._running: weakref.WeakSet[ReadAhead] = weakref.WeakSet()
        ignored = [name for name in _WORKER_SETTINGS if kwargs.pop(name, None)]
        if ignored:
            logger.info("%s: not used; sampling and reading run in threads", ", ".join(ignored))
        self._pin = bool(kwargs.pop("pin_memory", False)) and torch.cuda.is_available()
        self.data: Any
        super().__init__(
            data,
            neighbor_sampler or Sampler(graph, num_neighbors, replace=replace, seed=seed),
            input_nodes=input_nodes,
            input_time=input_time,
            transform=self._finished,
            filter_per_worker=False,
            **kwargs,
        )
        self._homogeneous_type = graph.schema.node_types[0]

    def _opened(
        self, data: Any, labels: str | None, dtype: torch.dtype | None, settings: Mapping[str, Any]
    ) -> tuple[Any, Graph]:
        if isinstance(data, Dataset):
            data = open_stores(data, labels=labels, dtype=dtype, **settings)
            self._owned.append(data)
        if isinstance(data, Stores):
            data = tuple(data)
        if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], StoreGraph):
            return data, data[1].graph
        return data, graph_of(data)

    def _rows_of(
        self,
        data: Any,
        graph: Graph,
        features: Mapping[str, Rows] | Rows | None,
        settings: Mapping[str, Any],
    ) -> FeatureStore:
        if features is None and isinstance(data, tuple) and isinstance(data[0], StoreFeatures):
            store: FeatureStore = data[0].rows
            return store
        if features is not None and not isinstance(features, Mapping):
            if len(graph.schema.node_types) != 1:
                raise ConfigError("features", type(features).__name__, "a mapping from node types")
            features = {graph.schema.node_types[0]: features}
        opened = open_rows(features, graph.schema, FeatureSettings(**settings))
        if not isinstance(features, FeatureStore):
            self._owned.append(opened)
        return opened

    def __iter__(self) -> Iterator[Any]:
        # As PyTorch's iterator does, so that a seeded script goes on with the numbers it always had.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        indices = iter(self._index_sampler)
        # The first here: that is when a shuffling sampler takes its seed from PyTorch's generator.
        first = list(itertools.islice(indices, 1))
        ahead = ReadAhead(
            self._sampled(self._epoch, itertools.chain(first, indices)),
            len(self),
            self._rows,
            window=self._window,
            prefetch=self._prefetch,
            in_thread=not self._samples_here,
        )
        self._epoch += 1
        self._running.add(ahead)
        return self._assembled(ahead)

    def _sampled(self, epoch: int, indices: Iterable[Any]) -> Iterator[ForeignBatch]:
        sampler = self.node_sampler
        for number, index in enumerate(indices):
            inputs = self.input_data[index]
            if isinstance(sampler, Sampler):
                output = sampler.sample(inputs, epoch, number)
            else:
                output = sampler.sample_from_nodes(inputs)
            if self._transform_output is not None:  # before it is known whose rows are needed
                output = self._transform_output(output)
            found = nodes_of(output, self._homogeneous_type)
            empty = torch.empty(0, dtype=torch.int64)
            nodes = {name: np.asarray(found.get(name, empty), np.int64) for name in self._rows.tables}
            yield ForeignBatch(nodes, output)

    def _assembled(self, ahead: ReadAhead) -> Iterator[Any]:
        try:
            for read in ahead:
                self._read = read
                self._counts = merged(self._counts, read.counts)
                made = self.filter_fn(read.payload)
                yield made.pin_memory() if self._pin else made
        finally:
            ahead.close()

    def _finished(self, data: Any) -> Any:
        """What was read becomes ``x``; then comes the user's transform."""
        read, self._read = self._read, None
        assert isinstance(read, ReadBatch)
        for name, rows in read.tensors.items():
            store = data if self._is_homogeneous(data) else data[name]
            store[X] = as_numbers(rows, self._rows.tables[name], self._dtype)
        return data if self._user_transform is None else self._user_transform(data)

    @staticmethod
    def _is_homogeneous(data: Any) -> bool:
        return not hasattr(data, "node_types")

    def filter_fn(self, out: Any) -> Any:
        """PyG's own, over what was not read ahead."""
        stores = self.data[0] if isinstance(self.data, tuple) else None
        if not isinstance(stores, StoreFeatures) or self._rows is not stores.rows:
            return super().filter_fn(out)
        whole: Any = self.data
        self.data = (_Others(whole[0]), whole[1])
        try:
            return super().filter_fn(out)
        finally:
            self.data = whole

    def counts(self) -> dict[str, FetchCounts]:
        """Where the rows handed out so far came from, by node type."""
        return dict(self._counts)

    def close(self) -> None:
        """Stop reading ahead and close what this loader opened; calling it again does nothing."""
        for ahead in list(self._running):
            ahead.close()
        for each in self._owned:
            each.close()


class _Others(StoreFeatures):
    """The attributes of a store's nodes that are not read ahead."""

    def __init__(self, whole: StoreFeatures) -> None:
        super().__init__(whole.rows, whole.schema, whole.labels, whole.dtype)

    def get_all_tensor_attrs(self) -> list[Any]:
        return self.attributes((Y,))


def _refuse_unsupported(
    subgraph_type: Any,
    disjoint: bool,
    temporal_strategy: str,
    time_attr: str | None,
    weight_attr: str | None,
    directed: bool,
) -> None:
    value = getattr(subgraph_type, "value", subgraph_type)
    for name, found, usual in (
        ("subgraph_type", value, "directional"),
        ("disjoint", disjoint, False),
        ("temporal_strategy", temporal_strategy, "uniform"),
        ("time_attr", time_attr, None),
        ("weight_attr", weight_attr, None),
        ("directed", directed, True),
    ):
        if found != usual:
            raise ConfigError(name, found, f"{usual!r}, or a sampler of PyG's as neighbor_sampler")
