"""Which relations a graph is made to have, and from which edge files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bam.array.description import ArrayDescription
from gids.graph.edge_array import EdgeArray
from gids.graph.igbh_facts import REQUIRED_RELATIONS
from gids.graph.schema import EdgeType

REVERSE_PREFIX = "rev_"


@dataclass(frozen=True)
class GraphOptions:
    """How edge files become a graph.

    Attributes
    ----------
    self_loops : bool
        Replace the loops of ``cites`` by one for each paper.
    reverse : bool
        Add ``rev_<relation>`` for every relation between two node types, so that papers receive messages.
    symmetric_cites : bool
        Let ``cites`` go both ways, as MLPerf's reference does (which has every self loop twice; here it is
        there once).
    """

    self_loops: bool = True
    reverse: bool = True
    symmetric_cites: bool = False


@dataclass(frozen=True)
class RelationPlan:
    """One relation of the graph, made of one edge file.

    Attributes
    ----------
    edge_type : EdgeType
        As it is called in the graph.
    stored : EdgeType
        As its folder is called.
    edges : EdgeArray
    source_columns : tuple of int
        Column with the source ids, for each time the file is gone through.
    drop_loops, add_loops : bool
        Leave loops out; add one for every node, after its other in-edges.
    """

    edge_type: EdgeType
    stored: EdgeType
    edges: EdgeArray
    source_columns: tuple[int, ...] = (0,)
    drop_loops: bool = False
    add_loops: bool = False


def plan_relations(
    edges: Mapping[EdgeType, ArrayDescription], options: GraphOptions
) -> tuple[RelationPlan, ...]:
    """The relations of the graph, sorted by edge type."""
    cites = REQUIRED_RELATIONS[0]
    plans = []
    for stored, described in edges.items():
        loops = options.self_loops and stored == cites
        columns = (0, 1) if options.symmetric_cites and stored == cites else (0,)
        plans.append(RelationPlan(stored, stored, EdgeArray(described), columns, loops, loops))
        if options.reverse and stored.src != stored.dst:
            reversed_type = EdgeType(stored.dst, REVERSE_PREFIX + stored.rel, stored.src)
            plans.append(RelationPlan(reversed_type, stored, EdgeArray(described), (1,)))
    return tuple(sorted(plans, key=lambda plan: plan.edge_type))
