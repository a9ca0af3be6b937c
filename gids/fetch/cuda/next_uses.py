"""When rows are needed again, worked out on the GPU: exact inside the window, estimated beyond it.

What :mod:`gids.fetch.window` and :mod:`gids.fetch.forecast` do on the host, with the same numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bam.cache.device.gpu import Gpu
from bam.errors import ConfigError
from gids.fetch.cuda.structs import COUNTS, MAX_LATER, MAX_TABLES, RUNS, UNKNOWN, CUseRequest, CUseTable
from gids.fetch.cuda.tables import GpuTable
from gids.fetch.expected_requests import ExpectedRequests
from gids.fetch.forecast import EpochProgress

NATIVE_FOLDER = Path(__file__).parent.parent / "native"


@dataclass(frozen=True, eq=False)
class WindowPages:
    """Pages that a mini-batch in the window will read.

    Attributes
    ----------
    number : int
        Place of the mini-batch in the order of reading.
    pages : int64 tensor
        Rising; in the store's address space.
    """

    number: int
    pages: torch.Tensor


class NextUses:
    """Next uses for one iteration. Used by one thread, on the store's stream.

    Parameters
    ----------
    gpu : Gpu
    tables : sequence of GpuTable
        Those with pages, in the order in which rows are given.
    page_bytes : int
    requests : ExpectedRequests, optional
        Without, rows of hot-first stores are estimated by their degree.
    progress : EpochProgress
    device : torch.device

    Raises
    ------
    ConfigError
        More tables than kernels take.
    """

    def __init__(
        self,
        gpu: Gpu,
        tables: Sequence[GpuTable],
        page_bytes: int,
        requests: ExpectedRequests | None,
        progress: EpochProgress,
        device: torch.device,
    ) -> None:
        if len(tables) > MAX_TABLES:
            raise ConfigError("features", f"{len(tables)} node types", f"at most {MAX_TABLES} in files")
        # Rounded like the host's: an estimate decides which page goes.
        gpu.add_kernels(NATIVE_FOLDER / "next_uses.cu", include=[NATIVE_FOLDER], options=["--fmad=false"])
        self._gpu, self._tables, self._device = gpu, list(tables), device
        self._shift, self._progress = page_bytes.bit_length() - 1, progress
        self._dispersion = None if requests is None else requests.dispersion
        self._counts = torch.zeros(256, dtype=torch.float32, device=device)
        self._seen = [
            None if table.levels is None else torch.zeros(table.n_rows, dtype=torch.uint8, device=device)
            for table in tables
        ]
        records = (CUseTable * max(1, len(tables)))()
        for record, table, seen in zip(records, tables, self._seen, strict=False):
            _describe(record, table, seen)
        self._records = gpu.upload(np.frombuffer(bytes(records), np.uint8))
        self._upload_counts()

    def announce(self, rows: torch.Tensor, firsts: Sequence[int]) -> None:
        """The next mini-batch will read `rows`; those of table i from ``firsts[i]`` to ``firsts[i + 1]``."""
        if self._progress.announce():
            for seen in self._seen:
                if seen is not None:
                    seen.zero_()
            self._upload_counts()
        if any(seen is not None for seen in self._seen):
            self._launch("gids_count_requests", self._request(rows, firsts))

    def find(self, rows: torch.Tensor, firsts: Sequence[int], later: Sequence[WindowPages]) -> torch.Tensor:
        """Next use of each row; uint64 as int64, shape (rows,). Beyond the last table's rows: anything.

        Parameters
        ----------
        rows : int64 tensor
        firsts : sequence of int
            As in :meth:`announce`.
        later : sequence of WindowPages
            Mini-batches in the window, the nearest first.
        """
        uses = torch.empty(len(rows), dtype=torch.int64, device=self._device)
        request = self._request(rows, firsts)
        request.uses = uses.data_ptr()
        for first in range(0, max(1, len(later)), MAX_LATER):
            part = later[first : first + MAX_LATER]
            request.begins, request.n_later = int(first == 0), len(part)
            for record, batch in zip(request.later, part, strict=False):
                record.pages, record.n_pages = batch.pages.data_ptr(), len(batch.pages)
                record.number = batch.number
            self._launch("gids_next_uses", request)
        return uses

    def _request(self, rows: torch.Tensor, firsts: Sequence[int]) -> CUseRequest:
        request = CUseRequest()
        request.tables, request.rows = self._records.address, rows.data_ptr()
        request.counts = self._counts.data_ptr()
        request.passed = self._progress.passed
        request.correction = 0.0 if self._dispersion is None else self._progress.correction(self._dispersion)
        request.n_tables, request.page_shift = len(self._tables), self._shift
        for number, first in enumerate(firsts):
            request.firsts[number] = first
        return request

    def _launch(self, kernel: str, request: CUseRequest) -> None:
        if request.firsts[request.n_tables]:
            self._gpu.launch(kernel, self._gpu.list_grid, [request])

    def _upload_counts(self) -> None:
        self._counts.copy_(torch.from_numpy(self._progress.counts))


def _describe(record: CUseTable, table: GpuTable, seen: torch.Tensor | None) -> None:
    record.row_bytes, record.first_byte, record.n_rows = table.row_bytes, table.first_byte, table.n_rows
    record.estimate = UNKNOWN
    if table.levels is not None and seen is not None:
        record.estimate = COUNTS
        record.levels, record.seen = table.levels.data_ptr(), seen.data_ptr()
    elif table.run_ends is not None and table.run_uses is not None:
        record.estimate = RUNS
        record.run_ends, record.run_uses = table.run_ends.data_ptr(), table.run_uses.data_ptr()
        record.n_runs = len(table.run_ends)


assert ctypes.sizeof(CUseRequest) < 4096, "a kernel's arguments"
