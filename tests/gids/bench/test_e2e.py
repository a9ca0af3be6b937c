"""The comparison as a whole, each loader in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from documented_fields import documented

from bam.native import available
from gids.bench import child, e2e, launch
from gids.bench.e2e import equalities, ratios, run_e2e
from gids.bench.job import Job, JobKind
from gids.bench.launch import child_environment, run_job
from gids.bench.loaders import LoaderData
from gids.bench.recorded import record
from gids.bench.sources import SampledSource
from gids.cli.signals import terminated_as_interrupted
from gids.config import RunConfig
from gids.errors import PackageMissing


@pytest.fixture(scope="module")
def result(config: RunConfig, root: Path) -> dict[str, Any]:
    """Two loaders, cold, with training, on the same mini-batches."""
    bench = replace(config.bench, loaders=("gids", "dgl-mmap-tuned"), same_batches=True, cold=True)
    # Mini-batches that are read together share pages that no line holds: they can miss less than the optimum.
    alone = replace(config, bench=bench, loader=replace(config.loader, accumulate=0))
    found = run_e2e(alone, root, ceiling_seconds=0.1)
    return json.loads(json.dumps(found))


def test_loaders_delivered_and_learned_the_same(result: dict[str, Any]) -> None:
    gids, mapped = result["loaders"]["gids"], result["loaders"]["dgl-mmap-tuned"]
    assert result["equal"] == {"batches": True, "features": True, "losses": True, "timed_rows": True}
    assert len(gids["losses"]) == gids["steps"] == gids["verified_steps"] == 3
    for key in ("batches_sha256", "features_sha256", "rows_requested", "rows_distinct", "edges"):
        assert gids[key] == mapped[key]
    assert gids["rows_requested"] > gids["rows_distinct"] > 0


def test_the_optimum_has_the_constant_rows_of_the_run(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``auto`` would be another size, in another process at another time."""
    asked: list[Job] = []

    def run_job(job: Job) -> dict[str, Any]:
        asked.append(job)
        return {"memory": {}, "belady": {}}

    monkeypatch.setattr(e2e, "run_job", run_job)
    loader = replace(config.loader, cpu_buffer="auto")
    job = Job(JobKind.TIME, "gids", 3, 0, replace(config, loader=loader), "", "")
    features = {name: {"cache_lines": 7, "constant_row_bytes": 100} for name in "ab"}
    e2e._belady(job, {"path": {"features": features}, "node_types": {}, "steps": 2})
    assert asked[0].config.loader.cpu_buffer == 200
    assert (asked[0].kind, asked[0].steps, asked[0].cache_lines) == (JobKind.BELADY, 2, 7)


def test_where_rows_came_from_adds_up(result: dict[str, Any]) -> None:
    gids, mapped = result["loaders"]["gids"], result["loaders"]["dgl-mmap-tuned"]
    assert sum(gids["rows_from"].values()) == gids["rows_requested"]
    assert gids["hit_rate"] == pytest.approx(1 - gids["rows_from"]["storage"] / gids["rows_requested"])
    assert gids["bytes_read"] > 0 < gids["bytes_useful"]
    assert (mapped["rows_from"], mapped["hit_rate"]) == (None, None)
    assert mapped["bytes_useful"] == mapped["rows_requested"] * 24 * 4
    assert gids["cold"]["cold"]
    if available():
        assert sum(gids["storage"]["latency_histogram"]["reads"]) >= gids["reads"] > 0


def test_times_add_up(result: dict[str, Any]) -> None:
    for each in result["loaders"].values():
        parts = sum(each[key] for key in ("sample_s", "feature_wait_s", "compute_s"))
        assert 0 < parts <= each["end_to_end_s"] * 1.001
        assert sum(each["per_step"]["compute_s"]) == pytest.approx(each["compute_s"])


def test_every_field_is_documented_and_every_documented_field_is_there(result: dict[str, Any]) -> None:
    for name, each in result["loaders"].items():
        fields = {f"loaders.<name>.{key}" for key in each}
        expected = documented("`e2e`") - {"loaders.<name>.failed"}
        assert {*result, *fields} == expected, name


def test_misses_are_compared_with_the_fewest(result: dict[str, Any]) -> None:
    found = result["loaders"]["gids"]["belady"]
    assert found["lines"] == result["loaders"]["gids"]["path"]["features"]["paper"]["cache_lines"] > 0
    assert found["misses"] == sum(
        each["pages_read"] for each in result["loaders"]["gids"]["node_types"].values()
    )
    # Filling the constant buffer reads a page at its end, of each type, that other rows share.
    assert 0 < found["optimal_misses"] <= found["misses"] + 4
    assert found["misses"] <= found["pages_requested"]
    assert found["gap"] == found["misses"] / found["optimal_misses"] < 1.5
    assert result["loaders"]["dgl-mmap-tuned"]["belady"] is None


