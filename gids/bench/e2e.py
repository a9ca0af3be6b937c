"""`gids bench e2e`: the same training through each loader, one after the other, and how they compare."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bam.bench.machine import command, commit, describe_machine
from gids.bench.ceilings import mean_ceilings, measure_ceilings
from gids.bench.child import train_plan
from gids.bench.data import open_data
from gids.bench.disk import make_cold, read_ahead
from gids.bench.job import Job, JobKind
from gids.bench.launch import child_environment, run_job
from gids.bench.loaders import LOADERS, READ_AHEAD_KIB, LoaderData
from gids.bench.recorded import record
from gids.bench.sources import SampledSource
from gids.config.read import as_table
from gids.config.sections import RunConfig
from gids.graph.progress import Progress, no_progress
from gids.sampling.block import SampledBatch

logger = logging.getLogger(__name__)

SCHEMA = 1

Report = Callable[[str], object]


def run_e2e(
    config: RunConfig,
    root: Path,
    *,
    work: Path | None = None,
    report: Report = logger.info,
    progress: Progress = no_progress,
    ceiling_seconds: float = 8.0,
) -> dict[str, Any]:
    """Run the comparison.

    Parameters
    ----------
    config : RunConfig
        Its section `bench` says what is done.
    root : Path
        Folder that all data sets are below.
    work : Path, optional
        Folder for temporary files, such as recorded mini-batches; by default the system's.
    report : callable
        Told in one line of each loader that is done.
    progress : Progress
    ceiling_seconds : float
        Length of each measurement of the disk. Shared disks allow short bursts that they do not keep up.

    Returns
    -------
    dict
        The content of the result file, see `docs/results.md`.

    Raises
    ------
    ConfigError, DatasetError
        Before any loader runs. A loader that fails later has ``failed`` in its result.
    """
    with tempfile.TemporaryDirectory(prefix="gids-bench-", dir=work) as folder:
        data = open_data(config.data, root, Path(folder))
        bench = config.bench
        verified = bench.steps if bench.verify_steps < 0 else min(bench.steps, bench.verify_steps)
        job = Job(JobKind.TIME, bench.loaders[0], bench.steps, verified, config, str(root), folder)
        if bench.same_batches:
            job = replace(job, recorded=record_batches(job, data, progress))
        largest = data.files()[0]
        loaders: dict[str, dict[str, Any]] = {}
        result = {
            "schema": SCHEMA,
            "name": "e2e",
            "commit": commit(),
            "command": command(),
            "machine": describe_run_machine(Path(largest), config),
            "cold": bench.cold,
            "warm": bench.warm,
            "config": as_table(config),
            "data": describe_data(data),
            "ceilings": {},
            "loaders": loaders,
        }
        # Before and after the first loader, `gids` by default: shared disks move from minute to minute.
        ceilings = [measure_ceilings(largest, ceiling_seconds)]
        for name in bench.loaders:
            loaders[name] = measure(replace(job, loader=name), data)
            report(f"{name}: {_one_line(loaders[name])}")
            if len(ceilings) == 1:
                ceilings.append(measure_ceilings(largest, ceiling_seconds))
        result["ceilings"] = mean_ceilings(ceilings)
    return {**result, "equal": equalities(loaders), "ratios": ratios(loaders)}


def record_batches(job: Job, data: LoaderData, progress: Progress) -> str:
    """Sample the job's mini-batches and write them; the folder."""
    source = SampledSource(data.dataset.graph, train_plan(job, data))
    folder = Path(job.work) / "recorded"
    bar = progress("record mini-batches", job.steps, 0)

    def batches() -> Any:
        epoch = 0
        while True:
            for batch in source.batches(epoch):
                yield batch
                bar.update(1)
            epoch += 1

    try:
        sampled: islice[SampledBatch] = islice(batches(), job.steps)
        record(folder, data.dataset.graph.schema, sampled)
    finally:
        bar.close()
    return str(folder)


def measure(job: Job, data: LoaderData, *, belady: bool = True) -> dict[str, Any]:
    """One loader, timed and verified; after a run under a limit it is verified in a process without one.

    `belady`: compare its misses with the optimum.
    """
    bench = job.config.bench
    kib = READ_AHEAD_KIB.get(job.loader)
    limit_bytes = 0 if LOADERS[job.loader].holds_features else bench.memory_limit_bytes
    files = data.files()
    cold = asdict(make_cold(files)) if bench.cold else None
    with read_ahead(files[0], kib) as state:
        result = run_job(replace(job, verify_steps=0) if limit_bytes else job, limit_bytes)
    result |= {"read_ahead": asdict(state), "cold": cold}
    if bench.memory_limit_bytes and not limit_bytes:
        result["memory"]["note"] = "no limit: it holds all features in memory"
    if "failed" in result:
        return result
    if limit_bytes and job.verify_steps:
        result |= _afterwards(replace(job, kind=JobKind.VERIFY))
    return result | {"belady": _belady(job, result)} if belady else result


