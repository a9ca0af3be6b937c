"""Expected requests: what is kept, the four methods, and what they foretell of a page."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bam
from bam.errors import ConfigError
from gids.errors import DatasetError
from gids.fetch.constant_buffer import choose_hot_rows
from gids.fetch.expected_requests import (
    ExpectedRequests,
    HotnessMethod,
    counts_of_levels,
    levels_of_counts,
    load_expected,
    load_expected_of,
    save_expected,
)
from gids.fetch.forecast import Forecast
from gids.fetch.hotness_methods import expect_requests
from gids.fetch.reference import forecast_uses
from gids.fetch.table import StoredTable
from gids.fetch.window import HORIZON
from gids.graph.dataset import Features
from gids.graph.feature_types import FeatureDtype
from gids.graph.graph import Graph
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

PAGE_BYTES = 512


def requests_of(counts: dict[str, np.ndarray], n_batches: int = 10) -> ExpectedRequests:
    levels = {name: levels_of_counts(each) for name, each in counts.items()}
    return ExpectedRequests(HotnessMethod.MEASURED, n_batches, 2, 0.2, levels, {"batch_size": 4})


@given(st.lists(st.floats(0.02, 30000), min_size=1))
def test_a_level_is_within_3_per_cent(counts: list[float]) -> None:
    kept = counts_of_levels()[levels_of_counts(np.array(counts))]
    assert np.all(np.abs(kept / counts - 1) < 0.03)


def test_rows_never_asked_for_have_level_0() -> None:
    assert levels_of_counts(np.array([0.0, 0.001, 1e9])).tolist() == [0, 0, 255]


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert load_expected(tmp_path) is None
    saved = requests_of({"a": np.array([0, 1.0, 3.5]), "b": np.arange(5.0)})
    save_expected(requests_of({"a": np.ones(9)}), tmp_path)
    save_expected(saved, tmp_path)
    loaded = load_expected(tmp_path)
    assert loaded is not None
    assert (loaded.method, loaded.n_batches, loaded.epochs, loaded.dispersion, loaded.settings) == (
        saved.method,
        saved.n_batches,
        saved.epochs,
        saved.dispersion,
        saved.settings,
    )
    assert {name: each.tolist() for name, each in loaded.levels.items()} == {
        name: each.tolist() for name, each in saved.levels.items()
    }
    np.save(tmp_path / "hotness" / "b.npy", np.zeros(4, np.uint8))
    with pytest.raises(DatasetError, match="5 bytes"):
        load_expected(tmp_path)
    (tmp_path / "hotness" / "b.npy").unlink()
    with pytest.raises(DatasetError, match="no file"):
        load_expected(tmp_path)


def test_hotness_of_another_data_set_is_refused(tmp_path: Path) -> None:
    graph = Graph.from_coo({("a", "to", "a"): (np.array([0, 1]), np.array([1, 2]))}, {"a": 3})
    features = {"a": SimpleNamespace(n_rows=3)}
    dataset: Any = SimpleNamespace(path=tmp_path, graph=graph, features=features)
    assert load_expected_of(dataset) is None
    for counts, edges, message in (
        ({"a": np.ones(3)}, 2, ""),
        ({"a": np.ones(4)}, 2, "3 rows of 'a'.*gids hotness"),
        ({"a": np.ones(3)}, 5, "2 edges.*gids hotness"),
        ({"a": np.ones(3), "b": np.ones(1)}, 2, "0 rows of 'b'"),
    ):
        save_expected(replace(requests_of(counts), settings={"edges": edges}), tmp_path)
        if message:
            with pytest.raises(DatasetError, match=message):
                load_expected_of(dataset)
        else:
            assert load_expected_of(dataset) is not None


def table_of(tmp_path: Path, n_rows: int, row_bytes: int) -> StoredTable:
    path = tmp_path / f"{n_rows}-{row_bytes}.npy"
    np.save(path, np.zeros((n_rows, row_bytes), np.int8))
    return StoredTable("a", bam.open_array(path, page_bytes=PAGE_BYTES, cache="4 lines"))


@pytest.mark.parametrize("row_bytes", [64, 200, 512, 768, 1100])
def test_the_compiled_estimate_is_the_plain_one(tmp_path: Path, row_bytes: int) -> None:
    random = np.random.default_rng(row_bytes)
    table = table_of(tmp_path, 60, row_bytes)
    counts = random.choice([0, 0.5, 1, 2, 3, 9], 60)
    forecast = Forecast({"a": table}, requests_of({"a": counts}), 10)
    seen = np.zeros(60)
    for announced in range(1, 11):
        batch = random.choice(60, 20, replace=False)
        seen[batch] += 1
        forecast.announce({"a": batch})
        rows = random.choice(60, 30, replace=False)
        kept = counts_of_levels()[levels_of_counts(counts)]
        expected = forecast_uses(rows.tolist(), row_bytes, PAGE_BYTES, kept, seen, announced / 10, 0.2)
        found = forecast.estimates("a", rows)
        assert found.min() >= HORIZON
        assert found.tolist() == expected
    table.close()


def test_a_row_asked_for_as_often_as_ever_is_needed_last(tmp_path: Path) -> None:
    table = table_of(tmp_path, 3, PAGE_BYTES)
    forecast = Forecast({"a": table}, requests_of({"a": np.array([1.0, 1.0, 2.0])}), 10)
    forecast.announce({"a": np.array([0, 2])})
    uses = forecast.estimates("a", np.arange(3))
    # Row 0 had its one request; row 1 has one to come, and so has row 2.
    assert uses[0] > uses[1]
    assert uses[0] > uses[2]
    table.close()


def test_a_resumed_epoch_expects_what_is_left_of_it(tmp_path: Path) -> None:
    table = table_of(tmp_path, 2, PAGE_BYTES)
    requests = requests_of({"a": np.array([4.0, 8.0])})
    whole, rest = (Forecast({"a": table}, requests, n, 10) for n in (10, 5))
    assert whole.estimates("a", np.array([0])) == rest.estimates("a", np.array([1]))
    table.close()


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Every paper is written by two authors, of 40; author 0 by far the most often."""
    random = np.random.default_rng(5)
    authors = np.where(random.random(600) < 0.3, 0, random.integers(1, 40, 600))
    return Graph.from_coo(
        {
            ("author", "writes", "paper"): (authors, np.repeat(np.arange(300), 2)),
            ("paper", "cites", "paper"): (random.integers(0, 300, 900), random.integers(0, 300, 900)),
        },
        {"paper": 300, "author": 40},
    )


