"""The committed figures of a GPU: the page lists them, and those that reach what is asked for still do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FIGURES: dict[str, dict[str, Any]] = json.loads(
    (REPOSITORY / "experiments" / "results" / "gpu.json").read_text(encoding="utf-8")
)["figures"]


def test_the_page_lists_every_figure() -> None:
    page = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    for name in FIGURES:
        assert f"`{name.removesuffix('_beside_iobench')}`" in page


@pytest.mark.parametrize("name", list(FIGURES))
def test_the_ratio_is_that_of_value_and_ceiling(name: str) -> None:
    figure = FIGURES[name]
    over = figure["value"] / figure["ceiling"]
    assert figure["ratio"] == pytest.approx(1 / over if figure["unit"] == "ms a step" else over, rel=0.1)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("hit_gather_4096", 0.85),
        ("hit_gather_512", 0.6),
        ("constant_buffer", 0.95),
        ("ssd_model", 0.9),
        ("cold_gather", 0.97),
        ("cold_gather_beside_iobench", 0.97),
        ("disk_bound_step", 1 / 1.10),
        ("gpu_sampler", 10),
    ],
)
def test_what_is_asked_for(name: str, least: float) -> None:
    assert FIGURES[name]["ratio"] >= least


def test_rates_that_are_asked_for() -> None:
    assert FIGURES["queue_requests"]["value"] >= 80
    assert FIGURES["queue_requests_cached"]["value"] >= 40
    assert FIGURES["gpu_sampler"]["value"] >= 400e6
