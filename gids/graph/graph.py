"""A heterogeneous graph: a schema and one `Csc` per edge type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy.typing as npt

from gids.errors import GraphError
from gids.graph.csc import Csc
from gids.graph.schema import HOMOGENEOUS_EDGE_TYPE, HOMOGENEOUS_NODE_TYPE, EdgeType, EdgeTypeLike, Schema

Coo = tuple[npt.ArrayLike, npt.ArrayLike]
"""`(src, dst)` node ids of the edges of one type."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Edges of every type; immutable, safe to share between threads.

    Parameters
    ----------
    schema : Schema
    relations : mapping of (str, str, str) to Csc
        Every edge type of the schema; one without edges has a `Csc` without edges.

    Raises
    ------
    GraphError
        A relation is missing or its node counts are not the schema's.
    UnknownEdgeType
        A relation is not in the schema.
    """

    schema: Schema
    relations: Mapping[EdgeType, Csc]

    def __post_init__(self) -> None:
        given = {self.schema.edge_type(edge_type): csc for edge_type, csc in self.relations.items()}
        for edge_type in self.schema.edge_types:
            if edge_type not in given:
                raise GraphError(f"edge type {edge_type}", "a Csc for it", "none")
            csc, counts = given[edge_type], self.schema.num_nodes
            expected = counts[edge_type.src], counts[edge_type.dst]
            if (csc.num_src, csc.num_dst) != expected:
                raise GraphError(
                    f"edge type {edge_type}",
                    f"{expected[0]} source and {expected[1]} destination nodes",
                    f"{csc.num_src} and {csc.num_dst}",
                )
        ordered = {edge_type: given[edge_type] for edge_type in self.schema.edge_types}
        object.__setattr__(self, "relations", MappingProxyType(ordered))

    def __getitem__(self, edge_type: EdgeTypeLike) -> Csc:
        """The edges of one type; see `Schema.edge_type` for how it may be named."""
        return self.relations[self.schema.edge_type(edge_type)]

    @property
    def num_edges(self) -> int:
        return sum(csc.num_edges for csc in self.relations.values())

    def verify(self) -> None:
        """Check every relation's contents; see `Csc.verify`."""
        for csc in self.relations.values():
            csc.verify()

    @classmethod
    def from_coo(
        cls, edges: Mapping[tuple[str, str, str], Coo] | Coo, num_nodes: Mapping[str, int] | int
    ) -> Graph:
        """A graph in memory from lists of edges.

        Parameters
        ----------
        edges : mapping of (str, str, str) to (src, dst), or one (src, dst)
            With one pair the graph is homogeneous; its types have DGL's names, `_N` and `("_N", "_E", "_N")`.
        num_nodes : mapping of str to int, or int
            Nodes of each type, isolated ones too.

        Raises
        ------
        GraphError, NodeOutOfRange, UnknownNodeType
        """
        if isinstance(edges, Mapping) != isinstance(num_nodes, Mapping):
            raise GraphError("num_nodes", "a mapping exactly when edges is one", type(num_nodes).__name__)
        lists = edges if isinstance(edges, Mapping) else {HOMOGENEOUS_EDGE_TYPE: edges}
        counts = num_nodes if isinstance(num_nodes, Mapping) else {HOMOGENEOUS_NODE_TYPE: num_nodes}
        schema = Schema(counts, lists)
        relations = {}
        for edge_type, (src, dst) in lists.items():
            named = EdgeType(*edge_type)
            relations[named] = Csc.from_coo(
                src, dst, schema.num_nodes[named.src], schema.num_nodes[named.dst], str(named)
            )
        return cls(schema, relations)
