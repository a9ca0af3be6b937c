"""Feature rows for other libraries: any rows at once, and in the element type a model takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import FeatureTable


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


def worker_epoch() -> int:
    """Another number in each worker process and each of its epochs: their counters all begin at 0."""
    worker = torch.utils.data.get_worker_info()
    return 0 if worker is None else worker.seed % 2**32
