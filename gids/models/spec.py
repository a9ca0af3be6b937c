"""What a model needs to know of the data it is built for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bam.errors import ConfigError
from gids.errors import UnknownNodeType, did_you_mean
from gids.graph.dataset import Dataset, Task
from gids.graph.schema import EdgeType, Schema


@dataclass(frozen=True)
class DataSpec:
    """Types, feature dimensions, and what is predicted.

    Attributes
    ----------
    node_types : tuple of str
    edge_types : tuple of EdgeType
    feature_dims : mapping of str to int
        Node types without features are left out.
    seed_type : str
    n_classes : int
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    feature_dims: Mapping[str, int]
    seed_type: str
    n_classes: int

    def __post_init__(self) -> None:
        for name in (self.seed_type, *self.feature_dims):
            if name not in self.node_types:
                raise UnknownNodeType(name, self.node_types)

    @classmethod
    def of_schema(
        cls, schema: Schema, feature_dims: Mapping[str, int], seed_type: str, n_classes: int
    ) -> DataSpec:
        """For a graph and features that belong to no data set."""
        return cls(schema.node_types, schema.edge_types, dict(feature_dims), seed_type, n_classes)

    @classmethod
    def of_dataset(cls, dataset: Dataset, task: str) -> DataSpec:
        """For one task of a data set.

        Raises
        ------
        ConfigError
            The data set has no such task.
        """
        chosen = task_named(dataset, task)
        dims = {name: features.dim for name, features in dataset.features.items()}
        return cls.of_schema(dataset.graph.schema, dims, chosen.node_type, chosen.n_classes)


def task_named(dataset: Dataset, name: str) -> Task:
    """A task of a data set.

    Raises
    ------
    ConfigError
    """
    if name not in dataset.tasks:
        raise ConfigError("task", name, f"a task of the data set; {did_you_mean(name, dataset.tasks)}")
    return dataset.tasks[name]
