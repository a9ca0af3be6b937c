"""Edges that an npy file or an npz archive holds as two rows."""

from __future__ import annotations

from gids.errors import DatasetError
from gids.formats.array_files import StoredArray
from gids.formats.staging import Staging
from gids.graph.edge_array import EdgeArray


def edges_of(stored: StoredArray, staging: Staging, name: str) -> EdgeArray:
    """Edges of shape (2, edges), whichever order they are stored in.

    Raises
    ------
    DatasetError
    """
    if len(stored.shape) != 2 or stored.shape[0] != 2 or stored.dtype.kind not in "iu":
        expected = "whole numbers of shape (2, edges): sources and destinations"
        raise DatasetError(stored.where, expected, f"{stored.dtype} of shape {stored.shape}")
    return EdgeArray(stored.describe(staging, name), two_rows=not stored.fortran)
