"""`gids bench ablation`: what each technique is worth alone and with the others, on the same mini-batches."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bam.bench.machine import command, commit
from bam.config import PolicyKind
from bam.errors import ConfigError
from gids.bench.ceilings import measure_ceilings
from gids.bench.data import open_data
from gids.bench.e2e import (
    SCHEMA,
    describe_data,
    describe_run_machine,
    equalities,
    fewest_misses,
    measure,
    record_batches,
)
from gids.bench.job import Job, JobKind
from gids.config.read import as_table
from gids.config.sections import LoaderConfig, RunConfig
from gids.fetch.constant_buffer import parse_share
from gids.figures.svg import Bar, stacked_bars
from gids.figures.table import Table
from gids.graph.progress import Progress, no_progress

logger = logging.getLogger(__name__)

#: Constant buffer of the variants that have one, where the configuration has none: a share of the memory.
_BUFFER_SHARE = 0.5


def variants(loader: LoaderConfig, features_bytes: int) -> dict[str, LoaderConfig]:
    """The loader without any technique, with each alone, and with all; all take the same memory.

    Parameters
    ----------
    loader : LoaderConfig
        Its cache and constant buffer together are the memory of every variant; its window, budget and
        constant buffer are those of the variants that have them.
    features_bytes : int

    Raises
    ------
    ConfigError
        Its sizes or window are ``auto``, or it has a technique turned off that is to be compared.
    """
    for name in ("cache", "cpu_buffer", "window"):
        if getattr(loader, name) == "auto":
            raise ConfigError(
                f"loader.{name}", "auto", "a number: memory has to be the same for all variants"
            )
    for name in ("window", "foresight", "contiguous", "accumulate"):
        if not getattr(loader, name):
            raise ConfigError(f"loader.{name}", getattr(loader, name), "turned on, so that it is compared")
    cache_bytes = parse_share(loader.cache, features_bytes, "cache")
    buffer_bytes = parse_share(loader.cpu_buffer, features_bytes, "cpu_buffer")
    memory_bytes = cache_bytes + buffer_bytes
    buffer_bytes = buffer_bytes or int(_BUFFER_SHARE * memory_bytes)
    plain = replace(
        loader,
        cache=memory_bytes,
        cpu_buffer=0,
        window=0,
        foresight=0,
        policy=PolicyKind.CLOCK.value,
        accumulate=0,
        contiguous=False,
    )
    rest_bytes = max(loader.page_bytes, memory_bytes - buffer_bytes)
    everything = replace(loader, cache=rest_bytes, cpu_buffer=buffer_bytes)
    return {
        "none": plain,
        "accumulator": replace(plain, accumulate=loader.accumulate),
        "contiguous": replace(plain, contiguous=True),
        "window": replace(plain, window=loader.window, policy=loader.policy),
        "window, foresight": replace(
            plain, window=loader.window, foresight=loader.foresight, policy=loader.policy
        ),
        "cpu_buffer": replace(plain, cache=rest_bytes, cpu_buffer=buffer_bytes),
        "all": everything,
    }


def run_ablation(
    config: RunConfig,
    root: Path,
    *,
    work: Path | None = None,
    report: Callable[[str], object] = logger.info,
    progress: Progress = no_progress,
    ceiling_seconds: float = 2.0,
) -> dict[str, Any]:
    """Run every variant in a process of its own; the content of the result file, see `docs/results.md`.

    Parameters
    ----------
    config : RunConfig
        Its section `bench` says how; mini-batches are recorded once in any case.
    root, work, report, progress, ceiling_seconds
        As for :func:`gids.bench.e2e.run_e2e`.

    Raises
    ------
    ConfigError, DatasetError
        Before any variant runs; also where everything is to be delivered before the clock starts: a warm
        cache says nothing of what fills it.
    """
    if config.bench.warm:
        raise ConfigError("bench.warm", True, "false: techniques are compared by what they read")
    with tempfile.TemporaryDirectory(prefix="gids-ablation-", dir=work) as folder:
        data = open_data(config.data, root, Path(folder))
        sizes = [each.n_rows * each.row_bytes for each in data.dataset.features.values()]
        compared = variants(config.loader, sum(sizes))
        bench = config.bench
        verified = bench.steps if bench.verify_steps < 0 else min(bench.steps, bench.verify_steps)
        job = Job(JobKind.TIME, "gids", bench.steps, verified, config, str(root), folder)
        job = replace(job, recorded=record_batches(job, data, progress))
        fewest = _fewest_reads(job, compared["none"])
        largest = data.files()[0]
        loaders: dict[str, dict[str, Any]] = {}
        result = {
            "schema": SCHEMA,
            "name": "ablation",
            "commit": commit(),
            "command": command(),
            "machine": describe_run_machine(Path(largest), config),
            "cold": bench.cold,
            "config": as_table(config),
            "data": describe_data(data),
            "ceilings": measure_ceilings(largest, ceiling_seconds),
            "optimal_misses": fewest,
            "loaders": loaders,
        }
        for name, loader in compared.items():
            found = measure(replace(job, config=replace(config, loader=loader)), data, belady=False)
            loaders[name] = {**found, "settings": as_table(loader), "belady_ratio": _ratio(found, fewest)}
            report(f"{name} is done")
    return {**result, "equal": equalities(loaders)}


def _fewest_reads(job: Job, loader: LoaderConfig) -> int | None:
    """Misses of Belady's optimum with all of the memory; None where they were not found."""
    assert isinstance(loader.cache, int)
    lines = max(1, loader.cache // loader.page_bytes)
    config = replace(job.config, loader=loader)
    found = fewest_misses(replace(job, config=config, cache_lines=lines))
    return None if found is None else int(found["optimal_misses"])


def _ratio(found: Mapping[str, Any], fewest: int | None) -> float | None:
    """None where the variant did not read the whole trace."""
    if "failed" in found or found["steps"] < found["asked_steps"] or not fewest:
        return None
    return float(sum(each["pages_read"] for each in found["node_types"].values()) / fewest)


def ablation_table(result: Mapping[str, Any]) -> Table:
    """Variants side by side."""
    heads = (
        *("technique", "features, ms a step", "hit rate", "pages read a step", "reads a step"),
        *("pages a read", "useful, %", "to Belady's optimum"),
    )
    rows = [_row(name, each) for name, each in result["loaders"].items()]
    equal = ", ".join(f"{what.replace('_', ' ')} {same}" for what, same in result["equal"].items())
    return Table(heads, tuple(rows), f"Equal for all: {equal}.")


def _row(name: str, loader: Mapping[str, Any]) -> tuple[str, ...]:
    if "failed" in loader:
        return (name, "failed", *[""] * 6)
    steps, page_bytes = loader["steps"], loader["settings"]["page_bytes"]
    pages = sum(each["pages_read"] for each in loader["node_types"].values())
    ratio = loader["belady_ratio"]
    return (
        name,
        f"{1000 * loader['feature_wait_s'] / steps:,.1f}",
        f"{loader['hit_rate']:.3f}",
        f"{pages / steps:,.0f}",
        f"{loader['reads'] / steps:,.0f}",
        f"{pages / loader['reads']:.2f}" if loader["reads"] else "",
        f"{100 * pages * page_bytes / loader['bytes_read']:.0f}" if loader["bytes_read"] else "",
        "" if ratio is None else f"{ratio:.2f}",
    )


def ablation_plot(result: Mapping[str, Any]) -> str:
    """An SVG image: milliseconds a step that training waits for features."""
    bars = []
    for name, each in result["loaders"].items():
        milliseconds = 0.0 if "failed" in each else 1000 * each["feature_wait_s"] / each["steps"]
        bars.append(Bar(name, [milliseconds], "failed" if "failed" in each else f"{milliseconds:,.1f} ms"))
    return stacked_bars(bars, "waiting for features, a step")
