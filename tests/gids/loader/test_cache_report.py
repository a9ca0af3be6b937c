"""The cache-metrics report: what it says follows from the counters, in every form."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import bam
from gids.fetch.accumulator import AccumulatorReport
from gids.fetch.constant_buffer import ConstantBuffer
from gids.fetch.counts import FetchCounts
from gids.fetch.feature_store import FeatureStore
from gids.fetch.table import MemoryTable, StoredTable
from gids.graph.graph import Graph
from gids.loader.cache_report import CacheReport, Depth
from gids.loader.cache_report_text import explain, size_text, to_html, to_markdown
from gids.loader.loader import DataLoader
from gids.loader.metrics import LoaderMetrics
from gids.sampling.neighbor import NeighborSampler

PAPER = FetchCounts(
    rows_requested=1000,
    rows_constant=400,
    rows_cache=300,
    rows_joined=50,
    rows_storage=250,
    pages_requested=600,
    pages_hit=310,
    pages_joined=40,
    pages_read=250,
    pages_bypassed=7,
    reads=100,
    bytes_read=1_024_000,
    bytes_useful=512_000,
)
METRICS = LoaderMetrics(
    12,
    1.0,
    3.0,
    1.0,
    99,
    {"paper": PAPER, "venue": FetchCounts.of(500)},
    {"paper": {"table": "stored", "engine": "uring", "direct": True, "notes": ["odd <page>"]}},
    AccumulatorReport(80.0, "calibration", 3, 12, 240, ((4, 100), (4, 60), (4, 80))),
)


def test_rates_follow_from_the_counts() -> None:
    report = CacheReport.of(METRICS, "tiny", optimal_pages=200)
    assert report.hit_rate == pytest.approx(1 - 250 / 1500)
    assert report.miss_rate == pytest.approx(250 / 1500)
    assert report.page_hit_rate == pytest.approx(1 - 250 / 600)
    assert report.belady_ratio == 1.25
    assert report.hidden_share == 0.75
    assert report.depth == Depth(80.0, "calibration", 3, (100, 60, 80))
    assert report.depth.reached_share == pytest.approx(2 / 3)


def test_finding_out_where_features_lie_is_work_too() -> None:
    assert replace(METRICS, plan_s=4.0).hidden_share == 0.875


def test_nothing_requested_yet() -> None:
    report = CacheReport.of(LoaderMetrics(0, 0.0, 0.0, 0.0, 0, {}, {}))
    assert (report.hit_rate, report.miss_rate, report.page_hit_rate, report.belady_ratio) == (0, 0, 0, None)
    assert "0 mini-batches" in explain(report)
    assert "| - | 0.00% | 0.00% |" in to_markdown(report)
    assert json.loads(report.to_json())["depth"] is None


def test_json_has_every_counter() -> None:
    found = json.loads(CacheReport.of(METRICS, "tiny").to_json())
    assert found["total"]["rows_constant"] == 900
    assert found["by_type"]["paper"] | {"hit_rate": 0} == {**vars(PAPER), "hit_rate": 0}
    assert found["depth"]["reads"] == [100, 60, 80]
    assert found["belady_ratio"] is None


def test_markdown_has_the_published_table() -> None:
    text = to_markdown(CacheReport.of(METRICS, "IGBH-tiny", optimal_pages=200))
    assert (
        "| data set | hit rate | miss rate |\n| --- | ---: | ---: |\n| IGBH-tiny | 83.33% | 16.67% |" in text
    )
    assert "| paper | 1,000 | 400 | 300 | 50 | 250 | 75.00% |" in text
    assert "| contiguous reads | pages per read | 2.50 |" in text
    assert "| Belady's optimum | pages read over its | 1.250 |" in text


def test_explain_says_from_where_and_how() -> None:
    text = explain(CacheReport.of(METRICS, "tiny", optimal_pages=200))
    for part in (
        "paper: 1,000 rows, hit rate 75.0%",
        "-> constant buffer            400 rows (40.0%)",
        "-> storage                    250 rows (25.0%); 250 pages in 100 reads, 1000.0 KiB; 7 not cached",
        "engine uring, direct",
        "note: odd <page>",
        "67% of the last 3 had the 80 reads",
        "1.250 times those of Belady's optimum",
    ):
        assert part in text


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "html"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "html":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Closes itself."""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_well_formed_and_escaped() -> None:
    tags = _Tags()
    tags.feed(to_html(CacheReport.of(METRICS, "<tiny>")))
    assert tags.open == []
    assert "Cache metrics <tiny>" in tags.text
    assert "odd <page>" in tags.text


def test_html_has_the_depth_over_time_against_what_is_needed() -> None:
    page = to_html(CacheReport.of(METRICS))
    assert page.count("<polyline") == 2
    assert page.count("<circle") == 6  # three groups, and as often the reads needed
    assert "needed (N)" in page
    none = LoaderMetrics(0, 0.0, 0.0, 0.0, 0, {}, {}, AccumulatorReport(80.0, "calibration"))
    assert "<svg" not in to_html(CacheReport.of(none))


def test_scalars() -> None:
    class Writer:
        points: dict[str, tuple[float, int]]

        def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
            self.points[tag] = scalar_value, global_step

    writer = Writer()
    writer.points = {}
    CacheReport.of(METRICS, optimal_pages=200).write_scalars(writer, 7, prefix="run")
    assert writer.points["run/hit_rate/paper"] == (0.75, 7)
    assert writer.points["run/rows/constant"] == (900.0, 7)
    assert writer.points["run/depth"] == (80.0, 7)
    assert writer.points["run/belady_ratio"] == (1.25, 7)


@pytest.mark.parametrize(
    ("n_bytes", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")]
)
def test_sizes(n_bytes: int, text: str) -> None:
    assert size_text(n_bytes) == text


def test_of_a_loader_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((100, 128)).astype(np.float32)
    np.save(tmp_path / "a.npy", rows)
    table = StoredTable("a", bam.open_array(tmp_path / "a.npy", page_bytes=512, cache="10 lines"))
    tables = {"a": table, "b": MemoryTable("b", rows[:10])}
    random = np.random.default_rng(1)
    graph = Graph.from_coo(
        {
            ("a", "to", "a"): (random.integers(0, 100, 300), random.integers(0, 100, 300)),
            ("b", "to", "a"): (random.integers(0, 10, 90), random.integers(0, 100, 90)),
        },
        {"a": 100, "b": 10},
    )
    store = FeatureStore(tables, {"a": ConstantBuffer(table, np.arange(20))})
    with DataLoader(
        graph, {"a": np.arange(50)}, NeighborSampler([3, 3]), batch_size=10, features=store
    ) as loader:
        iterator = iter(loader)
        requested = 0
        for _ in range(3):
            batch = next(iterator)
            requested += sum(map(len, batch.nodes.values()))
            report = loader.cache_report("small")
            assert report.total.rows_requested == requested
        text = explain(report)
        assert "20 of 20 rows" in text
        assert "-> memory" in text
        assert f"engine {table.describe()['engine']}" in text
    store.close()
