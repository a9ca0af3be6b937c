"""Epochs are exact for every window, whether or not it reaches over their ends.

The three mistakes of a window that is kept in the shared store: the first epoch loses its last W
mini-batches, the next one begins with them, and a loader of other seeds is given training mini-batches.
"""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import bam
from bam.errors import ConfigError
from gids.fetch.expected_requests import ExpectedRequests, HotnessMethod, levels_of_counts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import StoredTable
from gids.fetch.window_size import WindowSize, parse_window
from gids.graph.graph import Graph
from gids.loader.loader import DataLoader
from gids.loader.minibatch import MiniBatch
from gids.sampling.neighbor import NeighborSampler

N_NODES, BATCH_SIZE = 60, 5
TRAIN, TEST = np.arange(25), np.arange(25, 40)
N_BATCHES = 5
#: An epoch has 5 mini-batches, so this is below, at and far beyond its length.
EVERY_WINDOW = (*range(1, 13), 16, 32, 64)
ROWS = np.random.default_rng(0).standard_normal((N_NODES, 128)).astype(np.float32)


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(1)
    edges = random.integers(0, N_NODES, 200), random.integers(0, N_NODES, 200)
    return Graph.from_coo({("a", "to", "a"): edges}, {"a": N_NODES})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "a.npy"
    np.save(path, ROWS)
    return path


def store_of(path: Path, lines: int = 6) -> FeatureStore:
    """A page a row; a cache for a tenth of them."""
    cache = bam.SharedCache(f"{lines} lines", page_bytes=512, policy="look_ahead_global")
    levels = {"a": levels_of_counts(np.arange(N_NODES) / 9)}
    requests = ExpectedRequests(HotnessMethod.MEASURED, N_BATCHES, 2, 0.2, levels, {})
    table = StoredTable("a", bam.open_array(path, cache=cache, page_bytes=512))
    return FeatureStore({"a": table}, requests=requests)


def loader(
    graph: Graph, store: FeatureStore, window: int | str, crosses: bool = True, **settings: object
) -> DataLoader:
    defaults = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 3, "indices": TRAIN}
    settings = defaults | settings
    return DataLoader(
        graph,
        settings.pop("indices"),
        NeighborSampler([2, 2], seed=5),
        features=store,
        window=window,
        cross_epochs=crosses,
        accumulate=0,
        **settings,
    )


def name_of(batch: MiniBatch) -> tuple[int, int, tuple[int, ...]]:
    """Which mini-batch it is; its features are checked on the way."""
    nodes = batch.nodes["a"]
    assert torch.equal(batch.features["a"], torch.from_numpy(ROWS[nodes]))
    return batch.epoch, batch.index, tuple(nodes.tolist())


@pytest.fixture(scope="module")
def expected(graph: Graph, path: Path) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Three epochs without a window."""
    store = store_of(path)
    with loader(graph, store, 0, crosses=False) as plain:
        epochs = [[name_of(batch) for batch in plain] for _ in range(3)]
    store.close()
    return epochs


@pytest.mark.parametrize("crosses", [False, True])
def test_the_first_epoch_does_not_lose_its_last_w_mini_batches(
    graph: Graph, path: Path, expected: list[list[tuple[int, int, tuple[int, ...]]]], crosses: bool
) -> None:
    for window in EVERY_WINDOW:
        store = store_of(path)
        with loader(graph, store, window, crosses) as ours:
            first = [name_of(batch) for batch in ours]
        assert len(first) == N_BATCHES
        assert first == expected[0], window
        store.close()


@pytest.mark.parametrize("crosses", [False, True])
def test_the_next_epoch_does_not_begin_with_stale_mini_batches(
    graph: Graph, path: Path, expected: list[list[tuple[int, int, tuple[int, ...]]]], crosses: bool
) -> None:
    for window in EVERY_WINDOW:
        store = store_of(path)
        with loader(graph, store, window, crosses) as ours:
            found = [[name_of(batch) for batch in ours] for _ in range(3)]
        assert found == expected, window
        for epoch, batches in enumerate(found):
            assert {name[0] for name in batches} == {epoch}
        store.close()


@pytest.mark.parametrize("crosses", [False, True])
def test_a_test_loader_is_not_given_training_mini_batches(graph: Graph, path: Path, crosses: bool) -> None:
    """Both read through one store, and the training loader's next epoch is under way meanwhile."""
    for window in EVERY_WINDOW:
        store = store_of(path)
        train = loader(graph, store, window, crosses)
        test = loader(graph, store, window, crosses, indices=TEST, shuffle=False)
        for _ in range(2):
            seeds = [seed for batch in train for seed in batch.output_nodes["a"].tolist()]
            assert sorted(seeds) == TRAIN.tolist(), window
            tested = []
            for batch in test:
                name_of(batch)
                tested += batch.output_nodes["a"].tolist()
            assert tested == TEST.tolist(), window
        train.close()
        test.close()
        store.close()


