"""A data set of ours as PyG's remote backend: a `FeatureStore` and a `GraphStore`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from bam.errors import ConfigError
from gids.adapters.rows import as_numbers, read_rows
from gids.errors import UnknownNodeType
from gids.fetch import feature_store
from gids.fetch.open import FeatureSettings, open_features
from gids.graph.csc import Int64Array
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.graph.schema import Schema

X, Y = "x", "y"


@dataclass(frozen=True, eq=False)
class Stores:
    """What :func:`open_stores` returns; unpacks to PyG's pair.

    Attributes
    ----------
    features : StoreFeatures
    graph : StoreGraph
    """

    features: StoreFeatures
    graph: StoreGraph

    def __iter__(self) -> Any:
        return iter((self.features, self.graph))

    def close(self) -> None:
        """Close the features."""
        self.features.close()


def open_stores(
    dataset: Dataset,
    *,
    labels: str | None = None,
    dtype: torch.dtype | None = None,
    **settings: Any,
) -> Stores:
    """A data set's features and edges for `torch_geometric.loader.NeighborLoader` and its like.

    Parameters
    ----------
    dataset : Dataset
    labels : str, optional
        The task whose labels are ``y``. Default: the only one there is; with several none.
    dtype : torch.dtype, optional
        Element type of ``x``; default as stored (int8 with scales: float32).
    **settings
        See :class:`gids.fetch.open.FeatureSettings`: cache, cpu_buffer, engine ...

    Raises
    ------
    ConfigError, bam.errors.StorageError
    """
    if labels is None and len(dataset.tasks) == 1:
        labels = next(iter(dataset.tasks))
    if labels is not None and labels not in dataset.tasks:
        raise ConfigError(
            "labels", labels, " or ".join(map(repr, dataset.tasks)) or "nothing: there are none"
        )
    found = {}
    if labels is not None:
        task = dataset.tasks[labels]
        found[task.node_type] = task.labels
    store = open_features(dataset, FeatureSettings(**settings))
    return Stores(StoreFeatures(store, dataset.graph.schema, found, dtype), StoreGraph(dataset.graph))


class StoreFeatures(FeatureStore):  # type: ignore[misc]  # PyG has no types
    """Rows of files as PyG's features: ``x`` of each node type that has any, ``y`` where there are labels.

    Reads through one cache; any number of threads. Read-only.

    Parameters
    ----------
    store : FeatureStore of gids.fetch
        Owned.
    schema : Schema
    labels : mapping of str to array
    dtype : torch.dtype, optional
    """

    def __init__(
        self,
        store: feature_store.FeatureStore,
        schema: Schema,
        labels: Mapping[str, Any],
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        # PyG's base class takes attribute access for itself.
        self.__dict__.update(rows=store, schema=schema, labels=dict(labels), dtype=dtype)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """``x`` and ``y`` of all node types."""
        return self.attributes((X, Y))

    def attributes(self, names: tuple[str, ...]) -> list[TensorAttr]:
        """Those of these names; the group is None where the graph is homogeneous, as PyG expects."""
        found = [(group, X) for group in self.rows.tables] + [(group, Y) for group in self.labels]
        return [TensorAttr(self._group(group), name) for group, name in found if name in names]

    def close(self) -> None:
        """Close the files."""
        self.rows.close()

    def _group(self, name: str) -> str | None:
        return None if self.schema.is_homogeneous else name

    def _name(self, group: str | None) -> str:
        name = self.schema.node_types[0] if group is None and self.schema.is_homogeneous else group
        if name not in self.schema.num_nodes:
            raise UnknownNodeType(str(name), self.schema.num_nodes)
        return str(name)

    def _get_tensor(self, attr: TensorAttr) -> torch.Tensor:
        name = self._name(attr.group_name)
        nodes = _nodes(attr.index, self.schema.num_nodes[name])
        if attr.attr_name == X and name in self.rows.tables:
            return as_numbers(read_rows(self.rows, name, nodes), self.rows.tables[name], self.dtype)
        if attr.attr_name == Y and name in self.labels:
            return torch.from_numpy(np.asarray(self.labels[name][nodes], np.int64))
        found = [each.attr_name for each in self.get_all_tensor_attrs() if each.group_name == attr.group_name]
        raise ConfigError("attr_name", attr.attr_name, f"one of {name!r}: {found}")

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        name = self._name(attr.group_name)
        if attr.attr_name == X and name in self.rows.tables:
            return (self.rows.tables[name].n_rows, *self.rows.tables[name].row_shape)
        return (len(self.labels[name]),) if attr.attr_name == Y and name in self.labels else None

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        return False  # PyG's way of saying no

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        return False


class StoreGraph(GraphStore):  # type: ignore[misc]  # PyG has no types
    """CSC arrays of a graph as PyG's edges. Read-only; int32 indices are widened when they are asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """One for each edge type, as CSC; the type is None where the graph is homogeneous."""
        is_homogeneous = self.graph.schema.is_homogeneous
        return [
            EdgeAttr(
                None if is_homogeneous else tuple(edge_type),
                EdgeLayout.CSC,
                is_sorted=True,
                size=(csc.num_src, csc.num_dst),
            )
            for edge_type, csc in self.graph.relations.items()
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[torch.Tensor, torch.Tensor] | None:
        if edge_attr.layout != EdgeLayout.CSC:
            return None  # PyG converts what there is
        schema = self.graph.schema
        csc = self.graph[schema.edge_types[0] if edge_attr.edge_type is None else edge_attr.edge_type]
        # A copy: PyG's tensors may be written to, and these arrays are read-only maps.
        return torch.from_numpy(np.array(csc.indices, np.int64)), torch.from_numpy(np.array(csc.indptr))

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        return False

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return False


def _nodes(index: Any, n_nodes: int) -> Int64Array:
    """Node ids that PyG's index stands for: None, a slice, ids or a mask."""
    if index is None or isinstance(index, slice):
        return np.arange(n_nodes)[slice(None) if index is None else index]
    found = np.asarray(index)
    nodes: Int64Array = (
        np.flatnonzero(found) if found.dtype == np.bool_ else found.astype(np.int64).reshape(-1)
    )
    return nodes
