"""What users hand to a loader, checked before any work, and turned into what the loader works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

import bam
from bam.errors import ConfigError
from gids.errors import UnknownNodeType
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.fetch.storage_model import storage_model
from gids.fetch.table import FeatureTable, as_table
from gids.graph.dataset import Dataset
from gids.graph.schema import Schema

Rows = FeatureTable | bam.VirtualArray | torch.Tensor | npt.NDArray[Any]

Kind = TypeVar("Kind")


def open_rows(
    features: Mapping[str, Rows] | FeatureStore | Dataset | None, schema: Schema, settings: FeatureSettings
) -> FeatureStore:
    """The feature store that a user's value stands for; every table has a row for each node.

    Raises
    ------
    ConfigError, UnknownNodeType, bam.errors.StorageError
    """
    if isinstance(features, FeatureStore):
        store = features
    elif isinstance(features, Dataset) or features is None:
        store = open_features(features, settings)
    else:
        tables = {name: as_table(name, rows) for name, rows in features.items()}
        model = storage_model(
            None,
            settings.page_bytes,
            contiguous=settings.contiguous,
            ssd=settings.ssd,
            calibration=settings.calibration,
        )
        store = FeatureStore(tables, storage=model)
    for name, table in store.tables.items():
        if name not in schema.num_nodes:
            raise UnknownNodeType(name, schema.num_nodes)
        if table.n_rows != schema.num_nodes[name]:
            expected = f"{schema.num_nodes[name]}, one for each node"
            raise ConfigError(f"features[{name!r}]", f"{table.n_rows} rows", expected)
    return store


def checked_labels(
    labels: Mapping[str, npt.ArrayLike] | str | None, dataset: Dataset | None, schema: Schema
) -> dict[str, npt.NDArray[Any]]:
    """Labels of each node type, from arrays or from one of the data set's tasks.

    Raises
    ------
    ConfigError, UnknownNodeType
    """
    if isinstance(labels, str):
        tasks = {} if dataset is None else dataset.tasks
        if labels not in tasks:
            known = ", ".join(map(repr, tasks)) or "none: give a mapping of node types to arrays"
            raise ConfigError("labels", labels, f"a task of the data set ({known})")
        labels = {tasks[labels].node_type: tasks[labels].labels}
    checked = {}
    for name, values in (labels or {}).items():
        if name not in schema.num_nodes:
            raise UnknownNodeType(name, schema.num_nodes)
        array = np.asarray(values)
        if len(array) != schema.num_nodes[name]:
            expected = f"{schema.num_nodes[name]}, one for each node"
            raise ConfigError(f"labels[{name!r}]", f"{len(array)} labels", expected)
        checked[name] = array
    return checked


def label_tensor(labels: npt.NDArray[Any]) -> torch.Tensor:
    """Class numbers as int64, which PyTorch's losses take; other labels as they are."""
    return torch.from_numpy(labels.astype(np.int64) if labels.dtype.kind in "iu" else labels)


def required(name: str, value: Any, kind: type[Kind]) -> Kind:
    """`value`, which must be of this kind.

    Raises
    ------
    ConfigError
    """
    if not isinstance(value, kind):
        raise ConfigError(name, type(value).__name__, f"a {kind.__name__}")
    return value


def at_least(name: str, value: int, low: int) -> int:
    """`value`, which must be a whole number from `low` on.

    Raises
    ------
    ConfigError
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise ConfigError(name, value, f"a whole number from {low} on")
    return int(value)


def usable_device(device: torch.device | str) -> torch.device:
    """The device, which this PyTorch must be able to use.

    Raises
    ------
    ConfigError
    """
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError("device", str(device), f"a device this PyTorch can use ({error})") from error
    return found
