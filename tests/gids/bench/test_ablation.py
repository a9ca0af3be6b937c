"""The ablation: same mini-batches, same bytes, same memory for every technique and for none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bam.errors import ConfigError
from bam.native import available
from gids.bench.ablation import _ratio, ablation_plot, ablation_table, run_ablation, variants
from gids.cli.main import main
from gids.config import RunConfig
from gids.config.sections import LoaderConfig

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "results.md"
NAMES = ["none", "accumulator", "contiguous", "window", "window, foresight", "cpu_buffer", "all"]


@pytest.fixture(scope="module")
def result(config: RunConfig, root: Path) -> dict[str, Any]:
    quick = replace(config, bench=replace(config.bench, steps=3, train=False))
    return json.loads(json.dumps(run_ablation(quick, root, ceiling_seconds=0.05)))


def test_every_variant_delivers_the_same(result: dict[str, Any]) -> None:
    assert list(result["loaders"]) == NAMES
    assert (result["equal"]["batches"], result["equal"]["features"]) == (True, True)
    assert [each["failed"] for each in result["loaders"].values() if "failed" in each] == []


def test_every_variant_has_the_same_memory(result: dict[str, Any]) -> None:
    memory = {
        each["settings"]["cache"] + each["settings"]["cpu_buffer"] for each in result["loaders"].values()
    }
    assert len(memory) == 1


@pytest.mark.skipif(not available(), reason="only the native reader merges")
def test_each_technique_does_its_part(result: dict[str, Any]) -> None:
    found = result["loaders"]
    for each in found.values():
        assert each["belady_ratio"] >= 1 or each["settings"]["cpu_buffer"] or each["settings"]["accumulate"]
    pages = {name: sum(t["pages_read"] for t in each["node_types"].values()) for name, each in found.items()}
    assert found["none"]["reads"] == pages["none"]
    assert found["contiguous"]["reads"] < pages["contiguous"]
    assert pages["window, foresight"] <= pages["window"] <= pages["none"]
    assert found["cpu_buffer"]["rows_from"]["constant"] > 0 == found["none"]["rows_from"]["constant"]
    assert pages["accumulator"] <= pages["none"]


def test_table_plot_and_page(result: dict[str, Any]) -> None:
    table = ablation_table(result)
    assert [row[0] for row in table.rows] == NAMES
    assert all(len(row) == len(table.heads) for row in table.rows)
    plot = ablation_plot(result)
    assert plot.startswith("<svg")
    assert all(name in plot for name in NAMES)
    text = DOCUMENT.read_text(encoding="utf-8")
    section = next(
        each for each in re.split(r"^## ", text, flags=re.MULTILINE) if each.startswith("`ablation`")
    )
    for field in ("optimal_misses", "loaders.<name>.settings", "loaders.<name>.belady_ratio"):
        assert f"`{field}`" in section


def test_a_variant_that_stopped_early_has_no_ratio() -> None:
    found = {"steps": 3, "asked_steps": 3, "node_types": {"a": {"pages_read": 6}, "b": {"pages_read": 2}}}
    assert _ratio(found, 4) == 2.0
    assert _ratio({**found, "steps": 2}, 4) is None
    assert _ratio(found, 0) is _ratio(found, None) is _ratio({"failed": "no"}, 4) is None


def test_a_warm_run_is_refused(config: RunConfig, root: Path) -> None:
    with pytest.raises(ConfigError, match="warm"):
        run_ablation(replace(config, bench=replace(config.bench, warm=True)), root)


def test_a_variant_that_failed_is_shown() -> None:
    result = {"loaders": {"none": {"failed": "no", "belady_ratio": None}}, "equal": {"batches": None}}
    assert ablation_table(result).rows[0][1] == "failed"
    assert "failed" in ablation_plot(result)


@pytest.mark.parametrize(
    "changed", [{"cache": "auto"}, {"window": 0}, {"contiguous": False}, {"accumulate": 0}]
)
def test_what_cannot_be_compared(changed: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="loader"):
        variants(replace(LoaderConfig(cache="1MiB"), **changed), 2**24)


def test_the_command_asks_for_sizes(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[data]\nfolder = "igbh"\nstore = "store"\ntask = "19"\n')
    assert main(["bench", "ablation", "--config", str(file), "--data", str(root), "--steps", "1"]) == 1
    assert "loader.cache" in capsys.readouterr().err
