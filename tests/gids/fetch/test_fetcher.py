"""Features of mini-batches, whatever the tables, cache, constant buffer and window."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import bam
from gids.fetch.constant_buffer import ConstantBuffer, choose_hot_rows, parse_share
from gids.fetch.counts import total
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.output_pool import OutputPool
from gids.fetch.table import MemoryTable, StoredTable, as_table

N_ROWS = 700
BATCHES = 12


@dataclass(frozen=True)
class Nodes:
    """What a fetcher needs of a sampled mini-batch."""

    nodes: dict[str, np.ndarray]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    rows = {
        "paper": random.standard_normal((N_ROWS, 96)).astype(np.float32),
        "author": random.standard_normal((N_ROWS // 2, 1024)).astype(np.float32),
        "fos": random.integers(-99, 99, (50, 7)).astype(np.int8),
    }
    for name, each in rows.items():
        np.save(tmp_path / f"{name}.npy", each)
    return rows


def trace(rows: dict[str, np.ndarray]) -> list[Nodes]:
    random = np.random.default_rng(4)
    return [
        Nodes(
            {
                name: random.permutation(len(each))[: int(random.integers(0, len(each) // 3))].astype(
                    np.int64
                )
                for name, each in rows.items()
            }
        )
        for _ in range(BATCHES)
    ]


def stored(folder: Path, cache: str, policy: str = "look_ahead") -> dict[str, StoredTable]:
    shared = bam.SharedCache(cache, policy=policy)
    return {
        name: StoredTable(name, bam.open_array(folder / f"{name}.npy", cache=shared))
        for name in ("paper", "author", "fos")
    }


def run(store: FeatureStore, batches: list[Nodes], window: int) -> list:
    fetcher = Fetcher(store, OutputPool())
    results, waiting = [], list(batches)
    while waiting or len(fetcher):
        while waiting and len(fetcher) <= window:
            fetcher.announce(waiting.pop(0))
        results.append(fetcher.fetch()[1])
    fetcher.close()
    return results


@pytest.mark.parametrize("window", [0, 1, 5, 40])
@pytest.mark.parametrize("cache", ["1 lines", "40 lines", "4MiB"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_bytes_are_those_of_the_files(
    files: dict[str, np.ndarray], tmp_path: Path, window: int, cache: str, share: float
) -> None:
    tables = stored(tmp_path, cache)
    random = np.random.default_rng(5)
    buffers = {
        name: ConstantBuffer(table, np.flatnonzero(random.random(table.n_rows) < share))
        for name, table in tables.items()
    }
    store = FeatureStore(tables, buffers)
    batches = trace(files)
    for batch, fetched in zip(batches, run(store, batches, window), strict=True):
        for name, rows in files.items():
            np.testing.assert_array_equal(fetched.tensors[name].numpy(), rows[batch.nodes[name]])
        counts = total(fetched.counts.values())
        assert counts.rows_requested == sum(map(len, batch.nodes.values()))
        places = (counts.rows_constant, counts.rows_cache, counts.rows_joined, counts.rows_storage)
        assert sum(places) == counts.rows_requested
        if share == 1.0:
            assert counts.rows_constant == counts.rows_requested
    store.close()


def test_looking_ahead_reads_less(files: dict[str, np.ndarray], tmp_path: Path) -> None:
    reads = {}
    for window, policy in ((0, "clock"), (8, "look_ahead")):
        store = FeatureStore(stored(tmp_path, "120 lines", policy))
        reads[window] = sum(
            total(each.counts.values()).pages_read for each in run(store, trace(files), window)
        )
        store.close()
    assert reads[8] < 0.9 * reads[0]


def test_a_cache_with_room_for_everything_reads_each_page_once_and_stops_planning(
    files: dict[str, np.ndarray], tmp_path: Path
) -> None:
    tables = stored(tmp_path, "6MiB", "look_ahead_global")
    foreseen = []
    for table in tables.values():
        table.foresee = lambda rows, number: foreseen.append(number)
    store = FeatureStore(tables, keeps_all=True)
    batches = trace(files)
    for attempt in range(3):
        before = {name: counts.pages_read for name, counts in store.counts().items()}
        for batch, fetched in zip(batches, run(store, batches, 4), strict=True):
            for name, rows in files.items():
                np.testing.assert_array_equal(fetched.tensors[name].numpy(), rows[batch.nodes[name]])
        for name, counts in store.counts().items():
            row_bytes = files[name][0].nbytes
            wanted = np.unique(np.concatenate([batch.nodes[name] for batch in batches])) * row_bytes
            pages = set(wanted // 4096) | set((wanted + row_bytes - 1) // 4096)
            assert counts.pages_read - before[name] == (0 if attempt else len(pages))
        assert store.settled or attempt == 0
    # Rows nobody asked for so far are read all the same, and planning goes on until all is there again.
    every = [Nodes({name: np.arange(len(rows)) for name, rows in files.items()})]
    (fetched,) = run(store, every, 0)
    assert total(fetched.counts.values()).pages_read > 0
    assert not store.settled
    assert not foreseen
    store.close()


def test_counts_repeat(files: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = []
    for _ in range(3):
        store = FeatureStore(stored(tmp_path, "60 lines"))
        found.append([total(each.counts.values()) for each in run(store, trace(files), 3)])
        store.close()
    assert found[0] == found[1] == found[2]


def test_tables_in_memory_are_not_copied_and_count_as_constant() -> None:
    rows = torch.arange(24, dtype=torch.bfloat16).reshape(6, 4)
    table = as_table("paper", rows)
    assert isinstance(table, MemoryTable)
    fetched = run(FeatureStore({"paper": table}), [Nodes({"paper": np.array([5, 0, 5])})], 0)[0]
    assert torch.equal(fetched.tensors["paper"], rows[[5, 0, 5]])
    assert fetched.counts["paper"].rows_constant == 3
    rows[0] = 7
    assert torch.equal(
        run(FeatureStore({"paper": table}), [Nodes({"paper": np.array([0])})], 0)[0].tensors["paper"][0],
        rows[0],
    )


def test_outputs_are_used_again_only_when_they_are_gone() -> None:
    pool = OutputPool()
    first = pool.empty(1000, (8,), torch.float32)
    first[:] = 1
    second = pool.empty(1000, (8,), torch.float32)
    assert second.data_ptr() != first.data_ptr()
    part = first[10:20]
    address = first.data_ptr()
    del first
    third = pool.empty(1000, (8,), torch.float32)
    third[:] = 3
    assert torch.equal(part, torch.ones(10, 8))
    del part
    assert pool.empty(1000, (8,), torch.float32).data_ptr() == address


def test_hot_rows_are_chosen_over_all_tables_by_bytes() -> None:
    tables = {
        "a": MemoryTable("a", np.zeros((4, 8), np.uint8)),
        "b": MemoryTable("b", np.zeros((4, 2), np.uint8)),
    }
    degrees = {"a": np.array([9, 40, 1, 1]), "b": np.array([1, 3, 30, 2])}
    chosen = choose_hot_rows(tables, {}, degrees, 8 + 2 + 2)
    assert {name: rows.tolist() for name, rows in chosen.items()} == {"a": [1], "b": [1, 2]}


@pytest.mark.parametrize(
    ("value", "expected"), [(0.2, 200), ("20%", 200), (0, 0), ("100", 100), ("1KiB", 1024), (1.0, 1000)]
)
def test_shares(value: float | str, expected: int) -> None:
    assert parse_share(value, 1000, "cpu_buffer") == expected


@pytest.mark.parametrize("value", [1.5, -0.1, "x%", "most", -5])
def test_wrong_shares(value: float | str) -> None:
    with pytest.raises(bam.ConfigError, match="cpu_buffer"):
        parse_share(value, 1000, "cpu_buffer")


def test_constant_rows_take_no_room_in_the_cache(files: dict[str, np.ndarray], tmp_path: Path) -> None:
    """The more rows are constant, the less is read for the others through the same cache."""
    read = []
    for share in (0.0, 0.2, 0.5):
        tables = stored(tmp_path, "100 lines")
        buffers = {
            name: ConstantBuffer(table, np.arange(int(share * table.n_rows)))
            for name, table in tables.items()
        }
        store = FeatureStore(tables, buffers)
        read.append(sum(total(each.counts.values()).pages_read for each in run(store, trace(files), 8)))
        store.close()
    assert read[0] > 1.15 * read[1] > 1.3 * read[2]
