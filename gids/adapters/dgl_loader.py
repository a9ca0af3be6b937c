"""`DataLoader` with DGL's signature whose blocks carry features that stay in files."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from bam.errors import ConfigError
from gids.adapters.dgl_graph import dgl_graph_of
from gids.adapters.dgl_sampler import NeighborSampler
from gids.adapters.read_ahead import ForeignBatch, ReadAhead, ReadBatch
from gids.adapters.rows import as_numbers
from gids.fetch.counts import FetchCounts, merged
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.graph.schema import Schema
from gids.loader.arguments import Rows, open_rows
from gids.sampling.dgl_import import import_dgl

dgl = import_dgl()


class DataLoader(dgl.dataloading.DataLoader):  # type: ignore[misc,name-defined]  # DGL has no types
    """In the place of `dgl.dataloading.DataLoader`, with any sampler that gives blocks.

    With `features`, their rows are read ahead and are ``blocks[0].srcdata[feature_name]``; all else is as
    DGL does it, so that with DGL's sampler the mini-batches are those of DGL's loader. A sampler of DGL's
    runs in the thread that iterates (or in `num_workers` processes), some mini-batches ahead; one of
    :mod:`gids.dgl` in a thread of its own.

    Parameters
    ----------
    graph : DGLGraph, Dataset or Graph
        Ours become a DGL graph in memory. A data set brings its features along, and labels of `labels` as
        node data ``label``.
    indices, graph_sampler, device, use_ddp, ddp_seed, batch_size, drop_last, shuffle, **kwargs
        As in DGL.
    features : mapping of str to rows, rows, FeatureStore or Dataset, optional
        Rows of each node type; a single value where there is one node type.
    feature_name : str
    labels : str, optional
        A task of the data set.
    dtype : torch.dtype, optional
        Element type of the features; default as stored (int8 with scales: float32).
    window, prefetch, cache, cpu_buffer, engine
        See :class:`gids.DataLoader`.

    Raises
    ------
    ConfigError, UnknownNodeType
        Before any work.
    """

    def __init__(
        self,
        graph: Any,
        indices: Any,
        graph_sampler: Any,
        device: Any = None,
        use_ddp: bool = False,
        ddp_seed: int = 0,
        batch_size: int = 1,
        drop_last: bool = False,
        shuffle: bool = False,
        *args: Any,
        features: Mapping[str, Rows] | Rows | FeatureStore | Dataset | None = None,
        feature_name: str = "feat",
        labels: str | None = None,
        dtype: torch.dtype | None = None,
        window: int = 8,
        prefetch: int = 1,
        cache: int | str | float = "auto",
        cpu_buffer: int | str | float = 0,
        engine: str = "auto",
        **kwargs: Any,
    ) -> None:
        if isinstance(graph, Dataset):
            features = graph if features is None else features
            graph = _with_labels(graph, labels)
        elif labels is not None:
            raise ConfigError("labels", labels, "None, or a data set of gids as graph")
        elif isinstance(graph, Graph):
            graph = dgl_graph_of(graph)
        schema = Schema({name: int(graph.num_nodes(name)) for name in graph.ntypes}, [])
        settings = FeatureSettings(cache=cache, cpu_buffer=cpu_buffer, engine=engine)
        self._owns_rows = not isinstance(features, FeatureStore)
        self._rows = open_rows(_by_type(features, graph.ntypes), schema, settings)
        self._feature_name, self._dtype = feature_name, dtype
        self._window, self._prefetch = window, prefetch
        self._counts: dict[str, FetchCounts] = {}
        self._running: weakref.WeakSet[ReadAhead] = weakref.WeakSet()
        super().__init__(
            graph,
            indices,
            graph_sampler,
            device,
            use_ddp,
            ddp_seed,
            batch_size,
            drop_last,
            shuffle,
            *args,
            **kwargs,
        )

    def __iter__(self) -> Iterator[Any]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Dataloader CPU affinity opt is not enabled")
            batches = super().__iter__()
        if not self._rows.tables:
            return iter(batches)
        ahead = ReadAhead(
            self._with_nodes(batches),
            len(self),
            self._rows,
            window=self._window,
            prefetch=self._prefetch,
            in_thread=isinstance(self.graph_sampler, NeighborSampler) and self.num_workers == 0,
        )
        self._running.add(ahead)
        return self._assembled(ahead)

    def _with_nodes(self, batches: Iterator[Any]) -> Iterator[ForeignBatch]:
        empty = torch.empty(0, dtype=torch.int64)
        for batch in batches:
            inputs = batch[0] if isinstance(batch[0], Mapping) else {self.graph.ntypes[0]: batch[0]}
            nodes = {
                name: inputs.get(name, empty).cpu().numpy().astype(np.int64, copy=False)
                for name in self._rows.tables
            }
            yield ForeignBatch(nodes, batch)

    def _assembled(self, ahead: ReadAhead) -> Iterator[Any]:
        try:
            for read in ahead:
                self._counts = merged(self._counts, read.counts)
                yield self._finished(read)
        finally:
            ahead.close()

    def _finished(self, read: ReadBatch) -> Any:
        blocks = read.payload[-1]
        for name, rows in read.tensors.items():
            numbers = as_numbers(rows, self._rows.tables[name], self._dtype)
            blocks[0].srcnodes[name].data[self._feature_name] = numbers.to(blocks[0].device)
        return read.payload

    def counts(self) -> dict[str, FetchCounts]:
        """Where the rows handed out so far came from, by node type."""
        return dict(self._counts)

    def close(self) -> None:
        """Stop reading ahead, and close the features unless a FeatureStore was given; may be called again."""
        for ahead in list(self._running):
            ahead.close()
        if self._owns_rows:
            self._rows.close()


def _by_type(features: Any, node_types: list[str]) -> Any:
    if features is None:
        return {}
    if isinstance(features, (Mapping, FeatureStore, Dataset)):
        return features
    if len(node_types) != 1:
        raise ConfigError("features", type(features).__name__, f"a mapping from {', '.join(node_types)}")
    return {node_types[0]: features}


def _with_labels(dataset: Dataset, labels: str | None) -> Any:
    graph = dgl_graph_of(dataset.graph)
    if labels is None:
        return graph
    if labels not in dataset.tasks:
        raise ConfigError("labels", labels, " or ".join(map(repr, dataset.tasks)))
    task = dataset.tasks[labels]
    graph.nodes[task.node_type].data["label"] = torch.from_numpy(np.array(task.labels, np.int64))
    return graph
