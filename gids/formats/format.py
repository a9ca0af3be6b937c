"""What every layout of a data set has here, and the graph it is read to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bam.array.description import ArrayDescription
from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.formats.staging import Staging, require_name
from gids.graph.edge_array import EdgeArray
from gids.graph.graph_source import TaskSource
from gids.graph.relations import REVERSE_PREFIX, RelationPlan
from gids.graph.schema import EdgeType, Schema


@dataclass(frozen=True)
class RelationOptions:
    """Relations that are added to those of a data set.

    Attributes
    ----------
    reverse : bool
        ``rev_<relation>`` for every relation between two node types that has none yet.
    symmetric : tuple of str
        Relations within one node type that are to go both ways.
    """

    reverse: bool = False
    symmetric: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SourceGraph:
    """A data set as its files have it.

    Attributes
    ----------
    num_nodes : mapping of str to int
    edges : mapping of EdgeType to EdgeArray
    features : mapping of str to ArrayDescription
        (nodes, dim) floats.
    tasks : tuple of TaskSource
    """

    num_nodes: Mapping[str, int]
    edges: Mapping[EdgeType, EdgeArray]
    features: Mapping[str, ArrayDescription] = field(default_factory=dict)
    tasks: tuple[TaskSource, ...] = ()


class Format(ABC):
    """A layout of data sets.

    Attributes
    ----------
    name : str
        As ``gids convert`` calls it.
    layout : str
        What is looked for to know it, for messages.
    relations : RelationOptions
        What its own loaders or examples add.
    """

    name: str
    layout: str
    relations = RelationOptions()

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether a file or folder has this layout, by names and first bytes alone."""

    @abstractmethod
    def files(self, path: Path) -> list[Path]:
        """The files that a conversion depends on.

        Raises
        ------
        DatasetError
        """

    @abstractmethod
    def read(self, path: Path, staging: Staging) -> SourceGraph:
        """The graph; arrays that cannot stay where they are go through `staging`.

        Raises
        ------
        DatasetError, bam.errors.SourceError, PackageMissing
        """


def check_graph(where: str, graph: SourceGraph) -> SourceGraph:
    """The graph, if its parts fit together.

    Raises
    ------
    DatasetError, GraphError, UnknownNodeType
    """
    tasks = [task.name for task in graph.tasks]
    for name in [*graph.num_nodes, *(each for edge_type in graph.edges for each in edge_type), *tasks]:
        require_name(where, name)
    if len(set(tasks)) != len(tasks):
        raise DatasetError(where, "tasks of different names", ", ".join(tasks))
    Schema(graph.num_nodes, graph.edges)
    for name, rows in graph.features.items():
        count = graph.num_nodes[name]
        if len(rows.shape) != 2 or rows.shape[0] != count or rows.shape[1] == 0:
            expected = f"features of shape ({count}, dim), a row for each {name}"
            raise DatasetError(rows.files[0].path, expected, f"shape {rows.shape}")
    return graph


def plan_edges(edges: Mapping[EdgeType, EdgeArray], options: RelationOptions) -> tuple[RelationPlan, ...]:
    """The relations of the graph, sorted by edge type.

    Raises
    ------
    ConfigError
        A relation that is to be symmetric is not there, or is between two node types.
    """
    _require_symmetric(options.symmetric, list(edges))
    plans = []
    for stored, array in edges.items():
        columns = (0, 1) if stored.rel in options.symmetric else (0,)
        plans.append(RelationPlan(stored, stored, array, columns))
        reverse = EdgeType(stored.dst, REVERSE_PREFIX + stored.rel, stored.src)
        is_reverse = stored.rel.startswith(REVERSE_PREFIX)
        if options.reverse and stored.src != stored.dst and reverse not in edges and not is_reverse:
            plans.append(RelationPlan(reverse, stored, array, (1,)))
    return tuple(sorted(plans, key=lambda plan: plan.edge_type))


def _require_symmetric(names: Sequence[str], edge_types: Sequence[EdgeType]) -> None:
    within = [each.rel for each in edge_types if each.src == each.dst]
    between = [each.rel for each in edge_types if each.src != each.dst]
    for name in names:
        if name not in within or name in between:
            raise ConfigError("symmetric", name, f"a relation within one node type: {', '.join(within)}")
