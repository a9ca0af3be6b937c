"""What `gids plan` expects, against plain loops; sizes that fit; the command."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gids.bench.data import train_plan_of
from gids.bench.loaders import LoaderData
from gids.bench.loaders.gids_loader import GidsLoader
from gids.bench.run_plan import (
    StepBounds,
    best_sizes,
    configured_sizes,
    make_plan,
    sample_run,
    storage_of,
)
from gids.cli.main import main
from gids.config import RunConfig
from gids.fetch.cost_model import CostModel
from gids.fetch.fetch_model import plain_read_lengths
from gids.fetch.read_plan import ReadRules
from gids.fetch.size_plan import expected_tiers, pages_of_rows, recommend_sizes
from gids.fetch.storage_model import StorageModel

page_lists = st.lists(st.sets(st.integers(0, 40), max_size=25), min_size=2, max_size=8)


@given(page_lists, st.integers(0, 20), st.integers(0, 20))
def test_tiers_are_those_of_a_plain_loop(batches: list[set[int]], constant: int, cached: int) -> None:
    tiers = expected_tiers([np.array(sorted(each), np.int64) for each in batches], constant, cached)
    half = len(batches) // 2
    counted, missing = Counter[str](), []
    for number in range(half, len(batches)):
        seen = Counter(page for batch in batches[:number] for page in batch)
        order = sorted(seen, key=lambda page: (-seen[page], page))
        buffer, cache = set(order[:constant]), set(order[constant : constant + cached])
        counted["requested"] += len(batches[number])
        counted["constant"] += len(batches[number] & buffer)
        counted["cached"] += len(batches[number] & cache)
        missing.append(sorted(batches[number] - buffer - cache))
    steps = len(batches) - half
    assert tiers.requested == counted["requested"] / steps
    assert (tiers.constant, tiers.cached) == (counted["constant"] / steps, counted["cached"] / steps)
    assert [pages.tolist() for pages in tiers.missing] == missing


@given(st.lists(st.integers(0, 50), max_size=20), st.sampled_from([4, 100, 512, 1100]), st.integers(0, 9))
def test_pages_of_rows(rows: list[int], row_bytes: int, first_page: int) -> None:
    expected = {
        first_page + byte // 512 for row in rows for byte in range(row * row_bytes, (row + 1) * row_bytes)
    }
    found = pages_of_rows(np.array(rows, np.int64), row_bytes, 512, first_page)
    assert found.tolist() == sorted(expected)


@given(st.integers(0, 2**34), st.integers(1, 2**33), st.integers(0, 2**28), page_lists)
def test_sizes_fit(available: int, features: int, batch: int, batches: list[set[int]]) -> None:
    pages = [np.array(sorted(each), np.int64) for each in batches]
    sizes = recommend_sizes(available, features, batch, pages, 4096)
    assert sizes.cache_bytes % 4096 == 0
    assert sizes.cache_bytes >= 4096
    assert sizes.cache_bytes <= max(4096, available - 3 * batch)
    assert sizes.cache_bytes <= max(4096, features)
    window = set().union(*batches[: sizes.window])
    assert sizes.window == 1 or len(window) * 4096 <= sizes.cache_bytes


def test_the_longest_part_is_the_bound() -> None:
    bounds = StepBounds(0.1, 0.0, 0.3, 0.2)
    assert (bounds.step_s, bounds.limited_by) == (0.3, "sampling")


@pytest.mark.parametrize("measured", [False, True])
def test_a_plan_counts_the_reads_of_what_is_missing(
    config: RunConfig, data: LoaderData, measured: bool
) -> None:
    run = sample_run(data, config, train_plan_of(config, data), compute=False, n_batches=6)
    best = best_sizes(run, config, 2**20)
    sizes = configured_sizes(run, config, best)
    assert sizes.cache_bytes == int(0.2 * run.features_bytes)
    assert configured_sizes(run, _automatic(config), best) == replace(best, window=sizes.window)
    beside = configured_sizes(run, replace(config, loader=replace(config.loader, cache="auto")), best)
    assert beside.cpu_buffer_bytes == sizes.cpu_buffer_bytes > 0
    assert beside.cache_bytes + beside.cpu_buffer_bytes == max(
        best.cache_bytes, 4096 + sizes.cpu_buffer_bytes
    )
    cost = CostModel.linear(10, 1) if measured else None
    storage = StorageModel(rules=ReadRules(4096, 65536, 8192), cost=cost)
    plan = make_plan(run, config, storage, sizes)
    tiers = expected_tiers(run.pages, sizes.cpu_buffer_bytes // 4096, sizes.cache_bytes // 4096)
    lengths = [plain_read_lengths(set(pages.tolist()), storage.rules) for pages in tiers.missing]
    assert plan.reads == sum(map(len, lengths)) / 3
    assert plan.read_bytes == sum(map(sum, lengths)) / 3
    costs = [10 + each / 1024 for read in lengths for each in read]
    seconds = sum(costs) / 3e6 if measured else plan.reads / storage.facts.iops
    assert plan.bounds.disk_s == pytest.approx(seconds)
    assert plan.batch_bytes == sum(
        len(ids) * data.dataset.features[name].row_bytes
        for batch in run.batches
        for name, ids in batch.nodes.items()
    ) // len(run.batches)
    assert storage_of(data, config).source == "default"


def _automatic(config: RunConfig) -> RunConfig:
    return replace(config, loader=replace(config.loader, cache="auto", cpu_buffer="auto"))


def test_the_command(
    config: RunConfig, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nfolder = "igbh"\nstore = "store"\ntask = "19"\n'
        "[model]\nhidden = 8\nheads = 2\n[sampling]\nfanouts = [4, 3]\nbatch_size = 32\n"
    )
    command = ["plan", "--config", str(file), "--data", str(root), "--json", str(tmp_path / "plan.json")]
    assert main(command) == 0
    assert "limited by" in capsys.readouterr().out
    result = json.loads((tmp_path / "plan.json").read_text())
    assert result["recommended"]["bounds"]["compute_s"] > 0
    assert main(["plan", str(root / "store"), *command[1:], "--no-compute"]) == 0
    again = json.loads((tmp_path / "plan.json").read_text())
    assert again["configured"]["reads"] == result["configured"]["reads"]
    assert again["configured"]["bounds"]["compute_s"] == 0


def test_auto_is_what_the_plan_recommends(config: RunConfig, data: LoaderData) -> None:
    automatic = replace(config, loader=replace(config.loader, cache="auto", cpu_buffer=0))
    with GidsLoader(data, automatic) as loader:
        assert loader.store.keeps_all  # the small data set fits into memory
