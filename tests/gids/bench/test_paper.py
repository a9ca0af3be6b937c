"""The published comparison in small: what is planned, run, kept, added up and shown."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documented_fields import documented
from test_report import _check_svg

from gids.bench import child, e2e
from gids.bench.paper import session
from gids.bench.paper.folder import RunsFolder
from gids.bench.paper.page import write_results
from gids.bench.paper.projection import project, step_model
from gids.bench.paper.regimes import (
    FULL_FEATURE_BYTES,
    REGIMES,
    SMALL_FEATURE_BYTES,
    TECHNIQUES,
    RegimeName,
    Run,
    planned_runs,
)
from gids.bench.paper.results import paired_ratios, result_files, step_bounds
from gids.bench.paper.session import SessionEnd, SessionSettings, expected_s, run_session
from gids.bench.report import html_page, markdown_page
from gids.bench.report.benchmarks import benchmarks_page
from gids.bench.report.paper import time_figure
from gids.bench.report.targets import TARGETS, missed_lines
from gids.cli.main import main
from gids.cli.options import write_json
from gids.config import RunConfig
from gids.errors import UnfinishedWorkError

REPOSITORY = Path(__file__).resolve().parents[3]
ALL = tuple(REGIMES.values())
LOADERS = ("gids", "dgl-mmap-tuned", "on-device")


@pytest.fixture(scope="module")
def small(config: RunConfig) -> RunConfig:
    """Three steps."""
    return replace(config, bench=replace(config.bench, steps=3))


@pytest.fixture(scope="module")
def patched() -> Iterator[list[str]]:
    """Jobs run in this process; which ones did."""
    seen: list[str] = []

    def run_here(job: Any, limit_bytes: int = 0) -> dict[str, Any]:
        seen.append(f"{job.kind.value} {job.loader}")
        memory = {"limit_bytes": limit_bytes, "enforced": True, "means": "control group", "note": ""}
        return {**json.loads(json.dumps(child.run(job))), "memory": memory}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(e2e, "run_job", run_here)
        patch.setattr(session, "run_job", run_here)
        yield seen


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Some loaders in all regimes, twice, and `gids` without any technique."""
    planned = planned_runs(ALL, 2, LOADERS)
    return [run for run in planned if run.name not in TECHNIQUES or run.name == "gids-none"]


