"""Feature tables of all node types behind one cache on a GPU, shared by any number of loaders."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch

from bam.array.device_group import DeviceGroup, DeviceGroupGather
from bam.cache.device.reads import ConstantRows
from gids.fetch.buffer_load import BufferLoad
from gids.fetch.cuda.buffers import PlacedRows
from gids.fetch.cuda.streams import CudaStreams, HostStreams, Streams
from gids.fetch.cuda.tables import GpuTable, in_request_order
from gids.fetch.expected_requests import ExpectedRequests
from gids.fetch.storage_model import StorageModel


class Tier(Enum):
    """Where a row is for good: nowhere but in the files, in pinned memory (or the host's), in the GPU's."""

    STORED = 0
    PINNED = 1
    RESIDENT = 2


N_TIERS = len(Tier)


class GpuFeatureStore:
    """Feature tables of all node types on a GPU.

    Parameters
    ----------
    group : DeviceGroup
        Their rows; owned by this object.
    tables : sequence of GpuTable
    device : torch.device
    pinned, resident : mapping of str to PlacedRows
        Constant rows in pinned memory and in the GPU's.
    storage : StorageModel
    keeps_all : bool
        The cache has room for every page, so nothing is ever given up and looking ahead would be for nothing.
    requests : ExpectedRequests, optional
    load : BufferLoad, optional
        That fills the buffers; stopped with this object.

    Attributes
    ----------
    mostly_kept : bool
        It keeps all, and the last mini-batch found most of its pages.
    settled : bool
        It keeps all, and the last mini-batch found all its pages: most likely nothing is read any more.
    """

    def __init__(
        self,
        group: DeviceGroup,
        tables: Sequence[GpuTable],
        device: torch.device,
        *,
        pinned: Mapping[str, PlacedRows],
        resident: Mapping[str, PlacedRows],
        storage: StorageModel,
        keeps_all: bool,
        requests: ExpectedRequests | None,
        load: BufferLoad | None,
    ) -> None:
        self.group, self.device, self.storage = group, device, storage
        self.ordered = in_request_order(tables)
        self.tables = {table.name: table for table in self.ordered}
        self.keeps_all, self.mostly_kept, self.settled, self.requests = keeps_all, False, False, requests
        self._pinned, self._resident = dict(pinned), dict(resident)
        self._load = load
        self._members: dict[tuple[Tier, str], torch.Tensor] = {}
        self._lock = threading.Lock()
        self._clock = 0

    @property
    def merges(self) -> bool:
        """Whether the controller reads neighbouring pages together."""
        return self.group.store.merge_bytes > self.page_bytes

    @property
    def page_bytes(self) -> int:
        """Of the cache."""
        return self.group.store.page_bytes

    @property
    def reads_files(self) -> bool:
        """Whether any table is not in the host's memory."""
        return any(not table.in_memory for table in self.ordered)

    @property
    def n_pages(self) -> int:
        """Of all its rows."""
        return -(-self.group.store.layout.logical_bytes // self.page_bytes)

    @property
    def cache_bytes(self) -> int:
        """Pages that the cache holds, in bytes."""
        cache = self.group.store.cache
        return 0 if cache is None else cache.n_pages * self.page_bytes

    def streams(self) -> Streams:
        """For one iteration."""
        if self.device.type == "cpu":
            return HostStreams()
        return CudaStreams(self.device, self.group.store.gpu.stream_address)

    def next_number(self) -> int:
        """A number for the next mini-batch that is read through this store: higher than all before."""
        with self._lock:
            self._clock += 1
            return self._clock

    def constant(self) -> dict[str, ConstantRows]:
        """Rows in pinned memory at this moment, by node type."""
        return {name: placed.now() for name, placed in self._pinned.items()}

    def resident(self) -> dict[str, ConstantRows]:
        """Rows in the GPU's memory for good at this moment, by node type."""
        return {name: placed.now() for name, placed in self._resident.items()}

    @property
    def is_filling(self) -> bool:
        """Not all of the constant rows are there yet."""
        held = [*self._pinned.values(), *self._resident.values()]
        return any(each.buffer.n_loaded < each.buffer.n_rows for each in held)

    def tiers_of(self, table: GpuTable, rows: torch.Tensor) -> torch.Tensor:
        """:class:`Tier` of each row once the constant rows are there, int64; on the current stream."""
        found = torch.full_like(rows, (Tier.PINNED if table.in_memory else Tier.STORED).value)
        # Kernels look in the GPU's own memory first.
        for tier, held in ((Tier.PINNED, self._pinned), (Tier.RESIDENT, self._resident)):
            placed = held.get(table.name)
            if placed is not None:
                found[self._holds(tier, table.name, placed, rows)] = tier.value
        return found

    def _holds(self, tier: Tier, name: str, placed: PlacedRows, rows: torch.Tensor) -> torch.Tensor:
        row_set = placed.buffer.row_set
        if row_set is None:
            return rows < placed.buffer.n_rows
        if (tier, name) not in self._members:
            words = torch.from_numpy(row_set.words.view(np.uint8))  # row r: bit r % 8 of byte r // 8
            self._members[tier, name] = words.to(self.device)
        return (self._members[tier, name][rows >> 3].long() >> (rows & 7) & 1).bool()

    def begin(
        self,
        rows: Mapping[str, Any],
        out: Mapping[str, Any],
        next_use: Mapping[str, Any] | None,
        out_rows: Mapping[str, Any] | None = None,
    ) -> DeviceGroupGather:
        """Gather rows of node types on the store's stream; see :meth:`bam.DeviceGroup.begin`."""
        return self.group.begin(
            rows,
            out,
            next_use=next_use,
            out_rows=out_rows,
            constant=self.constant(),
            resident=self.resident(),
            counted=True,
            stream=self.group.store.gpu.stream_address,
        )

    def note_next_use(self, rows: Mapping[str, Any], number: int) -> None:
        """Mini-batch `number`, which is begun later, needs these rows; on the store's stream."""
        self.group.note_next_use(
            rows,
            number,
            constant=self.constant(),
            resident=self.resident(),
            stream=self.group.store.gpu.stream_address,
        )

    def wait_until_loaded(self) -> None:
        """Wait until the constant buffers are full.

        Raises
        ------
        BamError
            Some of their rows cannot be read.
        """
        if self._load is not None:
            self._load.wait()

    def device_bytes(self) -> dict[str, int]:
        """Memory of the GPU by what it is for."""
        cache = self.group.store.cache
        return {
            "cache": 0 if cache is None else self.cache_bytes + cache.state_bytes,
            "gpu_buffer": sum(placed.buffer.nbytes for placed in self._resident.values()),
            "tables": sum(table.device_bytes for table in self.ordered),
        }

    def describe(self) -> dict[str, Any]:
        """Which path really runs, by node type."""
        store = self.group.store
        info, controller = self.group.engine_info(), store.controller_stats()
        described: dict[str, Any] = {}
        for name, table in self.tables.items():
            described[name] = {
                "table": "memory" if table.in_memory else "stored",
                "reader": "gpu",
                "engine": "none" if table.in_memory else info.engine,
                "direct": info.direct,
                "page_bytes": self.page_bytes,
                "cache_lines": 0 if store.cache is None else store.cache.n_pages,
                "engine_reads": controller.reads,
                "pages_per_read": round(controller.commands_per_read, 3),
                "notes": list(info.notes),
            }
            for kind, held in (("constant", self._pinned), ("resident", self._resident)):
                if name in held:
                    buffer = held[name].buffer
                    described[name] |= {
                        f"{kind}_rows": buffer.n_rows,
                        f"{kind}_rows_loaded": buffer.n_loaded,
                        f"{kind}_bytes": buffer.nbytes,
                    }
                    if self._load is not None and (path := self._load.path_of(held[name].filled)):
                        described[name][f"{kind}_path"] = path
            if self._load is not None and self._load.error is not None:
                described[name]["constant_error"] = str(self._load.error)
        return described

    def close(self) -> None:
        """Close everything; calling it again does nothing."""
        if self._load is not None:
            self._load.stop()
        self.group.close()
