"""The loader: exact epochs for any window, resume, ranks, shutdown, errors, loaders that share a store."""

from __future__ import annotations

import gc
import hashlib
import json
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import bam
from gids.errors import (
    DuplicateSeed,
    GidsError,
    LoaderStopped,
    NodeOutOfRange,
    UnknownEdgeType,
    UnknownNodeType,
)
from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import as_table
from gids.graph.graph import Graph
from gids.loader.loader import DataLoader
from gids.loader.minibatch import MiniBatch
from gids.sampling.neighbor import NeighborSampler

NUM_NODES = {"paper": 400, "author": 150, "venue": 12, "unused": 5}
WRITES, CITES, IN = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue")
EMPTY = ("unused", "nothing", "paper")


@pytest.fixture(scope="module")
def graph() -> Graph:
    random = np.random.default_rng(0)

    def edges(source: str, destination: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        return random.integers(0, NUM_NODES[source], count), random.integers(0, NUM_NODES[destination], count)

    return Graph.from_coo(
        {
            WRITES: edges("author", "paper", 900),
            CITES: edges("paper", "paper", 1500),
            IN: edges("paper", "venue", 300),
            EMPTY: (np.empty(0, np.int64), np.empty(0, np.int64)),
        },
        NUM_NODES,
    )


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "paper": random.standard_normal((400, 100)).astype(np.float32),
        "author": random.standard_normal((150, 16)).astype(np.float16),
        "venue": random.integers(-9, 9, (12, 3)).astype(np.int8),
        "unused": random.standard_normal((5, 4)),
    }


