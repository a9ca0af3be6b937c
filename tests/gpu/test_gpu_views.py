"""Arrays inside kernels: items by index, the examples, and failures."""

from __future__ import annotations

import errno
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from device_arrays import open_on, pinned_lines, read_items

from bam.errors import StorageError
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu_arrays.py"


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_arrays", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("cache_lines", "lone_pages"), [(1, 1), (1, 64), (33, 512), (2000, 512)])
def test_random_items_from_divergent_threads(gpu: Any, cache_lines: int, lone_pages: int) -> None:
    items = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    settings = {"page_bytes": 512, "cache_lines": cache_lines, "lone_pages": lone_pages}
    n = 2_000 if lone_pages == 1 else 20_000
    with open_on(gpu, items, **settings) as array:
        indices = np.random.default_rng(1).integers(0, len(items), n).astype(np.uint64)
        found, view = read_items(gpu, array, indices, blocks=256)
        view.check()
        np.testing.assert_array_equal(found, items[indices])
        assert pinned_lines(array) == 0


def test_a_failed_read_is_told_to_the_host(gpu: Any) -> None:
    items = np.arange(2_000, dtype=np.uint32)
    rule = FaultRule(FaultKind.ERROR, nth=2, errno=errno.EREMOTEIO)
    settings = {"page_bytes": 512, "cache_lines": 64, "lone_pages": 8}
    with open_on(gpu, items, wrap=lambda engine: NativeFaultEngine(engine, [rule]), **settings) as array:
        indices = np.arange(0, 2_000, 100).astype(np.uint64)
        found, view = read_items(gpu, array, indices, blocks=256)
        assert (found != items[indices]).any()
        with pytest.raises(StorageError) as caught:
            view.check()
        assert caught.value.errno == errno.EREMOTEIO
        view.check()
        np.testing.assert_array_equal(read_items(gpu, array, indices, blocks=256)[0], items[indices])


def test_the_sum_of_an_array_larger_than_the_cache(gpu: Any, tmp_path: Path) -> None:
    items = np.random.default_rng(0).integers(0, 1000, 2**21).astype(np.float32)
    np.save(tmp_path / "items.npy", items)
    assert example().total(tmp_path / "items.npy", cache="1MiB") == items.sum(dtype=np.float64)


def test_a_search_over_edges_on_disk_equals_scipys(gpu: Any, tmp_path: Path) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    from scipy.sparse.csgraph import dijkstra

    rng = np.random.default_rng(3)
    n = 20_000
    degrees = rng.integers(0, 6, n)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges = rng.integers(0, n, indptr[-1]).astype(np.int32)
    np.save(tmp_path / "edges.npy", edges)
    graph = sparse.csr_matrix((np.ones(len(edges)), edges, indptr), shape=(n, n))
    expected = dijkstra(graph, unweighted=True, indices=0)
    found = example().distances(indptr, tmp_path / "edges.npy", 0, cache="32 lines")
    np.testing.assert_array_equal(found, np.where(np.isinf(expected), -1, expected).astype(np.int32))
