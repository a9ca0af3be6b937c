"""Edges of PyG's data objects and graph stores as our graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from gids.errors import GraphError
from gids.graph.csc import Int64Array
from gids.graph.graph import Graph
from gids.sampling.pyg_import import import_pyg

_NEEDED_FOR = "sampling of PyG data"


def graph_of(data: Any) -> Graph:
    """The edges of a `Data`, a `HeteroData` or a `(FeatureStore, GraphStore)`, in memory.

    Edge ids are positions in `edge_index`, as PyG's own sampler gives them.

    Raises
    ------
    GraphError
        There are no edges in it that can be read.
    NodeOutOfRange
        An edge ends at no node.
    PackageMissing
    """
    pyg = import_pyg(_NEEDED_FOR).data
    if isinstance(data, pyg.Data):
        return Graph.from_coo(_ends(*_edge_index(data, "data")), int(data.num_nodes))
    if isinstance(data, pyg.HeteroData):
        edges = {each: _ends(*_edge_index(data[each], str(each))) for each in data.edge_types}
        return Graph.from_coo(edges, {name: int(data[name].num_nodes) for name in data.node_types})
    if isinstance(data, tuple) and len(data) == 2:
        return _graph_of_stores(*data)
    expected = "Data, HeteroData, (FeatureStore, GraphStore), or a data set of gids"
    raise GraphError("data", expected, type(data).__name__)


def _graph_of_stores(feature_store: Any, graph_store: Any) -> Graph:
    sizes = {each.edge_type: each.size for each in graph_store.get_all_edge_attrs()}
    if not sizes:
        raise GraphError("graph store", "edges", "none")
    rows, columns, _ = graph_store.coo()
    # PyG's mark of a homogeneous graph is an edge type that is None.
    if None in sizes:
        if sizes[None] is None:
            raise GraphError("graph store", "the number of nodes as the size of its edges", "None")
        return Graph.from_coo(_ends(rows[None], columns[None]), int(sizes[None][0]))
    counts: dict[str, int] = {}
    for edge_type in sizes:
        size = import_pyg(_NEEDED_FOR).data.remote_backend_utils.size(feature_store, graph_store, edge_type)
        counts |= {edge_type[0]: int(size[0]), edge_type[2]: int(size[1])}
    for attribute in feature_store.get_all_tensor_attrs():
        if attribute.group_name not in counts:
            counts[attribute.group_name] = int(feature_store.get_tensor_size(attribute)[0])
    return Graph.from_coo({each: _ends(rows[each], columns[each]) for each in sizes}, counts)


def _edge_index(store: Any, name: str) -> Any:
    if "edge_index" in store:
        return store.edge_index
    raise GraphError(name, "edges as edge_index", "none (torch_geometric.utils.to_edge_index makes it)")


def _ends(row: Any, column: Any) -> tuple[Int64Array, Int64Array]:
    return (
        np.ascontiguousarray(row.cpu().numpy(), np.int64),
        np.ascontiguousarray(column.cpu().numpy(), np.int64),
    )
