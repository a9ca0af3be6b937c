"""Reports: one page that needs nothing else, whose text never overlaps."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gids.bench.report import html_page, markdown_page, read_results
from gids.errors import DatasetError
from gids.figures.svg import Axis, Bar, Line, LogAxis, lines, log_histogram, number_text, stacked_bars

CHARACTER_WIDTH, TEXT_HEIGHT = 6.6, 11.0
MACHINE = {
    **{"processor": "A & B <fast>", "cores": 2, "memory_bytes": 8e9, "kernel": "6.1", "threads": 2},
    "disk": {"device": "vda", "file_system": "ext4", "read_ahead_kib": 128},
}

MEMORY = {"limit_bytes": 2e9, "enforced": True, "peak_bytes": 1e9, "note": ""}

BELADY = {
    **{"lines": 100, "pages_requested": 5000, "pages_distinct": 700},
    **{"misses": 1234, "optimal_misses": 1000, "gap": 1.234},
}


def _loader(step_s: float, known: bool) -> dict[str, Any]:
    counts = {"constant": 10, "cache": 20, "joined": 30, "storage": 40}
    by_type = {f"rows_{place}": count for place, count in counts.items()}
    storage = {
        "mean_in_flight": 3.5,
        "in_flight": {"t_s": [0.1, 0.2], "reads": [1.0, 6.0]},
        "latency_us": {"p50": 80.0},
        "latency_histogram": {"upper_us": [64.0, 80.0, 96.0], "reads": [1, 5, 2]},
    }
    return {
        **{"steps": 2, "asked_steps": 2, "end_to_end_s": 2 * step_s, "feature_wait_s": step_s},
        **{"sample_s": step_s / 2, "compute_s": step_s / 2, "rows_requested": 100, "rows_distinct": 60},
        **{"rows_from": counts if known else None, "hit_rate": 0.6 if known else None, "reads": 7},
        **{
            "bytes_read": 28672,
            "bytes_useful": 20000,
            "peak_rss_bytes": 5e8,
            "node_types": {"a": by_type} if known else None,
        },
        "belady": BELADY if known else None,
        **{"storage": storage if known else None, "memory": MEMORY, "read_ahead": {"note": ""}},
    }


def _e2e() -> dict[str, Any]:
    return {
        **{"schema": 1, "name": "e2e", "commit": "abc", "command": "gids bench e2e", "cold": True},
        **{"machine": MACHINE, "config": {"name": "small"}},
        "ceilings": {"random_4k_iops": 90000.0, "sequential_mb_per_s": 1000.0, "note": ""},
        "loaders": {
            "gids": _loader(0.1, True),
            "dgl-mmap": _loader(60.0, False),
            "dgl-mmap-tuned": _loader(0.5, False),
            "broken": {"failed": "StorageError: <gone>"},
        },
        "equal": {"batches": True, "features": False, "losses": None},
        "ratios": {"dgl-mmap": {"end_to_end": 600.0, "feature_wait": 700.0}},
    }


def _train() -> dict[str, Any]:
    epochs = [{"epoch": number, "validation_accuracy": 0.5 + 0.1 * number} for number in range(3)]
    return {
        **{"schema": 1, "name": "train", "config": {"name": "small"}, "loader": "gids", "epochs": epochs},
        **{"steps": 30, "test_accuracy": 0.71, "test_macro_f1": 0.6, "seconds": 12.5},
        **{"losses": {"every": 10, "values": [3.0, 2.0, 1.5]}, "losses_sha256": "x"},
    }


def _sample() -> dict[str, Any]:
    samplers = {
        name: {"edges_per_s": rate, "rounds_edges_per_s": [rate - 1, rate]}
        for name, rate in (("gids", 9e6), ("dgl", 3e6))
    }
    return {
        **{"schema": 1, "name": "sample", "commit": "abc", "command": "gids bench", "machine": MACHINE},
        **{"config": {"rounds": 5}, "compile": {"first_s": 9.0, "cached_s": 0.5}},
        "fanouts": [{"fanouts": [10, 5], "samplers": samplers, "ratios": {"gids": 3.0}}],
    }


def _accuracy() -> dict[str, Any]:
    def seeds(best: float) -> dict[str, Any]:
        epochs = [{"epoch": number, "validation_accuracy": best - 0.1 + 0.1 * number} for number in range(2)]
        return {
            **{"seeds": 2, "test_accuracy_mean": best, "test_accuracy_std": 0.0123},
            **{"test_macro_f1_mean": best - 0.1, "test_macro_f1_std": 0.02, "validation_accuracy_mean": best},
            "runs": [{"seed": seed, "epochs": epochs} for seed in range(2)],
        }

    return {
        **{"schema": 1, "name": "accuracy", "commit": "abc", "command": "python accuracy.py"},
        **{"machine": MACHINE, "config": {"name": "small", "model": {"name": "rgcn"}}},
        **{"loaders": {"gids": seeds(0.9), "dgl-mmap": seeds(0.9)}, "features_only": seeds(0.4)},
        **{"equal_losses": True, "published": [{"model": "GCN", "accuracy": 0.8, "macro_f1": None}]},
    }


def _text_boxes(svg: ElementTree.Element) -> list[tuple[float, float, float, float, str]]:
    """Where texts are: left, top, right, bottom. Turned ones stand left of everything else."""
    boxes = []
    for text in svg.iter("text"):
        if "transform" in text.attrib:
            x = float(re.findall(r"translate\(([\d.]+)", text.attrib["transform"])[0])
            boxes.append((x - TEXT_HEIGHT, -1e9, x, 1e9, "turned"))
            continue
        words = (next(iter(text)).tail if len(text) else text.text) or ""
        width = CHARACTER_WIDTH * len(words)
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        left = x - {"start": 0, "middle": width / 2, "end": width}[text.attrib["text-anchor"]]
        boxes.append((left, y - TEXT_HEIGHT, left + width, y, words))
    return boxes


def _check_svg(text: str) -> None:
    svg = ElementTree.fromstring(text)
    width, height = map(float, svg.attrib["viewBox"].split()[2:])
    boxes = _text_boxes(svg)
    for number, box in enumerate(boxes):
        if box[4] != "turned":
            assert box[0] >= -1, f"{box[4]!r} begins left of the figure"
            assert box[2] <= width + 1, f"{box[4]!r} ends right of the figure"
            assert box[3] <= height + 1, f"{box[4]!r} ends below the figure"
        for other in boxes[:number]:
            apart = box[2] <= other[0] or other[2] <= box[0] or box[3] <= other[1] or other[3] <= box[1]
            assert apart, f"{box[4]!r} overlaps {other[4]!r}"
    for rect in svg.iter("rect"):
        assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width + 1


def test_the_page_needs_nothing_else_and_says_everything() -> None:
    page = html_page([_e2e(), _train(), _train(), _sample()])
    assert not re.search(r"https?://|src=|@import|url\(", page)
    for svg in re.findall(r"<svg.*?</svg>", page):
        _check_svg(svg)
    assert page.count("<svg") == 8
    for text in (
        "Broken failed: StorageError: &lt;gone&gt;",
        "A &amp; B &lt;fast&gt;",
        "700.00x",
        "NOT equal",
    ):
        assert text in page
    assert "All losses are equal, bit for bit." in page
    assert "The same without the slowest" in page


def test_accuracy_over_seeds_beside_what_others_reached() -> None:
    result = _accuracy()
    result["published"][0]["source"] = "a paper"
    page, text = html_page([result]), markdown_page([result])
    (figure,) = re.findall(r"<svg.*?</svg>", page)
    _check_svg(figure)
    assert figure.count("<polyline") == 3
    assert "| rgcn, gids | 2 | 0.9000 | 0.9000 ± 0.0123 | 0.8000 ± 0.0200 |" in text
    assert "| features only | 2 | 0.4000 |" in text
    assert "| GCN |  |  | 0.8000 | - |" in text
    assert "equal, bit for bit. GCN: a paper." in text
    assert "NOT equal" in markdown_page([{**result, "equal_losses": False}])


def test_markdown_has_the_same_tables() -> None:
    text = markdown_page([_e2e(), _train(), _sample()])
    assert "Broken failed: StorageError: <gone>." in text
    assert "| dgl-mmap | 2 | 60,000.0 |" in text
    assert "| fanouts 10, 5: gids | 9,000,000 |" in text
    assert "Features: NOT equal for all loaders." in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("| gids |")}
    assert widths == {8, 9}


def test_results_of_another_kind_become_a_table() -> None:
    page = html_page([{"schema": 1, "name": "io", "figures": {"iops": 12345.678}}])
    assert "figures.iops" in page
    assert "1.235e+04" in page


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "a result file"), ("[]", "'schema' and 'name'"), ('{"schema": 9, "name": "e2e"}', "schema 1")],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_results([str(file)])
    file.write_text(json.dumps(_sample()))
    assert read_results([str(file)]) == [_sample()]


floats = st.just(0.0) | st.floats(1e-6, 1e9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text("abcdefgh-", max_size=40), st.lists(floats, max_size=4)), max_size=8))
def test_no_text_overlaps_in_bars(rows: list[tuple[str, list[float]]]) -> None:
    _check_svg(stacked_bars([Bar(label, parts, "123,456.7 ms") for label, parts in rows], "bars"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(floats, floats), max_size=40), st.booleans())
def test_no_text_overlaps_in_lines(points: list[tuple[float, float]], from_zero: bool) -> None:
    curve = Line("curve", [x for x, _ in points], [y for _, y in points])
    _check_svg(lines([curve], "seconds", "reads in flight", "lines", y_from_zero=from_zero))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 1e5), st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_no_text_overlaps_in_histograms(first: float, counts: list[int]) -> None:
    upper = [first * 1.19**number for number in range(len(counts))]
    _check_svg(log_histogram(upper, counts, "microseconds", "reads", "histogram"))


@settings(max_examples=100, deadline=None)
@given(floats, floats)
def test_axes_have_few_round_ticks_around_their_values(one: float, other: float) -> None:
    low, high = sorted((one, other))
    axis = Axis.of(low, high)
    assert 2 <= len(axis.ticks) <= 7
    assert axis.place(low) >= -1e-6
    assert axis.place(high) <= 1 + 1e-6


def test_logarithmic_axis() -> None:
    axis = LogAxis.of(3.0, 3000.0)
    assert axis.ticks == (10.0, 100.0, 1000.0)
    assert [axis.place(3.0), axis.place(3000.0)] == [0.0, 1.0]
    assert log_histogram([], [], "x", "y", "nothing") == ""


def test_numbers() -> None:
    assert [number_text(each) for each in (0, 0.25, 12.3456, 4321, 5e6, 7.25e9)] == [
        *("0", "0.25", "12.3", "4.32k", "5M", "7.25G"),
    ]