def _belady(job: Job, result: Mapping[str, Any]) -> dict[str, Any] | None:
    """How far the run is from the fewest reads; None where it does not say what it read, or was warm."""
    tables = result["path"].get("features", {}).values()
    lines = [table.get("cache_lines", 0) for table in tables]
    if job.config.bench.warm or not any(lines):
        return None
    misses = sum(counts["pages_read"] for counts in result["node_types"].values())
    if job.config.loader.cpu_buffer == "auto":
        # What is available now is not what was then: the rows it held, and no others, were constant.
        held = sum(table.get("constant_row_bytes", 0) for table in tables)
        job = replace(job, config=replace(job.config, loader=replace(job.config.loader, cpu_buffer=held)))
    return fewest_misses(replace(job, steps=result["steps"], cache_lines=max(lines), misses=misses))


def fewest_misses(job: Job) -> dict[str, Any] | None:
    """The fields of `belady` for a job's `steps`, `cache_lines` and `misses`, found in a process of its own.

    None where that failed.
    """
    found = _afterwards(replace(job, kind=JobKind.BELADY))
    if "failed" in found:
        logger.warning("Belady's optimum was not found: %s", found["failed"])
    return found.get("belady")


def _afterwards(job: Job) -> dict[str, Any]:
    """The result of a job that is not timed and has no limit."""
    result = run_job(job)
    result.pop("memory")
    return result


def equalities(loaders: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Whether all loaders delivered the same: mini-batches, features, rows while timed, and losses.

    Each is None where there is nothing to compare. A GPU sums in no fixed order while the clock runs, so
    losses there are not compared; `gids train` makes it keep one. Loaders that stopped early are compared as
    far as they went.
    """
    done = [each for each in loaders.values() if "failed" not in each]
    return {
        "batches": _all_equal([each.get("step_batches_sha256") for each in done]),
        "features": _all_equal([each.get("step_features_sha256") for each in done]),
        "losses": _all_equal([each.get("losses") for each in done if each.get("device", "cpu") == "cpu"]),
        "timed_rows": _all_equal([[each["timed_rows_sha256"]] for each in done if _is_whole(each)]),
    }


def _is_whole(result: Mapping[str, Any]) -> bool:
    return bool(result["steps"] == result["asked_steps"])


def _all_equal(sequences: list[list[Any] | None]) -> bool | None:
    given = [each for each in sequences if each]
    if len(given) < 2:
        return None
    shortest = min(map(len, given))
    return all(each[:shortest] == given[0][:shortest] for each in given)


def ratios(loaders: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """How many times longer other loaders take than `gids`, a step, by name and time."""
    ours = loaders.get("gids")
    if ours is None or "failed" in ours:
        return {}
    found: dict[str, dict[str, float]] = {}
    for name, theirs in loaders.items():
        if name == "gids" or "failed" in theirs:
            continue
        found[name] = {
            time: (theirs[f"{time}_s"] / theirs["steps"]) / (ours[f"{time}_s"] / ours["steps"])
            for time in ("end_to_end", "feature_wait", "compute")
            if ours[f"{time}_s"] > 0
        }
    return found


def describe_run_machine(path: Path, config: RunConfig) -> dict[str, Any]:
    """The machine, and the threads of a loader's process."""
    environment = child_environment(config.bench.threads)
    names = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "CUDA_MODULE_LOADING")
    return {
        **describe_machine(path),
        "threads": config.bench.threads or len(os.sched_getaffinity(0)),
        "environment": {name: environment.get(name, "") for name in names},
    }


def describe_data(data: LoaderData) -> dict[str, Any]:
    """Counts and sizes of the data set."""
    features = data.dataset.features
    return {
        "path": data.dataset.path.name,
        "nodes": dict(data.dataset.graph.schema.num_nodes),
        "edges": data.dataset.graph.num_edges,
        "feature_bytes": sum(each.n_rows * each.row_bytes for each in features.values()),
        "dtypes": {name: each.dtype.value for name, each in features.items()},
    }


def _one_line(result: Mapping[str, Any]) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    steps = result["steps"]
    times = ", ".join(
        f"{label} {1000 * result[key] / steps:.1f}"
        for label, key in (
            ("step", "end_to_end_s"),
            ("features", "feature_wait_s"),
            ("sampling", "sample_s"),
            ("compute", "compute_s"),
        )
    )
    return f"{steps} steps, ms each: {times}"
