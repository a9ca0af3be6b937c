"""Feature rows for other libraries: any rows at once, and in the element type a model takes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from bam.errors import ConfigError
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.fetch.table import FeatureTable, as_table
from gids.graph.dataset import Dataset
from gids.graph.schema import Schema
from gids.loader.loader import Rows


def open_rows(
    features: Mapping[str, Rows] | FeatureStore | Dataset | None, schema: Schema, settings: FeatureSettings
) -> FeatureStore:
    """The feature store that a user's value stands for; every table has a row for each node.

    Raises
    ------
    ConfigError, UnknownNodeType
    """
    if isinstance(features, FeatureStore):
        store = features
    elif isinstance(features, Dataset) or features is None:
        store = open_features(features, settings)
    else:
        store = FeatureStore({name: as_table(name, rows) for name, rows in features.items()})
    for name, table in store.tables.items():
        expected = schema.num_nodes[schema.node_types[schema.node_type_index(name)]]
        if table.n_rows != expected:
            raise ConfigError(f"features[{name!r}]", f"{table.n_rows} rows", f"{expected}, one for each node")
    return store


def read_rows(store: FeatureStore, name: str, nodes: npt.NDArray[np.int64]) -> torch.Tensor:
    """Rows of nodes of one type, in their order, as they are stored; waits for them.

    Raises
    ------
    UnknownNodeType, bam.errors.RowOutOfRange, bam.errors.StorageError
    """
    table = store.table(name)
    rows = table.rows_of(nodes)
    made = torch.empty((len(nodes), *table.row_shape), dtype=table.dtype)
    out = made.reshape(-1).view(torch.uint8).numpy().reshape(len(nodes), table.row_bytes)
    table.read(rows, out, None, None)
    return made


def as_numbers(rows: torch.Tensor, table: FeatureTable, dtype: torch.dtype | None) -> torch.Tensor:
    """Rows in `dtype`; without one as they are stored, but for scaled int8, which become float32."""
    if table.scale is not None:
        rows = rows.to(torch.float32) * table.scale
    return rows if dtype is None else rows.to(dtype)
