"""Rows of files as a GraphBolt feature, where GraphBolt loads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from bam.errors import ConfigError
from gids.adapters.rows import as_numbers, read_rows
from gids.errors import PackageMissing
from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import as_table
from gids.loader.arguments import Rows
from gids.sampling.dgl_import import import_dgl

import_dgl()
try:
    from dgl.graphbolt import Feature as _Feature
except ImportError as error:
    raise PackageMissing(
        "dgl.graphbolt",
        "GraphBolt's feature",
        "Its library must match the installed torch (dgl 2.1: torch 2.2.1)",
    ) from error


class Feature(_Feature):  # type: ignore[misc]  # GraphBolt has no types
    """Rows that stay in files, for `dgl.graphbolt.BasicFeatureStore`. Any number of threads may read.

    Parameters
    ----------
    rows : VirtualArray, array or FeatureStore
    node_type : str, optional
        Which of a FeatureStore's tables.
    dtype : torch.dtype, optional
        Element type handed out; default as stored (int8 with scales: float32).

    Raises
    ------
    UnknownNodeType
    """

    def __init__(
        self, rows: Rows | FeatureStore, node_type: str = "_N", dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        store = (
            rows if isinstance(rows, FeatureStore) else FeatureStore({node_type: as_table(node_type, rows)})
        )
        self._store, self._table, self._dtype = store, store.table(node_type), dtype

    def read(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of `ids`, on their device; without them all rows.

        Raises
        ------
        bam.errors.RowOutOfRange, bam.errors.StorageError
        """
        nodes = (
            np.arange(self._table.n_rows) if ids is None else ids.cpu().numpy().astype(np.int64, copy=False)
        )
        rows = as_numbers(read_rows(self._store, self._table.name, nodes), self._table, self._dtype)
        return rows if ids is None else rows.to(ids.device)

    def size(self) -> torch.Size:
        """Shape of a row."""
        return torch.Size(self._table.row_shape)

    def update(self, value: torch.Tensor, ids: torch.Tensor | None = None) -> None:
        """Rows are read-only.

        Raises
        ------
        ConfigError
        """
        raise ConfigError("update", tuple(value.shape), "nothing: rows in files are read-only")

    def metadata(self) -> dict[str, Any]:
        """Which path really reads."""
        return self._table.describe()
