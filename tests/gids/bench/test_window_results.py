"""The committed results of window, hotness, models and samplers hold what is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from gids.fetch.expected_requests import HotnessMethod
from gids.fetch.hotness_methods import expect_requests

RESULTS = Path(__file__).resolve().parents[3] / "experiments" / "results"


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("graph", ["tiny", "small"])
def test_misses_are_near_the_optimum(graph: str) -> None:
    found = result("belady")
    assert found["settings"]["window"] == 8
    for share, bound in {"10%": 1.05, "20%": 1.05, "40%": 1.15, "60%": 1.15}.items():
        ratio = found["graphs"][graph]["shares"][share]["ratio"]
        assert 1 <= ratio["window 8"] <= bound
        assert ratio["window 8"] <= ratio["window 8, no foresight"] <= ratio["lru"]
    assert all(found["graphs"][graph]["shares"][share]["ratio"]["lru"] > 1.7 for share in ("10%", "20%"))


def test_the_depth_counts_and_not_the_estimate() -> None:
    limits = result("belady")["graphs"]["small"]["limits"]
    for share in ("10%", "20%"):
        assert limits[share]["window 8, the epoch's own counts"] > 1.05
        assert limits[share]["window 32, two epochs"] < 1.01


def test_the_default_method_is_the_best() -> None:
    served = [each["served_by_buffer"] for each in result("hotness")["graphs"].values()]
    compared = [each for each in served if "expected" in each]
    assert len(compared) == 5
    means = {method.value: mean(each[method.value]["20%"] for each in compared) for method in HotnessMethod}
    default = expect_requests.__kwdefaults__["method"]
    assert max(means, key=means.__getitem__) == default.value


def test_a_buffer_serves_twice_what_random_rows_would() -> None:
    served = result("hotness")["graphs"]["tiny"]["served_by_buffer"]
    for method in HotnessMethod:
        assert served[method.value]["20%"] >= 2 * served["random"]["20%"]


def test_samplers_that_share_numbers_read_less_and_reach_the_same_accuracy() -> None:
    found = result("samplers")
    reads = found["reads"]["tiny"]["samplers"]
    for name, each in reads.items():
        for share, cache in each["cache"].items():
            assert name == "neighbor" or cache["pages_read"] < reads["neighbor"]["cache"][share]["pages_read"]
    for each in found["accuracy"].values():
        plain = each["samplers"]["neighbor"]["test_accuracy_mean"]
        assert set(each["samplers"]) == set(reads)
        assert all(abs(other["test_accuracy_mean"] - plain) < 0.02 for other in each["samplers"].values())


def test_metrics_cost_less_than_a_hundredth() -> None:
    assert result("metrics_cost")["share"] < 0.01


def test_models_foretell_every_count() -> None:
    found = result("models")
    assert found["random"]["traces"] >= 1000
    assert found["random"]["combinations"] == 64
    tiny = found["recorded"]["tiny"]
    assert {"none", "all", "window", "constant", "accumulate", "contiguous"} <= set(tiny["techniques"])
    assert found["random"]["differences"] == tiny["differences"] == 0


def test_models_foretell_every_count_on_a_gpu_where_pages_are_given_up() -> None:
    found = result("models_emulated_gpu")
    random, recorded = found["random"], found["recorded"]["igbh_0.05"]
    assert random["traces"] >= 1000
    assert (random["combinations"], random["policies"]) == (64, 5)
    assert min(random["pages_read"], random["pages_bypassed"]) > random["traces"]
    assert {"none", "all", "window", "constant", "accumulate", "contiguous"} <= set(recorded["techniques"])
    assert random["differences"] == recorded["differences"] == 0


def test_models_foretell_every_count_of_a_real_gpu() -> None:
    found = result("models_cuda")
    assert (found["path"], found["random"]["differences"]) == ("cuda", 0)
    assert found["random"]["traces"] >= 150
    assert (found["random"]["combinations"], found["random"]["policies"]) == (64, 5)


def test_many_warps_count_nearly_the_same() -> None:
    for found in result("models_emulated_gpu")["recorded"]["igbh_0.05"]["many_warps"].values():
        assert {"rows_requested", "rows_constant", "pages_requested", "bytes_useful"} <= set(found["exact"])
        assert found["largest_relative_difference"]["pages_read"] < 0.01