@pytest.fixture(scope="module")
def folder(
    small: RunConfig,
    root: Path,
    runs: list[Run],
    patched: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> RunsFolder:
    """All of them made, in two calls: the time of the first is up after one run."""
    found = RunsFolder(tmp_path_factory.mktemp("runs"), small)
    own = tmp_path_factory.mktemp("data") / "copy"
    shutil.copytree(root, own)  # which is calibrated, and other tests have the folder as it is
    settings = SessionSettings(own, own / "paper", ceiling_seconds=0.1, calibrate_seconds=0.3)
    first = run_session(small, found, runs[:1], settings)
    assert first == SessionEnd(1, 0)
    made = found.result(runs[0])
    second = run_session(small, found, runs, settings)
    assert second == SessionEnd(len(runs) - 1, 0)
    assert found.result(runs[0]) == made
    assert run_session(small, found, runs, settings) == SessionEnd(0, 0)
    return found


def test_sizes_are_the_published_ones_in_proportion() -> None:
    small, full = REGIMES[RegimeName.SMALL_COLD], REGIMES[RegimeName.FULL]
    assert small.cache_bytes(SMALL_FEATURE_BYTES) == pytest.approx(8e9)
    assert small.buffer_bytes(SMALL_FEATURE_BYTES) == pytest.approx(0.2 * 12.83e9, rel=1e-3)
    assert full.cache_bytes(FULL_FEATURE_BYTES) == pytest.approx(8e9)
    assert full.cache_share == pytest.approx(0.00357, rel=1e-2)


def test_the_order_of_loaders_rotates_and_slow_ones_run_once() -> None:
    planned = planned_runs(ALL, 3)
    for regime in ALL:
        mine = [run for run in planned if run.regime is regime and run.name not in TECHNIQUES]
        times = Counter(run.name for run in mine)
        assert times == {name: 1 if name in regime.once else 3 for name in regime.loaders}
        firsts = [next(run.name for run in mine if run.repetition == number) for number in range(3)]
        assert len(set(firsts)) == 3
        variants = [run.name for run in planned if run.regime is regime and run.name in TECHNIQUES]
        assert variants == ([] if regime.warm else list(TECHNIQUES))
    assert [run.repetition for run in planned if run.name == "gids"] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_each_technique_alone_is_off(small: RunConfig) -> None:
    regime = REGIMES[RegimeName.FULL]
    whole = Run(regime, "gids", 0, 0).config(small, 10**6).loader
    for name, changes in TECHNIQUES.items():
        run = Run(regime, name, 0, 0)
        assert run.loader == "gids"
        assert run.config(small, 10**6).loader == replace(whole, **changes) != whole


def test_what_ran_is_equal_and_limits_are_in_proportion(
    folder: RunsFolder, small: RunConfig, patched: list[str]
) -> None:
    files = result_files(small, folder, 2)
    cold, full = files["igbh_small"], files["igbh_full_regime"]
    for regime in (cold, cold["steady"], full):
        assert set(regime["loaders"]) >= set(LOADERS) - ({"on-device"} if regime is full else set())
        assert not any("failed" in each for each in regime["loaders"].values())
        hashed = None if regime is full else True  # without a limit only, once
        assert regime["equal"].pop("repetitions") is True
        assert regime["equal"] == {"batches": hashed, "features": hashed, "losses": True, "timed_rows": True}
        assert regime["bound"]["step_s"] == max(
            regime["bound"][f"{name}_s"] for name in ("compute", "deliver", "disk")
        )
        assert regime["bound_ratio"] == pytest.approx(
            regime["loaders"]["gids"]["end_to_end_s"] / 3 / regime["bound"]["step_s"]
        )
        assert len(regime["loaders"]["gids"]["repetitions"]) == 2
    # Everything was read before, so nothing is now.
    assert cold["steady"]["loaders"]["gids"]["hit_rate"] == 1.0
    assert cold["steady"]["facts"]["optimal_pages"] == 0
    assert full["loaders"]["gids"]["hit_rate"] > full["loaders"]["gids-none"]["hit_rate"]
    shares = full["shares"]["cache"] + full["shares"]["cpu_buffer"]
    room = shares * full["facts"]["features_bytes"]
    assert full["limit_bytes"] - full["own_bytes"] == pytest.approx(room, abs=2)
    assert full["loaders"]["dgl-mmap-tuned"]["memory"]["limit_bytes"] == full["limit_bytes"]
    assert full["loaders"]["gids"]["path"]["features"]["paper"]["cache_lines"] <= full["facts"]["lines"]
    assert Counter(patched)["bounds gids"] == 1


def test_pages_to_read_follow_from_sizes(folder: RunsFolder) -> None:
    cold, full = (folder.facts(REGIMES[name])["bounds"] for name in (RegimeName.SMALL_COLD, RegimeName.FULL))
    assert cold["pages"] == full["pages"] > cold["pages_not_constant"] == full["pages_not_constant"]
    assert cold["distinct_pages"] / cold["steps"] <= cold["optimal_pages"] < full["optimal_pages"]
    assert full["optimal_pages"] <= full["pages_not_constant"]
    assert 0 <= full["cache_alone_hits"] < cold["cache_alone_hits"] < 1
    for facts in (cold, full):
        assert 0 < facts["model"]["reads"] <= facts["optimal_pages"] * 1.001
        assert facts["model"]["read_bytes"] >= facts["distinct_pages"] / facts["steps"] * 4096 * 0.999
        assert 1 <= facts["model"]["batches_together"] <= facts["steps"]
        assert facts["model"]["storage"] == "calibration"
        copied = facts["pages"] - facts["pages_not_constant"] + facts["optimal_pages"]
        assert facts["copied_bytes"] == pytest.approx(4096 * copied)


def test_fields_are_documented(folder: RunsFolder, small: RunConfig) -> None:
    known = documented("`paper`")
    for result in result_files(small, folder, 2).values():
        parts = [result, *([result["steady"]] if "steady" in result else [])]
        for part in parts:
            assert set(part) <= known
        assert {f"projection.{key}" for key in result.get("projection", {})} <= known


def test_everything_is_written_and_shown(folder: RunsFolder, small: RunConfig, tmp_path: Path) -> None:
    written = write_results(small, folder, 2, str(tmp_path / "out"), write_json)
    names = {Path(path).name for path in written}
    assert {"igbh_small.json", "igbh_full_regime.json", "paper.html", "paper.md"} < names
    for path in written:
        if path.endswith(".svg"):
            assert len(list(ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}rect"))) >= 3
    results = [
        json.loads((tmp_path / "out" / f"{name}.json").read_text())
        for name in ("igbh_small", "igbh_full_regime")
    ]
    page, text = html_page(results), markdown_page(results)
    for heading in ("IGBH-small, cold", "IGBH-small, steady state", "IGBH-full&#x27;s regime", "projected"):
        assert heading in page
    assert "Means of the limit: control group." in text
    assert text.count("published were about") == 2
    assert "runs are still to be made" in text
    assert "none | " in text


def test_the_committed_page_is_what_its_files_give() -> None:
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert page == benchmarks_page(REPOSITORY / "experiments" / "results")


def test_the_page_says_what_was_missed_and_what_did_not_run(
    folder: RunsFolder, small: RunConfig, tmp_path: Path
) -> None:
    nothing = benchmarks_page(tmp_path)
    rows = [line for line in nothing.splitlines() if line.endswith("not run yet |")]
    assert len(rows) == len(TARGETS)
    assert nothing.count("**Not run yet.**") == 3
    assert not any(character.isdigit() for row in rows for character in row.split("|")[3])
    write_results(small, folder, 2, str(tmp_path), write_json)
    page = benchmarks_page(tmp_path)
    rows = [line for line in page.splitlines() if line.endswith("not run yet |")]
    assert len(rows) == 2
    assert all("`dgl-mmap-128k`" in row for row in rows)
    assert "IGBH-small, cold, missed: " in page
    assert "The limiting resource is " in page
    assert ", in 1 of 3 runs |" not in page
    write_results(small, folder, 3, str(tmp_path), write_json)
    assert ", in 2 of 3 runs |" in benchmarks_page(tmp_path)
    file = tmp_path / "igbh_small.json"
    result = json.loads(file.read_text())
    result["loaders"]["dgl-mmap-tuned"]["asked_steps"] = 100
    file.write_text(json.dumps(result))
    assert ", in 2 of 3 runs, over 3 of 100 steps |" in benchmarks_page(tmp_path)
    assert "synthetic (`0.01`) data" in page
    # A step of three mini-batches of nothing is the model's, whatever loads it.
    assert "`dgl-mmap-tuned`, 1." in page or "`dgl-mmap-tuned`, 0." in page


@pytest.mark.parametrize(("compute_s", "why"), [(0.01, ""), (0.02, "; computing alone takes longer")])
def test_what_a_missed_target_would_need(compute_s: float, why: str) -> None:
    parts = {"sample_s": 0.0, "feature_wait_s": 4.0, "copy_s": 0.0, "compute_s": 2.0}
    ours = {"end_to_end_s": 6.0, "steps": 100, **parts}
    # Theirs was stopped after its first steps, which are its slowest: only the ratio says how it compares.
    theirs = {"end_to_end_s": 12.0, "steps": 12, **parts}
    bound = {"limited_by": "disk", "step_s": 0.05, "disk_s": 0.05, "sweep_s": 0.04, "compute_s": compute_s}
    regime = {
        "title": "Cold",
        "loaders": {"gids": ours, "dgl-mmap-128k": theirs},
        "ratios": {"dgl-mmap-128k": {"end_to_end": 2.0}},
        "bound": bound,
        "bound_ratio": 1.0,
        "model": {"error": 0.0},
    }
    (line,) = missed_lines({"cold": ({}, regime)})
    assert f"a step would have to take 15.0 ms{why}" in line  # 60 ms * 2 / 8
    assert "take 50.0 ms a step, and all features in one sequential sweep 40.0 ms" in line


def test_bars_of_slow_loaders_are_cut() -> None:
    def loader(step_s: float) -> dict[str, Any]:
        parts = {"sample_s": 0.0, "feature_wait_s": step_s, "copy_s": 0.0, "compute_s": 0.0}
        return {"steps": 1, "end_to_end_s": step_s, **parts}

    slow = {f"loader-{number}": loader(0.01 * 10.0**number) for number in range(5)}
    svg = time_figure({"loaders": {**slow, "gids-none": loader(1.0), "broken": {"failed": ""}}})
    _check_svg(svg[svg.index("<svg") :])
    assert svg.count(", cut") == 3
    assert "gids-none" not in svg


def test_a_folder_of_other_settings_is_refused(small: RunConfig, tmp_path: Path) -> None:
    RunsFolder(tmp_path, small)
    RunsFolder(tmp_path, replace(small, bench=replace(small.bench, max_seconds=7)))
    with pytest.raises(UnfinishedWorkError, match="other settings"):
        RunsFolder(tmp_path, replace(small, bench=replace(small.bench, steps=4)))


def test_no_run_begins_that_may_end_too_late(small: RunConfig, root: Path, tmp_path: Path) -> None:
    regime = REGIMES[RegimeName.SMALL_COLD]
    folder, again = RunsFolder(tmp_path, small), Run(regime, "gids", 1, 0)
    assert expected_s(folder, again, 100) > 100
    folder.write(Run(regime, "gids", 0, 0), {"wall_s": 12.0})
    assert expected_s(folder, again, 100) == 12.0
    settings = SessionSettings(root, root / "paper", budget_s=0.0, ceiling_seconds=0.1, calibrate_seconds=0)
    assert run_session(small, folder, [again], settings) == SessionEnd(0, 1)
    technique = Run(regime, "gids-none", 0, 0)
    assert 12.0 < expected_s(folder, technique, 100) < 100
    folder.write(again, {"failed": "so"})
    folder.forget_failures([again])
    assert folder.result(again) is None


def test_the_command_goes_on_where_it_ended(
    patched: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = list(patched)
    places = ["--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    config = str(REPOSITORY / "configs" / "igbh_small.toml")
    command = [
        "bench",
        "paper",
        "--quick",
        "--config",
        config,
        "--regimes",
        "small-cold",
        "--loaders",
        "gids",
    ]
    assert main([*command, *places, "--budget-s", "0"]) == 3
    assert "0 runs made, 1 left, 0 failed" in capsys.readouterr().out
    assert main([*command, *places]) == 0
    assert "1 runs made, 0 left, 0 failed" in capsys.readouterr().out
    assert main([*command, *places]) == 0
    assert patched[len(before) :] == ["bounds gids", "time gids"]
    result = json.loads((tmp_path / "out" / "igbh_small.json").read_text())
    assert (result["loaders"]["gids"]["steps"], result["planned"]["made"]) == (3, 1)
    assert main([*command, *places, "--steps", "2"]) == 1
    assert "other settings" in capsys.readouterr().err
    assert main([*command, *places, "--regimes", "smal-cold"]) == 1
    assert "small-cold" in capsys.readouterr().err


def test_the_projection_is_arithmetic() -> None:
    facts = {
        **{"rows": 1000, "pages": 1000, "pages_not_constant": 600, "optimal_pages": 300, "edges": 4000},
        **{"compute_s": 1e-5, "sampler_s": 1e-6, "host_to_device_bytes_per_s": 1e12},
    }
    found = project({"facts": facts})
    few, many = found["cases"]["few"], found["cases"]["many"]
    assert (few["reads"], many["reads"]) == pytest.approx((300, 4000 * 0.6))
    assert few["disk_s"] == pytest.approx(300 / 3e6) == few["step_s"]
    assert many["copy_s"] == pytest.approx(4000 * 4096 / 1e12)
    assert (few["limited_by"], many["compute_s"]) == ("disk", pytest.approx(4e-5))
    assert found["constant_buffer_bytes"] == pytest.approx(448e9, rel=1e-2)
    # Citations once, with a loop for each paper; the others both ways: 8.0 billion edges, 4 bytes each.
    assert 33e9 < found["graph_bytes"] < 60e9
    timed = {"host_to_device_bytes_per_s": None, "compute_s": 0.08, "deliver_s": 0.0}
    timed |= {"model": {"disk_s": 0.09, "storage": "calibration", "batches_together": 5.0}, "steps": 100}
    model = step_model(timed, 0.1)
    assert model["limited_by"] == "disk"
    assert model["predicted_s"] == pytest.approx(0.09 + 5 * 0.08 / 100)
    assert model["error"] == pytest.approx(-0.06)


def _run(step_s: float, **changes: Any) -> dict[str, Any]:
    """Ten steps, of which the first takes three times as long as the others."""
    other_s = 10 * step_s / 12
    each = [3 * other_s, *[other_s] * 9]
    plain = {"steps": 10, "asked_steps": 10, "setup_s": 1.0, "feature_wait_s": 10 * step_s}
    per_step = {"step_s": each, "feature_wait_s": each}
    return {**plain, "end_to_end_s": 10 * step_s, "per_step": per_step, **changes}


def test_ratios_are_paired_and_have_a_spread() -> None:
    ours = {0: _run(0.12), 1: _run(0.2), 2: _run(0.1)}
    # In its five steps, ours took 7 times 0.1 s.
    stopped = _run(0.4, steps=5, end_to_end_s=2.8, feature_wait_s=1.4)
    theirs = {0: stopped, 1: _run(0.4), 2: _run(0.6)}
    found = paired_ratios({"gids": ours, "slow": theirs, "broken": {0: {"failed": "so"}}})
    assert set(found) == {"slow"}
    assert found["slow"]["end_to_end_runs"] == pytest.approx([4.0, 2.0, 6.0])
    assert (found["slow"]["end_to_end"], found["slow"]["end_to_end_high"]) == pytest.approx((4.0, 6.0))
    assert found["slow"]["feature_wait"] == pytest.approx(2.0)  # of 1.4 / 0.7, 2, 6
    assert found["slow"]["with_setup"] == pytest.approx(3.8 / 1.7)  # of 3.8 / 1.7, 5 / 3, 7 / 2
    assert paired_ratios({"slow": theirs}) == {}
    assert (
        "feature_wait"
        not in paired_ratios({"gids": {0: _run(0.1, feature_wait_s=0.0)}, "slow": ours})["slow"]
    )


def test_the_bound_is_the_longest_of_what_a_step_needs() -> None:
    facts = {
        **{"features_bytes": 10**7, "steps": 10, "optimal_pages": 200, "compute_s": 0.005, "deliver_s": 0.0},
        **{"host_to_device_bytes_per_s": 1e9, "copied_bytes": 4e6},
    }
    ceilings = {"random_4k_iops": 10_000, "sequential_mb_per_s": 1000.0}
    found = step_bounds(facts, ceilings)
    assert (found["disk_s"], found["sweep_s"], found["copy_s"]) == pytest.approx((0.02, 0.001, 0.004))
    assert (found["step_s"], found["limited_by"]) == (found["disk_s"], "disk")
    assert step_bounds({**facts, "compute_s": 0.03}, ceilings)["limited_by"] == "compute"
    nothing = step_bounds({**facts, "optimal_pages": 0}, ceilings)
    assert (nothing["disk_s"], nothing["sweep_s"], nothing["limited_by"]) == (0, 0, "compute")
    assert step_bounds(facts, {**ceilings, "random_4k_iops": None})["disk_s"] == pytest.approx(0.001)
