"""Hot-first order: out of core as in memory; the budget goes to the rows most asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from igbh_folders import write_igbh

from gids.graph.csc_build import CscBuild
from gids.graph.hotness import HotOrder, graph_degrees, hot_rows, rank_by_degree, write_hot_order
from gids.graph.igbh import open_igbh
from gids.graph.open_dataset import open_dataset
from gids.graph.progress import no_progress
from gids.graph.relations import GraphOptions, plan_relations


@pytest.mark.parametrize("memory_bytes", [256, 2**20])
@pytest.mark.parametrize("node_type", ["paper", "author", "institute", "fos"])
def test_order_within_a_bound_is_the_order_in_memory(
    tmp_path: Path, node_type: str, memory_bytes: int
) -> None:
    source = write_igbh(tmp_path / "igbh")
    folder = open_igbh(source)
    counts = folder.num_nodes
    builds = [
        CscBuild(plan, counts[plan.edge_type.src], counts[plan.edge_type.dst], tmp_path, memory_bytes)
        for plan in plan_relations(folder.edges, GraphOptions())
        if plan.edge_type.src == node_type
    ]
    files = HotOrder(tmp_path / "rank.npy", tmp_path / "levels.npy", tmp_path / "order.tmp")
    write_hot_order(node_type, counts[node_type], builds, files, memory_bytes, no_progress)
    degrees = graph_degrees(open_dataset(source).graph, node_type)
    rank = np.load(files.rank)
    assert rank.dtype == np.int32
    assert np.array_equal(rank, rank_by_degree(degrees))
    order = np.fromfile(files.order, np.int64)
    assert np.array_equal(rank[order], np.arange(len(rank)))
    levels = np.load(files.levels)
    assert np.array_equal(np.repeat(levels[:, 0], levels[:, 1]), degrees[order])
    assert sorted(path.name for path in tmp_path.glob("*order*")) == ["order.tmp"]


def test_equal_degrees_stay_in_the_order_of_ids() -> None:
    assert rank_by_degree(np.array([1, 5, 1, 0, 5])).tolist() == [2, 0, 3, 4, 1]


def test_the_budget_goes_to_the_most_requests_per_byte() -> None:
    levels = {
        "wide": np.array([[100, 1], [10, 5], [0, 50]]),
        "narrow": np.array([[30, 2], [9, 100]]),
    }
    row_bytes = {"wide": 100, "narrow": 10}
    # Requests per byte: narrow 3, wide 1, narrow 0.9, wide 0.1.
    assert hot_rows(levels, row_bytes, 20) == {"wide": 0, "narrow": 2}
    assert hot_rows(levels, row_bytes, 119) == {"wide": 0, "narrow": 2}
    assert hot_rows(levels, row_bytes, 120) == {"wide": 1, "narrow": 2}
    assert hot_rows(levels, row_bytes, 175) == {"wide": 1, "narrow": 7}
    assert hot_rows(levels, row_bytes, 10**6) == {"wide": 6, "narrow": 102}
    assert hot_rows(levels, row_bytes, 0) == {"wide": 0, "narrow": 0}
