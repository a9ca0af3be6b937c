"""What the committed figures of tables and formats say is what the documentation says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[3] / "experiments" / "results"


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_mutated_files_are_equal_or_refused() -> None:
    outcomes = result("mutations")["outcomes"]
    right = outcomes.pop("equal"), outcomes.pop("typed_error")
    assert sum(right) == result("mutations")["n"] == 100_000
    assert min(right) > 20_000
    assert set(outcomes.values()) == {0}


def test_arrow_rows_come_at_a_stores_rate() -> None:
    found = result("arrow")
    for case in found["cases"]:
        assert case["ratio_to_store"]["arrow_of_gids"]["median"] >= case["wanted"] == 0.9
    columns = found["columns"]
    assert columns["read"] / columns["columns"] == 0.01
    assert columns["bytes_from_disk"] <= columns["bound_bytes"]
    assert columns["share"] < 0.02


def test_text_ids_are_numbered_within_memory() -> None:
    found = result("edge_list_memory")
    bound = found["memory_bytes"] + found["duckdb_bytes"] + found["allowed_more_bytes"]
    assert found["large"]["text_bytes"] > found["taken_bytes"]
    assert found["taken_bytes"] <= bound
