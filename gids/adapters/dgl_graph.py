"""DGL's graphs as ours, and ours as DGL's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bam.errors import ConfigError
from gids.graph.csc import Csc
from gids.graph.graph import Graph
from gids.graph.schema import EdgeType, Schema
from gids.sampling.dgl_import import import_dgl


def graph_of(dgl_graph: Any) -> Graph:
    """The edges of a DGL graph on the CPU, grouped by destination; DGL's arrays are shared where they fit.

    Raises
    ------
    ConfigError
        It is on another device.
    """
    if dgl_graph.device.type != "cpu":
        raise ConfigError("graph", str(dgl_graph.device), "a graph on the CPU: graph.cpu()")
    counts = {name: int(dgl_graph.num_nodes(name)) for name in dgl_graph.ntypes}
    relations = {}
    for edge_type in dgl_graph.canonical_etypes:
        indptr, indices, edge_ids = (
            np.ascontiguousarray(each.numpy(), np.int64)
            for each in dgl_graph.adj_tensors("csc", etype=edge_type)
        )
        ids = edge_ids if len(edge_ids) else None
        relations[EdgeType(*edge_type)] = Csc(indptr, indices, counts[edge_type[0]], ids, str(edge_type))
    return Graph(Schema(counts, relations), relations)


def dgl_graph_of(graph: Graph) -> Any:
    """DGL's graph of the same edges, in memory.

    Raises
    ------
    PackageMissing
    """
    relations = {}
    for edge_type, csc in graph.relations.items():
        arrays = (np.array(array, np.int64) for array in (csc.indptr, csc.indices))
        indptr, indices = map(torch.from_numpy, arrays)
        relations[tuple(edge_type)] = ("csc", (indptr, indices, torch.empty(0, dtype=torch.int64)))
    return import_dgl().heterograph(relations, num_nodes_dict=dict(graph.schema.num_nodes))