@pytest.fixture(scope="module")
def folder(rows: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("features")
    for name, each in rows.items():
        np.save(folder / f"{name}.npy", each)
    return folder


def stored(folder: Path, cache: str = "20 lines") -> FeatureStore:
    shared = bam.SharedCache(cache, page_bytes=512, policy="look_ahead")
    arrays = {
        name: bam.open_array(folder / f"{name}.npy", cache=shared, page_bytes=512)
        for name in ("paper", "author", "venue", "unused")
    }
    return FeatureStore({name: as_table(name, array) for name, array in arrays.items()})


def loader(graph: Graph, **settings: object) -> DataLoader:
    defaults = {"batch_size": 32, "shuffle": True, "seed": 7}
    indices = settings.pop("indices", {"paper": np.arange(300)})
    return DataLoader(graph, indices, NeighborSampler([4, 3], seed=2), **(defaults | settings))


def digest(batches: Iterable[MiniBatch]) -> list[str]:
    """One digest for each mini-batch: nodes, edges and feature bytes."""
    digests = []
    for batch in batches:
        found = hashlib.sha256(f"{batch.epoch} {batch.index}".encode())
        for name, nodes in batch.nodes.items():
            found.update(name.encode() + nodes.tobytes())
        for block in batch.blocks:
            for edges in block.edges.values():
                found.update(edges.indptr.tobytes() + edges.indices.tobytes())
        for name, tensor in sorted(batch.features.items()):
            found.update(name.encode() + tensor.numpy().tobytes())
        digests.append(found.hexdigest())
    return digests


@pytest.fixture(scope="module")
def expected(graph: Graph, rows: dict[str, np.ndarray]) -> list[list[str]]:
    """Three epochs from features in memory, without looking ahead."""
    with loader(graph, features=rows, window=0) as plain:
        return [digest(plain) for _ in range(3)]


@pytest.mark.parametrize("window", [0, 1, 4, 16, 64])
@pytest.mark.parametrize("cache", ["1 lines", "400 lines"])
def test_mini_batches_are_the_same_for_any_window_and_cache(
    graph: Graph, folder: Path, expected: list[list[str]], window: int, cache: str
) -> None:
    with loader(graph, features=stored(folder, cache), window=window, prefetch=2) as ours:
        assert [digest(ours) for _ in range(3)] == expected


@pytest.mark.parametrize("window", [0, 3, 64])
def test_each_seed_comes_once_in_every_epoch(graph: Graph, folder: Path, window: int) -> None:
    """Neither are the last W mini-batches of an epoch lost, nor do they come again in the next one."""
    with loader(graph, features=stored(folder), window=window) as ours:
        for epoch in range(3):
            seeds = Counter(int(node) for batch in ours for node in batch.output_nodes["paper"])
            assert seeds == Counter(range(300)), epoch


def test_a_test_loader_gets_no_training_batches(graph: Graph, folder: Path) -> None:
    """Two loaders over one feature store, iterated in turn: windows belong to iterations."""
    features = stored(folder)
    train = loader(graph, features=features, indices={"paper": np.arange(200)}, window=8)
    test = loader(graph, features=features, indices={"paper": np.arange(200, 300)}, window=8, shuffle=False)
    for _ in range(2):
        seen = {"train": set(), "test": set()}
        ours, theirs = iter(train), iter(test)
        for batch in ours:
            seen["train"].update(batch.output_nodes["paper"].tolist())
            other = next(theirs, None)
            if other is not None:
                seen["test"].update(other.output_nodes["paper"].tolist())
        assert seen == {"train": set(range(200)), "test": set(range(200, 300))}
    train.close()
    test.close()
    features.close()


@pytest.mark.parametrize("stop_after", [0, 1, 5, 9, 10])
def test_resume_loses_nothing_and_repeats_nothing(
    graph: Graph, folder: Path, expected: list[list[str]], stop_after: int
) -> None:
    first = loader(graph, features=stored(folder), window=4)
    got = []
    if stop_after:
        iterator = iter(first)
        got = digest(next(iterator) for _ in range(stop_after))
    state = json.loads(json.dumps(first.state_dict()))
    first.close()
    with loader(graph, features=stored(folder), window=16) as second:
        second.load_state_dict(state)
        if stop_after < len(second):
            got += digest(second)
        assert got == expected[0]
        assert digest(second) == expected[1]


def test_the_state_after_a_break_is_where_the_loop_was_left(
    graph: Graph, rows: dict[str, np.ndarray], expected: list[list[str]]
) -> None:
    with loader(graph, features=rows) as first:
        got = []
        for batch in first:
            got += digest([batch])
            if len(got) == 4:
                break
        gc.collect()
        state = first.state_dict()
        assert (state["epoch"], state["batch"]) == (0, 4)
        assert digest(first) == expected[0]  # iterating again begins anew, as with any loader
        assert (first.state_dict()["epoch"], first.state_dict()["batch"]) == (1, 0)
    with loader(graph, features=rows) as second:
        second.load_state_dict(state)
        assert second.state_dict() == state
        iterator = iter(second)
        assert second.state_dict() == state
        got += digest(next(iterator) for _ in range(2))
        assert second.state_dict()["batch"] == 6
        assert got + digest(iterator) == expected[0]


def test_ctrl_c_in_the_loop_leaves_a_loader_that_works(
    graph: Graph, folder: Path, expected: list[list[str]]
) -> None:
    with loader(graph, features=stored(folder), window=4) as ours:

        def interrupted() -> None:
            for batch in ours:
                if batch.index == 2:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert [digest(ours) for _ in range(2)] == expected[:2]


def test_two_iterations_of_one_loader_at_once(graph: Graph, folder: Path, expected: list[list[str]]) -> None:
    with loader(graph, features=stored(folder), window=3) as ours:
        pairs = list(zip(ours, ours, strict=True))
    assert digest(pair[0] for pair in pairs) == digest(pair[1] for pair in pairs) == expected[0]


def test_closing_ends_an_iteration(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    ours = loader(graph, features=rows)
    iterator = iter(ours)
    next(iterator)
    ours.close()
    with pytest.raises(LoaderStopped):
        next(iterator)


def test_drop_last_of_fewer_seeds_than_a_batch(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    with loader(graph, features=rows, indices={"paper": [3, 1]}, drop_last=True) as ours:
        assert (len(ours), list(ours)) == (0, [])


def test_a_state_of_other_settings_is_refused(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    with loader(graph, features=rows) as one, loader(graph, features=rows, batch_size=31) as other:
        with pytest.raises(bam.ConfigError, match="batch_size"):
            other.load_state_dict(one.state_dict())
        with pytest.raises(bam.ConfigError, match="version"):
            one.load_state_dict({**one.state_dict(), "version": 99})
        with pytest.raises(bam.ConfigError, match="'seeds' is missing"):
            one.load_state_dict({"version": 1, "epoch": 0, "batch": 0})


def test_set_epoch(graph: Graph, rows: dict[str, np.ndarray], expected: list[list[str]]) -> None:
    with loader(graph, features=rows) as ours:
        ours.set_epoch(2)
        assert digest(ours) == expected[2]
        ours.set_epoch(0)
        assert digest(ours) == expected[0]


def test_ranks_divide_an_epoch(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    seeds: list[int] = []
    numbers: list[int] = []
    for rank in range(3):
        with loader(graph, features=rows, rank=rank, world_size=3) as part:
            for batch in part:
                seeds += batch.output_nodes["paper"].tolist()
                numbers.append(batch.index)
    assert sorted(seeds) == list(range(300))
    assert sorted(numbers) == list(range(len(numbers)))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("gids-")}


def test_leaving_the_loop_stops_the_threads(graph: Graph, folder: Path) -> None:
    ours = loader(graph, features=stored(folder), window=4)
    for _ in ours:
        break
    gc.collect()
    assert not threads()

    def fail_in_the_loop() -> None:
        for _ in ours:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail_in_the_loop()
    gc.collect()
    assert not threads()
    assert len(digest(ours)) == len(ours)
    ours.close()
    with pytest.raises(bam.ClosedError):
        iter(ours)


def test_an_error_reaches_the_consumer_in_its_place(graph: Graph, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "paper.npy"
    path.write_bytes((folder / "paper.npy").read_bytes())
    array = bam.open_array(path, cache="1 lines", page_bytes=512)
    with loader(graph, features={"paper": array}, window=2, shuffle=False, accumulate=0) as ours:
        iterator = iter(ours)
        next(iterator)
        whole = path.read_bytes()
        with open(path, "r+b") as file:
            file.truncate(1000)
        with pytest.raises(bam.StorageError):
            for _ in iterator:
                pass
        assert whole
    gc.collect()
    assert not threads()


def test_only_what_fits_is_accepted(graph: Graph, rows: dict[str, np.ndarray]) -> None:
    with pytest.raises(UnknownNodeType, match="paper"):
        loader(graph, features={"papers": rows["paper"]})
    with pytest.raises(bam.ConfigError, match="one for each node"):
        loader(graph, features={"paper": rows["paper"][:-1]})
    with pytest.raises(NodeOutOfRange):
        loader(graph, indices={"paper": [400]})
    with pytest.raises(UnknownNodeType):
        loader(graph, indices={"nobody": [4]})
    with pytest.raises(DuplicateSeed, match=r"seed 7 .*again at position 2"):
        loader(graph, indices={"paper": [7, 8, 7, 7]}, batch_size=1)
    with pytest.raises(bam.ConfigError, match="graph"):
        DataLoader(rows, {"paper": [1]}, NeighborSampler([1]))
    with pytest.raises(bam.ConfigError, match="NeighborSampler"):
        DataLoader(graph, {"paper": [1]}, [10, 5])
    with pytest.raises(bam.ConfigError, match="left out"):
        DataLoader(graph, {"paper": [1]}, NeighborSampler([{"writes": 1}]))
    with pytest.raises(UnknownEdgeType, match="writes"):
        DataLoader(graph, {"paper": [1]}, NeighborSampler([{"wrotes": 1}]))
    for setting, value in (("cache", "8GBB"), ("cpu_buffer", "x"), ("engine", "urin"), ("policy", "lru")):
        with pytest.raises(bam.ConfigError, match=setting):
            loader(graph, features=rows, **{setting: value})
    with pytest.raises(bam.ConfigError, match="window"):
        loader(graph, window=-1)
    with pytest.raises(bam.ConfigError, match="device"):
        loader(graph, device="cuda:99")
    with pytest.raises(bam.ConfigError, match="labels"):
        loader(graph, labels={"paper": np.zeros(3)})
    assert issubclass(UnknownNodeType, GidsError)


def test_labels_counts_and_metrics(graph: Graph, folder: Path) -> None:
    labels = np.arange(400, dtype=np.int16)
    with loader(graph, features=stored(folder), labels={"paper": labels}, window=3) as ours:
        requested = 0
        for batch in ours:
            assert torch.equal(batch.labels["paper"], torch.from_numpy(batch.output_nodes["paper"]))
            requested += sum(map(len, batch.nodes.values()))
        metrics, times = ours.metrics(), ours.times()
    assert metrics.batches == len(ours)
    assert asdict(times) == {name: getattr(metrics, name) for name in asdict(times)}
    assert min(times.sample_s, times.fetch_s, times.wait_s) > 0
    total = metrics.total
    assert total.rows_requested == requested
    assert total.rows_constant + total.rows_cache + total.rows_joined + total.rows_storage == requested
    assert 0 <= metrics.hit_rate <= 1
    assert metrics.paths["paper"]["engine"]


def test_isolated_seeds_and_untouched_types(graph: Graph, folder: Path, rows: dict[str, np.ndarray]) -> None:
    with loader(
        graph, features=stored(folder), indices={"unused": [0, 4], "venue": [3]}, batch_size=8, shuffle=False
    ) as ours:
        (batch,) = list(ours)
    np.testing.assert_array_equal(batch.output_nodes["unused"], [0, 4])
    np.testing.assert_array_equal(batch.features["unused"].numpy(), rows["unused"][[0, 4]])
    assert batch.features["author"].shape == (len(batch.nodes["author"]), 16)
    with loader(graph, features=stored(folder), indices={"paper": []}) as none:
        assert list(none) == []
        assert len(none) == 0


SCRIPT = """
    import numpy as np, sys, signal, threading, os
    from gids.graph.graph import Graph
    from gids.loader.loader import DataLoader
    from gids.sampling.neighbor import NeighborSampler
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell ignores for what runs beside it
    random = np.random.default_rng(0)
    graph = Graph.from_coo((random.integers(0, 500, 3000), random.integers(0, 500, 3000)), 500)
    features = {"_N": random.standard_normal((500, 8)).astype(np.float32)}
    loader = DataLoader(graph, np.arange(500), NeighborSampler([3, 3]), batch_size=2, features=features)
    iterator = iter(loader)
    next(iterator)
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(0)", 0),
        ("raise RuntimeError('x')", 1),
        ("os.kill(os.getpid(), signal.SIGINT)\n    for _ in iterator: pass", -2),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    ],
)
def test_the_interpreter_ends_whatever_is_under_way(ending: str, code: int) -> None:
    script = textwrap.dedent(SCRIPT + "    " + ending + "\n")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=False)
    # Ctrl-C in the main thread: KeyboardInterrupt, which ends Python with the signal
    assert ended.returncode == code or (code == -2 and ended.returncode in (130, 1)), ended.stderr.decode()
    assert b"Fatal" not in ended.stderr