def test_recorded_mini_batches_need_no_dgl(
    config: RunConfig, root: Path, tmp_path: Path, data: LoaderData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise PackageMissing("dgl", "this", "install it")

    monkeypatch.setattr("gids.bench.dgl_source.import_dgl", missing)
    job = Job(JobKind.TIME, "dgl-mmap-tuned", 2, 0, config, str(root), str(tmp_path))
    source = SampledSource(data.dataset.graph, child.train_plan(job, data))
    record(tmp_path / "recorded", data.dataset.graph.schema, islice(source.batches(0), 2))
    assert child.run(replace(job, recorded=str(tmp_path / "recorded")))["steps"] == 2
    with pytest.raises(PackageMissing):
        child.run(job)


def test_a_loader_that_fails_leaves_the_others(config: RunConfig, root: Path) -> None:
    bench = replace(config.bench, loaders=("gids",), steps=1, train=False, verify_steps=0)
    broken = replace(config, bench=bench, loader=replace(config.loader, queue_depth=10**9))
    found = run_e2e(broken, root, ceiling_seconds=0.1)
    failed = found["loaders"]["gids"]["failed"]
    assert failed.startswith("ConfigError: queue_depth")
    assert found["ratios"] == {}


def test_jobs_come_back_from_their_file(config: RunConfig, tmp_path: Path) -> None:
    job = Job(JobKind.VERIFY, "gids", 3, 2, config, "/data", str(tmp_path), "recorded")
    job.write(tmp_path / "job.json")
    assert Job.read(tmp_path / "job.json") == job


def test_a_killed_process_is_a_failure(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = subprocess.Popen
    kill = f"import os; os.kill(os.getpid(), {signal.SIGKILL})"
    monkeypatch.setattr(
        launch.subprocess, "Popen", lambda command, **options: plain([sys.executable, "-c", kill])
    )
    job = Job(JobKind.TIME, "gids", 1, 0, config, "", str(tmp_path))
    result = run_job(job)
    assert "SIGKILL" in result["failed"]
    assert result["memory"] == {
        **{"limit_bytes": 0, "enforced": False, "means": "", "cgroup_version": 0},
        **{"peak_bytes": None, "note": ""},
    }
    assert list(tmp_path.iterdir()) == []


def test_environment_is_the_same_for_all() -> None:
    assert child_environment(0)["OMP_WAIT_POLICY"] == "PASSIVE"
    assert child_environment(3)["OMP_NUM_THREADS"] == child_environment(3)["NUMBA_NUM_THREADS"] == "3"
    assert child_environment(0).get("HOME") == os.environ.get("HOME")


def test_time_limit_stops_early(config: RunConfig, root: Path, tmp_path: Path) -> None:
    bench = replace(config.bench, train=False, max_seconds=1, steps=10**6)
    limited = replace(config, bench=bench)
    job = Job(JobKind.TIME, "in-memory", 10**6, 0, limited, str(root), str(tmp_path))
    result = child.run(job)
    assert 0 < result["steps"] < result["asked_steps"] == 10**6
    assert result["losses"] == []


def test_equalities_and_ratios() -> None:
    first = {
        **{"steps": 2, "asked_steps": 2, "timed_rows_sha256": "x"},
        **{"end_to_end_s": 1.0, "feature_wait_s": 0.5, "compute_s": 0.0},
        **{"losses": [1.0, 2.0], "step_batches_sha256": ["a", "b"], "step_features_sha256": ["c"]},
    }
    slow = {**first, "steps": 1, "end_to_end_s": 2.0, "losses": [1.0], "timed_rows_sha256": "y"}
    loaders = {"gids": first, "slow": slow, "broken": {"failed": "so"}}
    expected = {"batches": True, "features": True, "losses": True, "timed_rows": None}
    assert equalities(loaders) == expected
    assert ratios(loaders) == {"slow": {"end_to_end": 4.0, "feature_wait": 2.0}}
    other = {**first, "losses": [1.0, 2.5], "step_batches_sha256": ["a", "z"], "timed_rows_sha256": "z"}
    found = equalities({"gids": first, "other": other})
    assert found == {"batches": False, "features": True, "losses": False, "timed_rows": False}
    assert ratios({"slow": slow}) == {}


def test_a_warm_loader_reads_nothing_while_the_clock_runs(
    config: RunConfig, root: Path, tmp_path: Path
) -> None:
    found = {}
    for warm in (True, False):
        bench = replace(config.bench, train=False, warm=warm)
        roomy = replace(config, bench=bench, loader=replace(config.loader, cache="8MiB", cpu_buffer=0))
        result = child.run(Job(JobKind.TIME, "gids", 3, 0, roomy, str(root), str(tmp_path)))
        found[warm] = (result["rows_requested"], result["rows_from"]["storage"] > 0)
    assert found[True] == (found[False][0], False)
    assert found[False][1]


def test_terminated_means_interrupted() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def wait_for_the_end() -> None:
        with terminated_as_interrupted():
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()

    with pytest.raises(KeyboardInterrupt):
        wait_for_the_end()
    assert signal.getsignal(signal.SIGTERM) == before
