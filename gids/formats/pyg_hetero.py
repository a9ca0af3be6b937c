"""PyG's `HeteroData` and `Data`, in files of ``torch.save``.

Also as PyG's in-memory data sets keep them: a tuple of a graph (or its dictionary), slices and class. The
graph is taken as it is: no edges are added. Features are ``x``, labels ``y``, the split the masks; other
attributes are left out, which is logged.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gids.errors import DatasetError
from gids.formats.format import Format, SourceGraph
from gids.formats.node_arrays import edges_from, features_of, tasks_of, tell_left_out
from gids.formats.staging import Staging
from gids.formats.torch_files import as_array, load_torch
from gids.graph.edge_array import EdgeArray
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE, EdgeType
from gids.sampling.pyg_import import import_pyg

Fields = Mapping[str, Any]


class PygFormat(Format):
    """See the module."""

    name = "pyg"
    layout = "a file .pt of torch.save that holds a HeteroData or Data of PyG"

    def recognises(self, path: Path) -> bool:
        return path.is_file() and path.suffix in (".pt", ".pth") and zipfile.is_zipfile(path)

    def files(self, path: Path) -> list[Path]:
        return [path]

    def read(self, path: Path, staging: Staging) -> SourceGraph:
        return read_fields(str(path), fields_of(path), staging)


def fields_of(path: Path) -> dict[Any, Fields]:
    """Attributes by node type and edge type; those of a graph without types by `HOMOGENEOUS_NODE_TYPE`.

    Raises
    ------
    DatasetError, PackageMissing
    """
    import_pyg("reading PyG's data objects")
    from torch_geometric.data import data as data_module
    from torch_geometric.data import storage

    stores = ("BaseStorage", "NodeStorage", "EdgeStorage", "GlobalStorage")
    wanted = [(storage, name) for name in stores]
    wanted += [(data_module, name) for name in ("DataEdgeAttr", "DataTensorAttr")]
    classes = [getattr(module, name) for module, name in wanted if hasattr(module, name)]
    loaded = load_torch(path, classes)
    if isinstance(loaded, tuple) and loaded:
        if len(loaded) > 1 and loaded[1] is not None and _n_graphs(loaded[1]) != 1:
            raise DatasetError(str(path), "one graph", "slices of several; save the one that is wanted")
        loaded = loaded[0]
    if isinstance(loaded, list) and len(loaded) == 1:
        loaded = loaded[0]
    found = loaded.to_dict() if hasattr(loaded, "to_dict") else loaded
    if not isinstance(found, Mapping):
        raise DatasetError(str(path), "a HeteroData or Data of PyG", type(loaded).__name__)
    if "edge_index" in found:
        return {HOMOGENEOUS_NODE_TYPE: found}
    typed = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    return {key: value for key, value in typed.items() if key != "_global_store"}


def read_fields(where: str, fields: Mapping[Any, Fields], staging: Staging) -> SourceGraph:
    """The graph that such attributes make up.

    Raises
    ------
    DatasetError
    """
    if list(fields) == [HOMOGENEOUS_NODE_TYPE]:
        edge_fields = {HOMOGENEOUS_EDGE_TYPE: fields[HOMOGENEOUS_NODE_TYPE]}
        node_fields = fields
    else:
        edge_fields = {EdgeType(*key): each for key, each in fields.items() if _is_edge_type(key)}
        node_fields = {key: each for key, each in fields.items() if isinstance(key, str)}
    if not edge_fields:
        raise DatasetError(where, "edges: an edge_index for each edge type", "none")
    counts = {name: _count(where, name, each) for name, each in node_fields.items()}
    edges = {each: _edges(where, each, found, staging) for each, found in edge_fields.items()}
    arrays, features = {}, {}
    for name, each in node_fields.items():
        arrays[name] = {key: array for key in each if (array := as_array(each[key])) is not None}
        found = features_of(where, name, arrays[name], staging)
        if found is not None:
            features[name] = found
        known = ("num_nodes", "edge_index")
        tell_left_out(where, name, [key for key in each if key not in known])
    return SourceGraph(counts, edges, features, tasks_of(where, counts, arrays, staging))


def _edges(where: str, edge_type: EdgeType, fields: Fields, staging: Staging) -> EdgeArray:
    array = as_array(fields.get("edge_index"))
    if array is None or array.ndim != 2 or array.shape[0] != 2:
        found = (
            "none (torch_geometric.utils.to_edge_index makes it of adj_t)" if array is None else array.shape
        )
        raise DatasetError(f"{where}: edge_index of {edge_type}", "shape (2, edges)", f"{found}")
    return edges_from(edge_type, array[0], array[1], where, staging)


def _count(where: str, node_type: str, fields: Fields) -> int:
    given = fields.get("num_nodes")
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    per_node = [key for key in fields if key != "edge_index" and not str(key).startswith("edge_")]
    lengths = {len(array) for key in per_node if (array := as_array(fields[key])) is not None and array.ndim}
    if len(lengths) != 1:
        expected = "num_nodes, or attributes with a row for each node"
        raise DatasetError(f"{where}: {node_type}", expected, f"lengths {sorted(lengths)}")
    return int(lengths.pop())


def _is_edge_type(key: object) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(isinstance(each, str) for each in key)


def _n_graphs(slices: Any) -> int:
    """Graphs that slices of PyG's in-memory data sets cut a whole into."""
    while isinstance(slices, Mapping) and slices:
        slices = next(iter(slices.values()))
    array = as_array(slices)
    return 1 if array is None else int(np.size(array)) - 1