def test_a_window_over_the_end_of_an_epoch_reads_less(graph: Graph, path: Path) -> None:
    """What the next epoch's first mini-batches need is not given up at the end of one."""
    read = {}
    for crosses in (False, True):
        store = store_of(path, lines=15)
        with loader(graph, store, 4, crosses) as ours:
            for _ in range(12):
                for batch in ours:
                    name_of(batch)
            read[crosses] = ours.metrics().total.pages_read
        store.close()
    assert read[True] < read[False]


def test_other_epochs_and_states_end_what_was_under_way(
    graph: Graph, path: Path, expected: list[list[tuple[int, int, tuple[int, ...]]]]
) -> None:
    store = store_of(path)
    with loader(graph, store, 8) as ours:
        assert [name_of(batch) for batch in ours] == expected[0]
        ours.set_epoch(0)
        assert [name_of(batch) for batch in ours] == expected[0]
        ours.set_epoch(1)  # as it would be anyway
        iterator = iter(ours)
        begun = [name_of(next(iterator)), name_of(next(iterator))]
        state = ours.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 2)
        ours.load_state_dict(state)
        assert begun + [name_of(batch) for batch in ours] == expected[1]
        assert [name_of(batch) for batch in ours] == expected[2]
    store.close()


def test_resumed_in_the_middle_it_goes_on_into_the_next_epoch(
    graph: Graph, path: Path, expected: list[list[tuple[int, int, tuple[int, ...]]]]
) -> None:
    store = store_of(path)
    with loader(graph, store, 3) as ours:
        iterator = iter(ours)
        for _ in range(3):
            next(iterator)
        state = ours.state_dict()
    with loader(graph, store, 3) as resumed:
        resumed.load_state_dict(state)
        assert [name_of(batch) for batch in resumed] == expected[0][3:]
        assert [name_of(batch) for batch in resumed] == expected[1]
    store.close()


def test_a_loader_that_is_dropped_ends_the_epoch_nobody_asked_for(graph: Graph, path: Path) -> None:
    store = store_of(path)
    before = threading.active_count()
    ours = loader(graph, store, 8)
    for _ in ours:
        pass
    assert threading.active_count() > before
    del ours
    gc.collect()
    assert threading.active_count() == before
    store.close()


def test_no_seeds_and_no_end(graph: Graph, path: Path) -> None:
    store = store_of(path)
    with loader(graph, store, 8, indices=np.arange(3), drop_last=True) as ours:
        assert len(ours) == 0
        assert [list(ours), list(ours)] == [[], []]
    store.close()


def test_sizes_of_a_window() -> None:
    assert parse_window(3, 0) == WindowSize(3)
    assert parse_window("2MiB", 0) == WindowSize(64, 2**21)
    assert parse_window("auto", 100) == WindowSize(32, 800, 4)
    for wrong in (-1, True, 2.5, "many"):
        with pytest.raises(ConfigError, match="window"):
            parse_window(wrong, 0)
    assert [WindowSize(2).wants_more(n, 0) for n in range(4)] == [True, True, False, False]
    by_bytes = WindowSize(64, 1000, 2)
    assert by_bytes.wants_more(1, 5000)
    assert by_bytes.wants_more(5, 999)
    assert not by_bytes.wants_more(5, 1000)
    assert not by_bytes.wants_more(64, 0)


@pytest.mark.parametrize("window", ["auto", "4KiB", "1MiB"])
def test_a_window_in_bytes_gives_the_same_mini_batches(
    graph: Graph, path: Path, expected: list[list[tuple[int, int, tuple[int, ...]]]], window: str
) -> None:
    store = store_of(path)
    with loader(graph, store, window) as ours:
        assert [[name_of(batch) for batch in ours] for _ in range(3)] == expected
    store.close()