def features_of(graph: Graph, tmp_path: Path) -> dict[str, Features]:
    features = {}
    for name, n_nodes in graph.schema.num_nodes.items():
        source = bam.FileSource(tmp_path / f"{name}.bin", np.dtype(np.float32), (n_nodes, 2))
        (tmp_path / f"{name}.bin").write_bytes(bytes(8 * n_nodes))
        rank = np.arange(n_nodes)[::-1].astype(np.int32) if name == "author" else None
        features[name] = Features(name, FeatureDtype.FLOAT32, 2, source, source.describe(), rank=rank)
    return features


def counted(graph: Graph, sampler: NeighborSampler, epochs: range) -> dict[str, np.ndarray]:

    order = SeedBatches({"paper": np.arange(200)}, graph.schema, batch_size=20, shuffle=True)
    counts = {name: np.zeros(n) for name, n in graph.schema.num_nodes.items()}
    for epoch in epochs:
        for number in range(len(order)):
            seeds = order.batch(epoch, number)
            for name, nodes in sampler.sample(graph, seeds.nodes, epoch=epoch, batch=number).nodes.items():
                counts[name][nodes] += 1 / len(epochs)
    return counts


def found(graph: Graph, tmp_path: Path, method: HotnessMethod, **options: int) -> ExpectedRequests:
    return expect_requests(
        graph,
        features_of(graph, tmp_path),
        {"paper": np.arange(200)},
        NeighborSampler([3, 2], seed=0),
        batch_size=20,
        method=method,
        **options,
    )


def test_measured_counts_are_those_of_the_epochs_by_row(graph: Graph, tmp_path: Path) -> None:
    requests = found(graph, tmp_path, HotnessMethod.MEASURED, epochs=3, first_epoch=2)
    exact = counted(graph, NeighborSampler([3, 2], seed=0), range(2, 5))
    assert requests.levels["paper"].tolist() == levels_of_counts(exact["paper"]).tolist()
    assert requests.levels["author"][::-1].tolist() == levels_of_counts(exact["author"]).tolist()
    assert requests.whole_counts("paper").sum() == pytest.approx(1000 * exact["paper"].sum(), rel=0.02)
    assert 0 < requests.dispersion < 0.8
    assert (requests.n_batches, requests.epochs) == (10, 3)


