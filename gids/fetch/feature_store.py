"""Feature tables of all node types, shared by any number of loaders."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from gids.errors import UnknownNodeType
from gids.fetch.buffer_load import BufferLoad
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.counts import FetchCounts
from gids.fetch.expected_requests import ExpectedRequests
from gids.fetch.storage_model import StorageModel
from gids.fetch.table import FeatureTable


class FeatureStore:
    """Feature tables of all node types with their constant buffers, shared by any number of loaders.

    Parameters
    ----------
    tables : mapping of str to FeatureTable
        Owned by this object.
    buffers : mapping of str to ConstantBuffer
    storage : StorageModel, optional
        What is known of the files' storage, and how they are read.
    keeps_all : bool
        The cache has room for every page, so nothing is ever given up and looking ahead would be for nothing.
    requests : ExpectedRequests, optional
        How often an epoch asks for each row.
    load : BufferLoad, optional
        That fills the buffers; stopped with this object.

    Attributes
    ----------
    settled : bool
        It keeps all, and the last group found all its pages: most likely nothing is read any more, and reads
        need no planning. The next one that reads something after all ends this state.
    """

    def __init__(
        self,
        tables: Mapping[str, FeatureTable],
        buffers: Mapping[str, ConstantBuffer] | None = None,
        storage: StorageModel | None = None,
        keeps_all: bool = False,
        requests: ExpectedRequests | None = None,
        load: BufferLoad | None = None,
    ) -> None:
        self.tables = dict(tables)
        self.buffers = dict(buffers or {})
        self._load = load
        self.storage = storage or StorageModel()
        self.keeps_all, self.settled = keeps_all, False
        self.requests = requests
        self._lock = threading.Lock()
        self._clock = 0

    def table(self, name: str) -> FeatureTable:
        """Features of a node type.

        Raises
        ------
        UnknownNodeType
        """
        if name not in self.tables:
            raise UnknownNodeType(name, self.tables)
        return self.tables[name]

    def wait_until_loaded(self) -> None:
        """Wait until the constant buffers are full.

        Raises
        ------
        BamError
            Some of their rows cannot be read.
        """
        if self._load is not None:
            self._load.wait()

    def next_number(self) -> int:
        """A number for the next mini-batch that is read through this store: higher than all before."""
        with self._lock:
            self._clock += 1
            return self._clock

    @property
    def cache_bytes(self) -> int:
        """Pages that the tables' cache holds, in bytes; 0 without one."""
        return max((table.cache_bytes for table in self.tables.values()), default=0)

    @property
    def cache_lines(self) -> int:
        """Pages that the tables' cache holds; 0 without one."""
        return max((table.cache_bytes // table.page_bytes for table in self.tables.values()), default=0)

    def counts(self) -> dict[str, FetchCounts]:
        """What was counted since the store was opened, by node type; constant rows are not in it."""
        return {name: table.counts() for name, table in self.tables.items()}

    def describe(self) -> dict[str, Any]:
        """Which path really runs, by node type."""
        described = {name: table.describe() for name, table in self.tables.items()}
        for name, buffer in self.buffers.items():
            described[name] |= {
                "constant_rows": buffer.n_rows,
                "constant_rows_loaded": buffer.n_loaded,
                "constant_bytes": buffer.nbytes,
                "constant_row_bytes": buffer.n_rows * buffer.row_bytes,
            }
            if self._load is not None and (path := self._load.path_of(buffer)):
                described[name]["constant_path"] = path
            if self._load is not None and self._load.error is not None:
                described[name]["constant_error"] = str(self._load.error)
        return described

    def close(self) -> None:
        """Close all tables; calling it again does nothing."""
        if self._load is not None:
            self._load.stop()
        for table in self.tables.values():
            table.close()
