"""The scripts that draw run on small data; their figures have curves that say what the pages say."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from gids.figures.svg import Line, lines
from gids.figures.svg_file import Panel, svg_file

EXAMPLES = Path(__file__).parents[2] / "examples"
SVG = "{http://www.w3.org/2000/svg}"


def script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name), run_name=name)


def curves(file: Path) -> list[np.ndarray]:
    """The points of each curve of a figure, in its order; fails on what is no SVG."""
    drawn = ElementTree.parse(file).getroot().iter(f"{SVG}polyline")
    found = [
        np.array([point.split(",") for point in curve.attrib["points"].split()], float) for curve in drawn
    ]
    assert all(np.isfinite(points).all() for points in found)
    return found


def texts(file: Path) -> list[str | None]:
    return [text.text for text in ElementTree.parse(file).getroot().iter(f"{SVG}text")]


def test_loss_and_accuracy_of_a_training(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'gids-bam[pyg]'")
    file = tmp_path / "training.svg"
    losses, accuracies = script("plot_training.py")["train"](1000, 3, str(file))
    assert [len(points) for points in curves(file)] == [len(losses), len(accuracies)] == [15, 3]
    assert losses[-1] < losses[0]
    assert accuracies[-1] > 0.4, "chance is 0.25"


def test_where_rows_come_from(tmp_path: Path) -> None:
    file = tmp_path / "tiers.svg"
    rates = script("plot_tiers.py")["draw"](0.01, (0.1, 0.4), (0, 8), str(file))
    assert {"window 0", "window 8", "constant buffer", "storage"} <= set(texts(file))
    for points, window in zip(curves(file), (0, 8), strict=True):
        assert rates[0.1, window] < rates[0.4, window]
        assert points[0, 1] > points[1, 1], "y falls as values rise"
    assert rates[0.1, 0] < rates[0.1, 8]


def test_what_conditions_read(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'gids-bam[arrow]'")
    file = tmp_path / "predicates.svg"
    in_order, shuffled = script("plot_predicates.py")["draw"](20_000, str(file)).values()
    assert [len(points) for points in curves(file)] == [11] * 4
    skipped = [each.batches_skipped for each in in_order]
    assert skipped == sorted(skipped)
    assert (skipped[0], skipped[-1]) == (0, 40)
    assert [each.batches_skipped for each in shuffled[:-1]] == [0] * 10
    assert in_order[5].bytes_read < 0.6 * shuffled[5].bytes_read


def test_a_file_keeps_titles_apart_and_refuses_other_text(tmp_path: Path) -> None:
    figure = lines([Line("a", [0, 1], [0, 2])], "x", "y", "figure")
    file = tmp_path / "two.svg"
    file.write_text(svg_file([Panel("first & foremost", ["<a>"], figure), Panel("second", [], figure)]))
    root = ElementTree.parse(file).getroot()
    tops = [float(part.attrib["y"]) for part in root.findall(f"{SVG}svg")]
    heights = [float(part.attrib["height"]) for part in root.findall(f"{SVG}svg")]
    assert tops[1] > tops[0] + heights[0]
    assert {"first & foremost", "<a>", "second"} <= set(texts(file))
    with pytest.raises(ValueError, match=r"gids\.figures\.svg"):
        svg_file([Panel("no figure", [], "<p/>")])
