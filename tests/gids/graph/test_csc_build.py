"""The out-of-core CSC build gives what a stable sort in memory gives, whatever the bound."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from igbh_folders import plain_csc

from bam.array.sources import NpySource
from gids.errors import DatasetError
from gids.graph import csc_build
from gids.graph.csc_build import CscBuild, build_csc, check_edges
from gids.graph.edge_array import EdgeArray
from gids.graph.journal import Journal
from gids.graph.progress import no_progress
from gids.graph.relations import GraphOptions, RelationPlan, plan_relations
from gids.graph.schema import EdgeType

CITES, WRITTEN = EdgeType("paper", "cites", "paper"), EdgeType("paper", "written_by", "author")
Edges = npt.NDArray[np.int64]


def _built(
    folder: Path, edges: Edges, n_src: int, n_dst: int, memory_bytes: int, plan: dict[str, object]
) -> tuple[Edges, npt.NDArray[np.int32]]:
    np.save(folder / "edges.npy", edges)
    described = EdgeArray(NpySource(folder / "edges.npy").describe())
    relation = RelationPlan(CITES, CITES, described, **plan)  # type: ignore[arg-type]
    build = CscBuild(relation, n_src, n_dst, folder / "out", memory_bytes)
    with Journal.open_or_resume(folder / "work", {}) as journal:
        n_edges = build_csc(journal, build, no_progress)
    indptr, indices = np.load(folder / "out/indptr.npy"), np.load(folder / "out/indices.npy")
    assert len(indices) == n_edges
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["indices.npy", "indptr.npy"]
    return indptr, indices


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=120),
    st.sampled_from([(0,), (1,), (0, 1)]),
    st.booleans(),
    st.sampled_from([256, 1024, 2**16]),
)
def test_equals_a_stable_sort(
    n: int, pairs: list[tuple[int, int]], columns: tuple[int, ...], loops: bool, memory_bytes: int
) -> None:
    edges = np.array(pairs, np.int64).reshape(-1, 2) % n
    plan: dict[str, object] = {"source_columns": columns, "drop_loops": loops, "add_loops": loops}
    with tempfile.TemporaryDirectory() as folder:
        indptr, indices = _built(Path(folder), edges, n, n, memory_bytes, plan)
    kept = edges[edges[:, 0] != edges[:, 1]] if loops else edges
    added = np.arange(n if loops else 0)
    src = np.concatenate([*(kept[:, column] for column in columns), added])
    dst = np.concatenate([*(kept[:, 1 - column] for column in columns), added])
    expected = plain_csc(src, dst, n)
    assert np.array_equal(indptr, expected[0])
    assert np.array_equal(indices, expected[1])
    assert indices.dtype == np.int32


def test_one_node_with_more_edges_than_memory(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    edges = np.stack([generator.integers(0, 1000, 5000), np.full(5000, 7)], axis=1)
    indptr, indices = _built(tmp_path, edges, 1000, 10, 1024, {})
    assert np.array_equal(indices, edges[:, 0])
    assert indptr.tolist() == [0] * 8 + [5000] * 3


def test_a_relation_without_edges(tmp_path: Path) -> None:
    indptr, indices = _built(tmp_path, np.empty((0, 2), np.int64), 5, 4, 2**16, {})
    assert indptr.tolist() == [0] * 5
    assert len(indices) == 0


def test_ids_beyond_int32_are_int64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csc_build, "_INT32_MAX", 100)
    edges = np.array([[101, 0], [5, 1], [99, 0]], np.int64)
    _, indices = _built(tmp_path, edges, 102, 2, 2**16, {})
    assert indices.dtype == np.int64
    assert indices.tolist() == [101, 99, 5]


@pytest.mark.parametrize(
    ("row", "column", "bad", "message"),
    [
        (3, 0, 10, "paper ids from 0 to 9, found 10 in column 0 of row 3"),
        (777, 1, 4, "author ids from 0 to 3, found 4 in column 1 of row 777"),
        (0, 0, -1, "found -1 in column 0 of row 0"),
        (999, 1, 2**40, "found 1099511627776 in column 1 of row 999"),
    ],
)
def test_ids_out_of_range_are_found(tmp_path: Path, row: int, column: int, bad: int, message: str) -> None:
    edges = np.random.default_rng(0).integers(0, 4, (1000, 2))
    edges[row, column] = bad
    np.save(tmp_path / "edges.npy", edges)
    described = EdgeArray(NpySource(tmp_path / "edges.npy").describe())
    with (
        Journal.open_or_resume(tmp_path / "work", {}) as journal,
        pytest.raises(DatasetError, match=message) as caught,
    ):
        check_edges(journal, WRITTEN, described, {"paper": 10, "author": 4}, 1024, no_progress)
    assert caught.value.file.endswith("edges.npy")


def test_loops_are_counted_within_one_type_only(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[1, 1], [0, 1], [2, 2]], np.int64))
    described = EdgeArray(NpySource(tmp_path / "edges.npy").describe())
    with Journal.open_or_resume(tmp_path / "work", {}) as journal:
        assert check_edges(journal, CITES, described, {"paper": 3}, 1024, no_progress) == 2
        assert check_edges(journal, WRITTEN, described, {"paper": 3, "author": 3}, 1024, no_progress) == 0


def test_relations_of_a_graph(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[1, 1]], np.int64))
    described = NpySource(tmp_path / "edges.npy").describe()
    plans = plan_relations({CITES: described, WRITTEN: described}, GraphOptions())
    assert [str(plan.edge_type) for plan in plans] == [
        "author__rev_written_by__paper",
        "paper__cites__paper",
        "paper__written_by__author",
    ]
    assert [plan.source_columns for plan in plans] == [(1,), (0,), (0,)]
    assert [plan.add_loops for plan in plans] == [False, True, False]
    plain = GraphOptions(self_loops=False, reverse=False, symmetric_cites=True)
    cites, written = plan_relations({CITES: described, WRITTEN: described}, plain)
    assert (cites.source_columns, cites.drop_loops) == ((0, 1), False)
    assert written.source_columns == (0,)