def test_expected_counts_are_those_of_many_epochs(graph: Graph, tmp_path: Path) -> None:
    requests = found(graph, tmp_path, HotnessMethod.EXPECTED)
    exact = counted(graph, NeighborSampler([3, 2], seed=0), range(40))
    for name in ("paper", "author"):
        foretold = counts_of_levels()[requests.levels[name]]
        if name == "author":
            foretold = foretold[::-1]
        often = exact[name] >= 1
        assert foretold[often].sum() == pytest.approx(exact[name][often].sum(), rel=0.06)
        assert np.corrcoef(foretold, exact[name])[0, 1] > 0.97


@pytest.mark.parametrize("method", [HotnessMethod.PAGERANK, HotnessMethod.DEGREE])
def test_an_order_finds_the_most_wanted(graph: Graph, tmp_path: Path, method: HotnessMethod) -> None:
    requests = found(graph, tmp_path, method)
    counts = counts_of_levels()[requests.levels["author"]]
    assert counts.argmax() == 39  # author 0, by rank
    assert counts.max() == pytest.approx(10, rel=0.03)  # in each of 10 mini-batches


def test_page_rank_adds_up(graph: Graph, tmp_path: Path) -> None:
    """Nothing flows from nodes without in-edges, so less than all of it arrives."""
    from gids.fetch.hotness_methods import _page_rank
    from gids.graph.progress import no_progress

    rank = _page_rank(graph, {"paper": np.arange(200)}, no_progress)
    total = sum(float(each.sum()) for each in rank.values())
    assert 0.15 < total <= 1 + 1e-9
    assert all(math.isfinite(each.sum()) for each in rank.values())


def test_no_epochs_are_refused(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epochs"):
        found(graph, tmp_path, HotnessMethod.MEASURED, epochs=0)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(count=st.floats(0, 50), seen=st.integers(0, 60), passed=st.floats(0, 1), dispersion=st.floats(0.01, 1))
def test_the_plain_estimate_is_the_papers_formula_at_its_ends(
    count: float, seen: int, passed: float, dispersion: float
) -> None:
    """Requests by chance: what was seen tells nothing. Epochs all alike: the rest is to come."""

    def left(value: float) -> float:
        uses = forecast_uses([0], 512, 512, [count], [float(seen)], passed, value)
        return (HORIZON - 1) / (uses[0] - HORIZON) - 1

    assert left(1.0) == pytest.approx(max((1 - passed) * count, 0.02 * count), rel=1e-3, abs=1e-3)
    if passed < 1:
        assert left(0.0) == pytest.approx(max(count - seen, 0.02 * count), rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("method", [HotnessMethod.MEASURED, HotnessMethod.EXPECTED])
def test_a_buffer_of_a_fifth_serves_twice_what_random_rows_would(
    tmp_path: Path, method: HotnessMethod
) -> None:
    """On a graph with skewed degrees; of an epoch that was not measured."""
    random = np.random.default_rng(8)
    skewed = (2000 * random.random(16000) ** 3).astype(np.int64)
    graph = Graph.from_coo(
        {("paper", "cites", "paper"): (skewed, random.integers(0, 2000, 16000))},
        {"paper": 2000, "author": 40},
    )
    papers = {"paper": features_of(graph, tmp_path)["paper"]}
    seeds, sampler = {"paper": random.permutation(2000)[:1000]}, NeighborSampler([5, 5], seed=0)
    requests = expect_requests(
        graph, papers, seeds, sampler, batch_size=20, method=method, epochs=1, first_epoch=1
    )
    table = StoredTable("paper", bam.open_array(tmp_path / "paper.bin", dtype="float32", shape=(2000, 2)))
    budget = 400 * table.row_bytes
    held = choose_hot_rows({"paper": table}, {}, {"paper": requests.whole_counts("paper")}, budget)["paper"]
    assert len(held) == 400
    order = SeedBatches(seeds, graph.schema, batch_size=20, shuffle=True)
    served = requested = 0
    for number in range(len(order)):
        batch = sampler.sample(graph, order.batch(0, number).nodes, epoch=0, batch=number)
        served += int(np.isin(batch.nodes["paper"], held).sum())
        requested += len(batch.nodes["paper"])
    assert served / requested > 2 * 0.2
    table.close()
