"""Belady's optimum of a run: the plain implementation's count, over the pages the run asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import bam
from bam.cache.belady import belady
from gids.bench.belady_gap import belady_gap, optimal_misses, page_trace
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import as_table
from gids.graph.graph import Graph
from gids.loader.loader import DataLoader
from gids.sampling.neighbor import NeighborSampler


@settings(max_examples=200)
@given(st.lists(st.integers(0, 12), max_size=80), st.integers(1, 8))
def test_misses_are_those_of_the_plain_implementation(pages: list[int], n_lines: int) -> None:
    trace = np.array(pages, np.int64)
    assert optimal_misses(trace, n_lines) == belady(trace, n_lines).misses


def test_no_cache_reads_less_than_the_optimum(tmp_path: Path) -> None:
    """Rows of 600 bytes straddle pages of 512; those of type `b` share them; some rows are constant."""
    random = np.random.default_rng(0)
    rows = {"a": random.standard_normal((300, 150)), "b": random.standard_normal((200, 4))}
    for name, each in rows.items():
        np.save(tmp_path / f"{name}.npy", each.astype(np.float32))
    graph = Graph.from_coo(
        {("b", "to", "a"): (random.integers(0, 200, 900), random.integers(0, 300, 900))}, {"a": 300, "b": 200}
    )
    cache = bam.SharedCache("64 lines", page_bytes=512, policy="look_ahead")
    tables = {
        name: as_table(name, bam.open_array(tmp_path / f"{name}.npy", cache=cache, page_bytes=512))
        for name in rows
    }
    constant = np.arange(40)
    store = FeatureStore(tables, {"a": ConstantBuffer(tables["a"], constant)})
    with DataLoader(
        graph,
        {"a": np.arange(300)},
        NeighborSampler([3]),
        batch_size=20,
        shuffle=True,
        features=store,
        accumulate=0,  # mini-batches that are read together share pages that no line holds
    ) as loader:
        before = store.counts()
        batches = [batch.sampled for batch in loader]
    misses = sum(store.counts()[name].pages_read - before[name].pages_read for name in rows)
    expected = []
    first_page = -(-300 * 600 // 512)
    for batch in batches:
        wanted = {
            page
            for node in batch.nodes["a"].tolist()
            if node >= len(constant)
            for page in range(node * 600 // 512, (node * 600 + 599) // 512 + 1)
        }
        expected += [*sorted(wanted), *sorted({first_page + node * 16 // 512 for node in batch.nodes["b"]})]
    trace = page_trace(store, batches)
    assert trace.tolist() == expected
    found = belady_gap(store, [], batches, 64, misses)
    assert found["optimal_misses"] == belady(trace, 64).misses
    assert found["pages_distinct"] <= found["optimal_misses"] <= misses < found["pages_requested"]
    assert found["gap"] == misses / found["optimal_misses"]
    rest = belady_gap(store, batches[:1], batches[1:], 64, misses)
    assert len(set(page_trace(store, batches[:1]))) + rest["optimal_misses"] == found["optimal_misses"]
    store.close()


def test_nothing_to_read_has_no_gap() -> None:
    store = FeatureStore({"a": as_table("a", np.zeros((3, 2), np.float32))})
    found = belady_gap(store, [], [], 4, 0)
    assert (found["pages_requested"], found["optimal_misses"], found["gap"]) == (0, 0, None)
