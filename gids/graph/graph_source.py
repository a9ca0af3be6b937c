"""What a conversion needs to know of a data set, whatever format it is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from gids.graph.convert_options import ConvertOptions
from gids.graph.edge_array import EdgeArray
from gids.graph.igbh import IgbhFolder, label_chunks
from gids.graph.igbh_facts import LABELLED_TYPE, labelled_papers, mlperf_papers
from gids.graph.relations import RelationPlan, plan_relations
from gids.graph.schema import EdgeType
from gids.graph.splits import Split

LabelChunks = Callable[[], Iterator[npt.NDArray[np.int16]]]


@dataclass(frozen=True, eq=False)
class TaskSource:
    """What is to be learned about one node type.

    Attributes
    ----------
    name, node_type : str
    chunks : callable
        Labels of all nodes in order, int16, a few at a time; -1 where there is none.
    n_classes : int or None
        None: one more than the largest label.
    n_labelled : int or None
        Nodes 0 … n-1 have labels; None: count them.
    n_permuted : int
        As in :class:`gids.graph.manifest.TaskRecord`.
    split : Split, optional
        That came with the data.
    """

    name: str
    node_type: str
    chunks: LabelChunks
    n_classes: int | None = None
    n_labelled: int | None = None
    n_permuted: int = 0
    split: Split | None = None


@dataclass(frozen=True, eq=False)
class GraphSource:
    """A data set whose arrays are in files.

    Attributes
    ----------
    place : str
        What it was read from.
    num_nodes : mapping of str to int
    features : mapping of str to ArrayDescription
        (nodes, dim) floats in one piece of one file; not every node type needs some.
    edges : mapping of EdgeType to EdgeArray
        As stored.
    plans : tuple of RelationPlan
        Relations the graph is to have.
    tasks : tuple of TaskSource
    """

    place: str
    num_nodes: Mapping[str, int]
    features: Mapping[str, ArrayDescription]
    edges: Mapping[EdgeType, EdgeArray]
    plans: tuple[RelationPlan, ...]
    tasks: tuple[TaskSource, ...]


def igbh_source(folder: IgbhFolder, options: ConvertOptions) -> GraphSource:
    """An IGBH folder."""
    n_papers = folder.num_nodes[LABELLED_TYPE]
    tasks = tuple(
        TaskSource(
            str(n_classes),
            LABELLED_TYPE,
            lambda n_classes=n_classes: label_chunks(folder, n_classes),  # type: ignore[misc]
            n_classes,
            labelled_papers(n_papers, n_classes),
            mlperf_papers(n_papers, n_classes),
        )
        for n_classes in sorted(folder.labels)
    )
    edges = {stored: EdgeArray(described) for stored, described in folder.edges.items()}
    plans = plan_relations(folder.edges, options.graph)
    return GraphSource(str(folder.processed), folder.num_nodes, folder.features, edges, plans, tasks)
