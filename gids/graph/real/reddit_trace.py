"""Requests of a serving benchmark on Reddit's graph, recorded by Quiver: the nodes each request asked for."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError
from gids.graph.real.pickles import load_npy

REDDIT_NODES = 232_965


def load_reddit_trace(folder: str | os.PathLike[str]) -> npt.NDArray[np.int64]:
    """Node ids, int64 of shape (requests, nodes a request).

    Raises
    ------
    DatasetError
        The file is missing or damaged, or an id is no node of Reddit's 232,965.
    """
    path = Path(folder) / "25_10_workload.npy"
    ids = load_npy(path)
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 2 or ids.size == 0:
        found = f"{getattr(ids, 'dtype', type(ids))} of shape {getattr(ids, 'shape', ())}"
        raise DatasetError(str(path), "int64 of shape (requests, nodes)", found)
    if ids.min() < 0 or ids.max() >= REDDIT_NODES:
        raise DatasetError(str(path), f"ids from 0 to {REDDIT_NODES - 1}", f"{ids.min()} to {ids.max()}")
    return ids
