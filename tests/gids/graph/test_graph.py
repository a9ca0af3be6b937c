"""Schemas, CSC relations and graphs: what they hold, what they refuse, and what their messages say."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam.errors import ConfigError
from gids.errors import GraphError, NodeOutOfRange, UnknownEdgeType, UnknownNodeType
from gids.graph.csc import Csc
from gids.graph.graph import Graph
from gids.graph.schema import EdgeType, Schema

SCHEMA = Schema(
    {"paper": 4, "author": 3},
    [
        ("paper", "cites", "paper"),
        ("author", "writes", "paper"),
        ("paper", "by", "author"),
        ("author", "by", "paper"),
    ],
)


def test_names_are_sorted_whatever_their_order_was() -> None:
    assert SCHEMA.node_types == ("author", "paper")
    assert list(SCHEMA.edge_types) == sorted(SCHEMA.edge_types)
    assert Schema(dict(reversed(SCHEMA.num_nodes.items())), reversed(SCHEMA.edge_types)) == SCHEMA
    assert pickle.loads(pickle.dumps(SCHEMA)) == SCHEMA
    assert EdgeType("a", "b", "c") == ("a", "b", "c")


def test_edge_types_may_be_named_in_three_ways() -> None:
    wanted = EdgeType("paper", "cites", "paper")
    for name in (wanted, ("paper", "cites", "paper"), "cites", "paper__cites__paper"):
        assert SCHEMA.edge_type(name) == wanted
        assert SCHEMA.edge_types[SCHEMA.edge_type_index(name)] == wanted
    assert SCHEMA.edge_type("author__by__paper") == ("author", "by", "paper")


def test_unknown_names_suggest_the_near_one() -> None:
    with pytest.raises(UnknownNodeType, match="did you mean 'paper'") as node:
        SCHEMA.node_type_index("papers")
    assert node.value.known == ("author", "paper")
    assert isinstance(node.value, KeyError)
    with pytest.raises(UnknownEdgeType, match="did you mean 'cites'"):
        SCHEMA.edge_type("cite")
    with pytest.raises(UnknownEdgeType, match="did you mean 'paper__cites__paper'"):
        SCHEMA.edge_type(("paper", "cite", "paper"))
    with pytest.raises(UnknownEdgeType, match="author__by__paper, paper__by__author") as ambiguous:
        SCHEMA.edge_type("by")
    assert ambiguous.value.ambiguous
    with pytest.raises(ConfigError):
        SCHEMA.edge_type(("paper", "cites"))  # type: ignore[arg-type]


def test_schemas_that_cannot_be() -> None:
    with pytest.raises(UnknownNodeType, match="did you mean 'a'"):
        Schema({"a": 1}, [("a", "r", "aa")])
    with pytest.raises(GraphError, match="it twice"):
        Schema({"a": 1}, [("a", "r", "a"), ("a", "r", "a")])
    with pytest.raises(GraphError, match="0 or more"):
        Schema({"a": -1}, [])
    with pytest.raises(GraphError, match="at least one node type"):
        Schema({}, [])


@given(st.data())
def test_from_coo_groups_edges_and_keeps_their_order(data: st.DataObject) -> None:
    num_src, num_dst = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    src = data.draw(st.lists(st.integers(0, num_src - 1), max_size=40))
    dst = data.draw(st.lists(st.integers(0, num_dst - 1), min_size=len(src), max_size=len(src)))
    if data.draw(st.booleans()):
        dst.sort()
    csc = Csc.from_coo(src, dst, num_src, num_dst)
    csc.verify()
    assert (csc.num_src, csc.num_dst, csc.num_edges) == (num_src, num_dst, len(src))
    assert csc.indices.dtype == np.int32
    ids = np.arange(len(src)) if csc.edge_ids is None else csc.edge_ids
    assert (csc.edge_ids is None) == (dst == sorted(dst))
    for node in range(num_dst):
        expected = [edge for edge in range(len(dst)) if dst[edge] == node]
        assert csc.in_edges(node).tolist() == [src[edge] for edge in expected]
        assert ids[csc.indptr[node] : csc.indptr[node + 1]].tolist() == expected
    assert csc.degrees().sum() == len(src)


def test_ids_get_the_width_they_need() -> None:
    assert Csc.from_coo([2**31], [0], 2**31 + 1, 1).indices.dtype == np.int64
    assert (
        Csc.from_coo(np.array([1], np.uint8), np.array([0], np.int16), 2**31 - 1, 1).indices.dtype == np.int32
    )


def test_lists_that_are_no_edges() -> None:
    with pytest.raises(NodeOutOfRange) as error:
        Csc.from_coo([0, 3], [0, 0], 3, 1)
    assert (error.value.node_id, error.value.position) == (3, 1)
    for src, dst in (([0], [0, 0]), ([0.5], [0]), ([[0]], [[0]])):
        with pytest.raises(GraphError):
            Csc.from_coo(src, dst, 3, 1)
    with pytest.raises(NodeOutOfRange):
        Csc.from_coo([0], [-1], 3, 1)


def test_arrays_that_do_not_fit_are_refused_at_once() -> None:
    indptr, indices = np.array([0, 1, 2]), np.array([0, 1], np.int32)
    with pytest.raises(GraphError, match="end with 2 edges"):
        Csc(indptr[:2], indices, 2)
    with pytest.raises(GraphError, match="an empty array"):
        Csc(indptr[:0], indices[:0], 2)
    with pytest.raises(GraphError, match="found int32"):
        Csc(indptr.astype(np.int32), indices, 2)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="int32 or int64"):
        Csc(indptr, indices.astype(">i4"), 2)
    with pytest.raises(GraphError, match="edge_ids"):
        Csc(indptr, indices, 2, np.array([1]))
    with pytest.raises(GraphError, match="strided"):
        Csc(indptr, np.arange(4, dtype=np.int32)[::2], 2)


def test_verify_finds_what_opening_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1 << 24, 2):
        monkeypatch.setattr("gids.graph.csc._CHECK_ENTRIES", step)
        Csc(np.array([0, 1, 1, 2]), np.array([0, 1]), 2).verify()
        with pytest.raises(GraphError, match="never to fall, found a step of -1 at node 2"):
            Csc(np.array([0, 1, 3, 2]), np.array([0, 1]), 2).verify()
        with pytest.raises(GraphError, match="found 2 at position 3"):
            Csc(np.array([0, 4]), np.array([0, 1, 0, 2]), 2).verify()


def test_relations_must_be_the_schemas() -> None:
    edges = {("a", "r", "b"): ([0], [1])}
    graph = Graph.from_coo(edges, {"a": 1, "b": 2})
    assert graph["r"] is graph[("a", "r", "b")]
    assert graph.num_edges == 1
    graph.verify()
    with pytest.raises(GraphError, match="1 source and 3 destination nodes"):
        Graph(Schema({"a": 1, "b": 3}, edges), graph.relations)
    with pytest.raises(GraphError, match="a Csc for it, found none"):
        Graph(Schema({"a": 1, "b": 2}, [*edges, ("b", "s", "b")]), graph.relations)
    with pytest.raises(UnknownEdgeType):
        Graph(Schema({"a": 1, "b": 2}, []), graph.relations)
    with pytest.raises(GraphError, match="num_nodes"):
        Graph.from_coo(edges, 3)


def test_a_homogeneous_graph_needs_no_names() -> None:
    graph = Graph.from_coo(([0, 1], [1, 1]), 2)
    assert graph.schema.is_homogeneous
    assert graph[("_N", "_E", "_N")].in_edges(1).tolist() == [0, 1]
    with pytest.raises(NodeOutOfRange):
        graph["_E"].in_edges(2)


def test_memory_maps_are_held_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "indptr.npy", np.array([0, 2]))
    np.save(tmp_path / "indices.npy", np.array([3, 4], np.int32))
    indptr, indices = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices"))
    csc = Csc(indptr, indices, 5)
    csc.verify()
    assert csc.indices is indices
    assert Csc.from_coo(indices, np.zeros(2, np.int64), 5, 1).indices.tolist() == [3, 4]
