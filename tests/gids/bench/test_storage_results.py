"""The committed results of the storage techniques hold what is claimed, and the page lists their fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documented_fields import documented

RESULTS = Path(__file__).resolve().parents[3] / "experiments" / "results"


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_fields_of_the_accumulator() -> None:
    found = result("accumulator")
    for device in found["devices"].values():
        fields = {f"devices.<name>.{key}" for key in device}
        assert (set(found) - {"devices"}) | fields == documented("`accumulator`") - {"config"}


def test_fields_of_contiguous_reads() -> None:
    assert set(result("contiguous")) | {"disk"} == documented("`contiguous`") - {"config"}


@pytest.mark.parametrize("name", ["optane", "flash", "many"])
def test_devices_are_driven_to_their_peak(name: str) -> None:
    device = result("accumulator")["devices"][name]
    assert device["accumulated"]["share_of_peak"] >= 0.95 > device["alone"]["share_of_peak"]


def test_dense_windows_beat_random_reads_and_others_do_not_fall_below() -> None:
    found = result("contiguous")
    for case in found["cases"]:
        ratio = case["merged"]["rows_per_s"] / found["random_4k_iops"]
        dense = case["merged"]["share_of_store_read_in_a_group"] >= 0.25
        assert ratio >= (1.5 if dense else 1.0)
