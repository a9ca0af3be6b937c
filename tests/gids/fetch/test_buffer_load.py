"""The constant buffer is filled while mini-batches are read: right bytes and exact counts at every moment."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bam
from bam.errors import StorageError
from gids.fetch.buffer_load import BufferLoad, BufferSource
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.counts import total
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.output_pool import OutputPool
from gids.fetch.table import StoredTable

ROWS = np.random.default_rng(0).standard_normal((6000, 32)).astype(np.float32)


class Nodes:
    """As much of a mini-batch as reading features needs."""

    def __init__(self, nodes: np.ndarray) -> None:
        self.nodes = {"a": nodes}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", ROWS)
    return tmp_path / "a.npy"


def table_of(path: Path) -> StoredTable:
    return StoredTable("a", bam.open_array(path, page_bytes=512, cache="40 lines"))


@pytest.mark.parametrize("prefix", [True, False])
def test_rows_count_as_constant_from_the_moment_they_are_there(
    path: Path, prefix: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gids.fetch.constant_buffer._LOAD_BYTES", 128 * 100)
    held = np.arange(1000) if prefix else np.arange(1000) * 5
    table = table_of(path)
    buffer = ConstantBuffer(table, held, load=False)
    store = FeatureStore({"a": table}, {"a": buffer})
    fetcher = Fetcher(store, OutputPool())
    nodes = np.random.default_rng(1).permutation(5000)
    steps = [
        0,
        *(0 for _ in buffer.fill(lambda rows, out: out.view(np.float32).__setitem__(..., ROWS[rows]))),
    ]
    assert len(steps) == 11
    assert buffer.n_loaded == 1000
    again = ConstantBuffer(table, held, load=False)
    store.buffers["a"] = again
    filling = again.fill(lambda rows, out: out.view(np.float32).__setitem__(..., ROWS[rows]))
    for loaded in range(0, 1001, 100):
        fetcher.announce(Nodes(nodes))
        fetched = fetcher.fetch()[1]
        np.testing.assert_array_equal(fetched.tensors["a"].numpy(), ROWS[nodes])
        assert fetched.counts["a"].rows_constant == np.isin(nodes, held[:loaded]).sum() == loaded
        next(filling, None)
    store.close()


def test_filled_in_the_background_with_a_bar(path: Path) -> None:
    done: list[int] = []
    threads: list[str] = []

    class Bar:
        def update(self, n: int) -> None:
            done.append(n)

        def close(self) -> None:
            threads.append(threading.current_thread().name)

    def progress(label: str, total_bytes: int, done_bytes: int) -> Bar:
        assert (label, total_bytes, done_bytes) == ("constant buffer", 4000 * 128, 0)
        return Bar()

    table = table_of(path)
    buffer = ConstantBuffer(table, np.arange(2000, 6000), load=False)
    array = bam.open_array(path, page_bytes=512, cache="1 lines", merge_bytes=2**20)
    store = FeatureStore(
        {"a": table}, {"a": buffer}, load=BufferLoad([BufferSource(buffer, array)], progress)
    )
    store.wait_until_loaded()
    assert sum(done) == 4000 * 128
    assert threads == ["gids-constant-buffer"]
    assert store.describe()["a"]["constant_rows_loaded"] == 4000
    fetcher = Fetcher(store, OutputPool())
    fetcher.announce(Nodes(np.arange(6000)))
    fetched = fetcher.fetch()[1]
    np.testing.assert_array_equal(fetched.tensors["a"].numpy(), ROWS)
    # The load's own reads are nobody's misses.
    counts = total(fetched.counts.values())
    assert (counts.rows_constant, counts.rows_requested) == (4000, 6000)
    assert table.counts().rows_requested == 2000
    store.close()


def test_a_load_that_fails_is_told_and_ends_nothing(path: Path) -> None:
    """Rows that were loaded are served; an unreadable one fails for whoever asks for it."""
    table = table_of(path)
    buffer = ConstantBuffer(table, np.arange(3000), load=False)

    class BrokenArray:
        """None of its rows can be read."""

        def gather_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
            raise StorageError("a.npy", 0, 512, errno.EIO)

        def close(self) -> None:
            """Nothing is open."""

    array = BrokenArray()
    store = FeatureStore({"a": table}, {"a": buffer}, load=BufferLoad([BufferSource(buffer, array)]))
    with pytest.raises(StorageError):
        store.wait_until_loaded()
    assert "constant_error" in store.describe()["a"]
    fetcher = Fetcher(store, OutputPool())
    fetcher.announce(Nodes(np.arange(6000)))
    np.testing.assert_array_equal(fetcher.fetch()[1].tensors["a"].numpy(), ROWS)
    store.close()


def test_closing_the_store_stops_the_load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gids.fetch.constant_buffer._LOAD_BYTES", 128 * 10)
    entered, go_on = threading.Event(), threading.Event()

    class SlowArray:
        """Its second read waits."""

        reads = 0

        def gather_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
            self.reads += 1
            if self.reads == 2:
                entered.set()
                assert go_on.wait(30)

        def close(self) -> None:
            """Nothing is open."""

    table, array = table_of(path), SlowArray()
    buffer = ConstantBuffer(table, np.arange(6000), load=False)
    store = FeatureStore({"a": table}, {"a": buffer}, load=BufferLoad([BufferSource(buffer, array)]))
    assert entered.wait(30)
    stopped: Callable[[], None] = store.close
    closing = threading.Thread(target=stopped)
    closing.start()
    while not store._load._stopped.wait(1):
        pass
    go_on.set()
    closing.join(30)
    assert not closing.is_alive()
    assert array.reads == 2
    assert buffer.n_loaded == 20
