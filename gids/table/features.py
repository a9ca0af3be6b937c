"""Columns of Arrow tables as node features of a loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bam
from bam.errors import ConfigError
from gids.fetch.column_table import ColumnTable
from gids.table.table import ArrowTable


def column_features(
    node_type: str, table: ArrowTable, columns: Sequence[str], *, cache: int | str = "64MiB", **settings: Any
) -> ColumnTable:
    """Numeric columns side by side as the features of a node type, for ``features=`` of a loader.

    A fixed-size list needs none of this: ``table.column(name)`` is a virtual array of its rows.

    Parameters
    ----------
    node_type : str
    table : ArrowTable
        May be closed afterwards.
    columns : sequence of str
        All of one type, in the order they get in a row.
    cache : int or str
        One page cache for all columns.
    **settings
        See :func:`bam.open_array`: engine, queue_depth ...

    Raises
    ------
    UnknownColumn, TableError, ConfigError
    """
    if len(set(columns)) != len(columns):
        raise ConfigError("columns", list(columns), "each column once")
    shared = bam.SharedCache(cache, page_bytes=4096, policy="look_ahead")
    arrays: dict[str, bam.VirtualArray] = {}
    try:
        for name in columns:
            arrays[name] = table.column(name, cache=shared, page_bytes=4096, **settings)
        return ColumnTable(node_type, arrays)
    except BaseException:
        for array in arrays.values():
            array.close()
        raise
