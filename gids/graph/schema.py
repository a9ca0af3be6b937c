"""What a graph is made of: node types with their counts, and edge types.

Names stand in one order everywhere, sorted, whatever order a caller's dictionary had: sampled neighbours
depend on the position of an edge type in it (`gids.sampling.random`), and so do local ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from bam.errors import ConfigError
from gids.errors import GraphError, UnknownEdgeType, UnknownNodeType

SEPARATOR = "__"


class EdgeType(NamedTuple):
    """`(src, rel, dst)`; equal to the plain tuple that DGL and PyG use, so either works as a key."""

    src: str
    rel: str
    dst: str

    def __str__(self) -> str:
        return SEPARATOR.join(self)


HOMOGENEOUS_NODE_TYPE = "_N"
"""The one node type of a homogeneous graph, as in DGL."""

HOMOGENEOUS_EDGE_TYPE = EdgeType("_N", "_E", "_N")
"""The one edge type of a homogeneous graph, as in DGL."""

EdgeTypeLike = EdgeType | tuple[str, str, str] | str
"""An edge type, `"src__rel__dst"`, or a relation name that only one edge type has."""


@dataclass(frozen=True)
class Schema:
    """Node types with their counts, and edge types, both sorted.

    Parameters
    ----------
    num_nodes : mapping of str to int
        Nodes of each type.
    edge_types : iterable of (str, str, str)
        Every end must be a node type of `num_nodes`.

    Raises
    ------
    UnknownNodeType
        An edge type has an end that is not in `num_nodes`.
    GraphError
        There is no node type, a count is negative, or an edge type is there twice.
    """

    num_nodes: Mapping[str, int]
    edge_types: tuple[EdgeType, ...]

    def __init__(self, num_nodes: Mapping[str, int], edge_types: Iterable[tuple[str, str, str]]) -> None:
        counts = {name: int(num_nodes[name]) for name in sorted(num_nodes)}
        if not counts:
            raise GraphError("schema", "at least one node type", "none")
        for name, count in counts.items():
            if count < 0:
                raise GraphError(f"number of {name!r} nodes", "0 or more", str(count))
        ordered = tuple(sorted(EdgeType(*edge_type) for edge_type in edge_types))
        for edge_type in ordered:
            for end in (edge_type.src, edge_type.dst):
                if end not in counts:
                    raise UnknownNodeType(end, counts)
            if ordered.count(edge_type) > 1:
                raise GraphError(f"edge type {edge_type}", "to be there once", "it twice")
        object.__setattr__(self, "num_nodes", MappingProxyType(counts))
        object.__setattr__(self, "edge_types", ordered)

    def __reduce__(self) -> tuple[type[Schema], tuple[dict[str, int], tuple[EdgeType, ...]]]:
        return Schema, (dict(self.num_nodes), self.edge_types)

    @property
    def node_types(self) -> tuple[str, ...]:
        return tuple(self.num_nodes)

    @property
    def is_homogeneous(self) -> bool:
        """Whether there is one node type and one edge type, so that neither needs a name."""
        return len(self.num_nodes) == 1 and len(self.edge_types) == 1

    def node_type_index(self, name: str) -> int:
        """Position of a node type in `node_types`.

        Raises
        ------
        UnknownNodeType
        """
        if name not in self.num_nodes:
            raise UnknownNodeType(name, self.num_nodes)
        return self.node_types.index(name)

    def edge_type(self, name: EdgeTypeLike) -> EdgeType:
        """The edge type that a tuple, `"src__rel__dst"` or a unique relation name stands for.

        Raises
        ------
        UnknownEdgeType
            There is none, or several edge types have the relation name.
        """
        if not isinstance(name, str):
            if len(name) != 3:
                raise ConfigError("edge_type", name, "(src, rel, dst) or a relation name")
            wanted = EdgeType(*name)
            if wanted in self.edge_types:
                return wanted
            raise UnknownEdgeType(str(wanted), map(str, self.edge_types))
        matches = [each for each in self.edge_types if name == each.rel]
        matches = matches or [each for each in self.edge_types if name == str(each)]
        if len(matches) == 1:
            return matches[0]
        raise UnknownEdgeType(name, map(str, matches or self.edge_types), ambiguous=bool(matches))

    def edge_type_index(self, name: EdgeTypeLike) -> int:
        """Position of an edge type in `edge_types`."""
        return self.edge_types.index(self.edge_type(name))
