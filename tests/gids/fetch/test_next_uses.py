"""Next uses that a GPU works out are the host's, in every bit (kernels run on the host here)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bam" / "cache" / "device"))

from emulated_gpu import EmulatedGpu

from gids.fetch.cuda.next_uses import NextUses, WindowPages
from gids.fetch.cuda.tables import GpuTable
from gids.fetch.expected_requests import ExpectedRequests, HotnessMethod, levels_of_counts
from gids.fetch.forecast import EpochProgress, Forecast
from gids.fetch.table import FeatureTable, estimates_of
from gids.fetch.window import HORIZON, FutureBatch, RowPages, Window, WindowEntry

PAGE = 512
#: Row bytes and rows of each table: below, at, over and across pages.
SHAPES = {"a": (64, 900), "b": (512, 300), "c": (700, 200), "d": (2048, 70)}


class Table(FeatureTable):
    """Rows that nobody reads."""

    in_memory = False
    page_bytes = PAGE

    def __init__(self, name: str, degrees: np.ndarray | None) -> None:
        self.name, self.dtype = name, torch.int8
        row_bytes, self.n_rows = SHAPES[name]
        self.row_shape = (row_bytes,)
        self._degrees = degrees

    def estimates(self, rows):
        if self._degrees is None:
            return super().estimates(rows)
        ends = np.cumsum(self._degrees[:, 1])
        hottest = rows * self.row_bytes // PAGE * PAGE // self.row_bytes
        return estimates_of(self._degrees[:, 0])[np.searchsorted(ends, hottest, side="right")]

    def pages_of(self, rows):
        first = rows * self.row_bytes // PAGE
        last = (rows * self.row_bytes + self.row_bytes - 1) // PAGE
        return RowPages.of(first, first) if PAGE % self.row_bytes == 0 else RowPages.of(first, last)

    def read(self, rows, out, out_rows, next_use): ...
    def foresee(self, rows, number): ...
    def forget(self): ...
    def counts(self): ...
    def describe(self): ...
    def close(self): ...


def degrees_of(n_rows: int) -> np.ndarray:
    """Rows of falling degree, in uneven runs."""
    counts = np.array([3, 10, 40, n_rows - 53])
    return np.stack([[50, 9, 2, 0], counts], axis=1)


def gpu_tables(tables: dict[str, Table], requests: ExpectedRequests | None) -> list[GpuTable]:
    found, first_byte = [], 0
    for name, table in tables.items():
        row_bytes, n_rows = SHAPES[name]
        ends = uses = None
        if table._degrees is not None:
            ends = torch.from_numpy(np.cumsum(table._degrees[:, 1]))
            beyond = np.append(estimates_of(table._degrees[:, 0]), np.uint64(2 * HORIZON - 1))
            uses = torch.from_numpy(beyond.view(np.int64))
        levels = None if requests is None else torch.from_numpy(np.array(requests.levels[name]))
        settings = {"levels": levels, "run_ends": ends, "run_uses": uses}
        found.append(GpuTable(name, n_rows, (row_bytes,), torch.int8, first_byte, False, **settings))
        first_byte += -(-row_bytes * n_rows // PAGE) * PAGE
    return found


@pytest.mark.parametrize("knows", ["nothing", "degrees", "requests"])
@pytest.mark.parametrize("window", [0, 3, 70])
def test_next_uses_are_the_hosts(knows: str, window: int) -> None:
    rng = np.random.default_rng(window)
    tables = {
        name: Table(name, degrees_of(n_rows) if knows == "degrees" else None)
        for name, (_, n_rows) in SHAPES.items()
    }
    requests = None
    if knows == "requests":
        levels = {name: levels_of_counts(rng.random(n_rows) * 9) for name, (_, n_rows) in SHAPES.items()}
        requests = ExpectedRequests(HotnessMethod.MEASURED, 20, 2, 0.3, levels, {})
    n_batches = window + 12
    batches = [
        {name: rng.permutation(n_rows)[: rng.integers(0, 12)] for name, (_, n_rows) in SHAPES.items()}
        for _ in range(n_batches)
    ]
    # The second half is another epoch, of other length: what was seen is forgotten at its start.
    host, host_window = Forecast(tables, requests, n_batches // 2, n_batches), Window()
    on_gpu = gpu_tables(tables, requests)
    progress = EpochProgress(requests, n_batches // 2, n_batches)
    device = NextUses(EmulatedGpu(), on_gpu, PAGE, requests, progress, torch.device("cpu"))
    entries, later = [], []
    for number, batch in enumerate(batches):
        rows = {name: ids.astype(np.int64) for name, ids in batch.items()}
        entry = WindowEntry(number, rows, {name: tables[name].pages_of(ids) for name, ids in rows.items()})
        host_window.push(FutureBatch(number, {name: each.distinct for name, each in entry.pages.items()}))
        host.announce(rows)
        flat = torch.from_numpy(np.concatenate([rows[table.name] for table in on_gpu]))
        firsts = np.cumsum([0, *(len(rows[table.name]) for table in on_gpu)]).tolist()
        device.announce(flat, firsts)
        pages = [
            page for table in on_gpu for page in table.pages_of(torch.from_numpy(rows[table.name]), PAGE)
        ]
        later.append(WindowPages(number, torch.sort(torch.cat(pages)).values))
        entries.append((entry, flat, firsts))
        if len(entries) <= window:
            continue
        entry, flat, firsts = entries.pop(0)
        assert host_window.pop().number == entry.number
        later.pop(0)
        beyond = {name: host.estimates(name, ids) for name, ids in entry.rows.items()}
        expected = host_window.next_uses(entry, beyond)
        found = device.find(flat, firsts, later).numpy().view(np.uint64)
        np.testing.assert_array_equal(found, np.concatenate([expected[table.name] for table in on_gpu]))
