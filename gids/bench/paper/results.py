"""Result files of the comparison, from the runs in its folder: medians, spreads, and what bounds a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gids.bench.e2e import SCHEMA, equalities
from gids.bench.paper.folder import RunsFolder
from gids.bench.paper.projection import project, step_model
from gids.bench.paper.regimes import REGIMES, Regime, RegimeName, Run, planned_runs
from gids.config.read import as_table
from gids.config.sections import RunConfig

Result = dict[str, Any]

#: What is kept of every repetition; of the median one everything is.
KEPT = (
    *("repetition", "position", "session", "steps", "asked_steps", "setup_s", "end_to_end_s", "sample_s"),
    *("feature_wait_s", "copy_s", "compute_s", "busy_s", "busy_share", "hit_rate", "reads", "bytes_read"),
    *("wall_s", "failed"),
)


def result_files(config: RunConfig, folder: RunsFolder, repetitions: int) -> dict[str, Result]:
    """``igbh_small`` and ``igbh_full_regime``, the names of the files, as far as there are runs."""
    found = {}
    cold = regime_result(config, folder, REGIMES[RegimeName.SMALL_COLD], repetitions)
    steady = regime_result(config, folder, REGIMES[RegimeName.SMALL_STEADY], repetitions)
    full = regime_result(config, folder, REGIMES[RegimeName.FULL], repetitions)
    if cold or steady:
        head = _head(config, folder, "small", cold or steady or {})
        found["igbh_small"] = {**head, **(cold or {}), "steady": steady}
    if full:
        found["igbh_full_regime"] = {
            **_head(config, folder, "full", full),
            **full,
            "projection": project(full),
        }
    return found


def _head(config: RunConfig, folder: RunsFolder, regime: str, found: Mapping[str, Any]) -> Result:
    sessions = folder.sessions()
    last: Mapping[str, Any] = sessions[-1] if sessions else {}
    return {
        "schema": SCHEMA,
        "name": "paper",
        "regime": regime,
        "commit": ", ".join(dict.fromkeys(each["commit"] for each in sessions)),
        "command": last.get("command", ""),
        "machine": last.get("machine", {}),
        "device": last.get("device", ""),
        "config": {**as_table(config), "name": f"{config.name}, {regime} regime"},
        "data": last.get("data", {}),
        "sessions": [
            {key: each[key] for key in ("commit", "command", "prepare_s", "ceilings")} for each in sessions
        ],
    }


def regime_result(config: RunConfig, folder: RunsFolder, regime: Regime, repetitions: int) -> Result | None:
    """What is known of one regime; None before any of its runs has ended."""
    by_name: dict[str, dict[int, Result]] = {}
    for run in planned_runs((regime,), repetitions):
        result = folder.result(run)
        if result is not None:
            by_name.setdefault(run.name, {})[run.repetition] = result
    facts = folder.facts(regime)
    if not by_name or facts is None:
        return None
    loaders = {name: _median_run(list(found.values())) for name, found in by_name.items()}
    ceilings = _ceilings(folder)
    bounds = step_bounds(facts["bounds"], ceilings)
    found: Result = {
        "title": regime.title,
        "cold": regime.cold,
        "warm": regime.warm,
        "limit_bytes": facts["limit_bytes"],
        "own_bytes": facts["own_bytes"],
        "shares": {"cache": regime.cache_share, "cpu_buffer": regime.buffer_share},
        "published_hits": regime.published_hits,
        "planned": _planned(regime, repetitions, by_name),
        "ceilings": ceilings,
        "loaders": loaders,
        "equal": {**equalities(_verified(by_name)), "repetitions": _same_rows(by_name)},
        "ratios": paired_ratios(by_name),
        "facts": facts["bounds"],
        "bound": bounds,
        "bound_ratio": None,
        "model": None,
    }
    ours = loaders.get("gids", {"failed": ""})
    if "failed" not in ours:
        step_s = ours["end_to_end_s"] / ours["steps"]
        found["bound_ratio"] = step_s / bounds["step_s"] if bounds["step_s"] else None
        found["model"] = step_model(facts["bounds"], step_s)
    return found


def _planned(regime: Regime, repetitions: int, by_name: Mapping[str, Mapping[int, Result]]) -> Result:
    planned: list[Run] = planned_runs((regime,), repetitions)
    made = sum(run.repetition in by_name.get(run.name, {}) for run in planned)
    return {"repetitions": repetitions, "runs": len(planned), "made": made}


def _median_run(runs: Sequence[Result]) -> Result:
    """The run whose step took the median time, with what is kept of all."""
    kept = [{key: run[key] for key in KEPT if key in run} for run in runs]
    done = sorted((run for run in runs if "failed" not in run), key=_step_s)
    chosen = done[len(done) // 2] if done else runs[-1]
    return {**chosen, "repetitions": kept}


def _step_s(run: Mapping[str, Any]) -> float:
    return float(run["end_to_end_s"] / run["steps"])


def _verified(by_name: Mapping[str, Mapping[int, Result]]) -> dict[str, Result]:
    """The runs whose bytes were hashed, which are those of the first repetition."""
    return {name: found[0] for name, found in by_name.items() if 0 in found}


def _same_rows(by_name: Mapping[str, Mapping[int, Result]]) -> bool | None:
    """Whether all whole runs, on whatever machine, had the same rows in the same mini-batches."""
    done = [run for found in by_name.values() for run in found.values() if "failed" not in run]
    digests = [run["timed_rows_sha256"] for run in done if run["steps"] == run["asked_steps"]]
    return len(set(digests)) == 1 if len(digests) > 1 else None


def paired_ratios(by_name: Mapping[str, Mapping[int, Result]]) -> dict[str, Result]:
    """How many times longer a step of others is than one of `gids`, each repetition for itself.

    Returns
    -------
    dict
        By loader: medians ``end_to_end``, ``feature_wait`` and ``with_setup`` (the opening, too), and of the
        first the spread, ``end_to_end_runs``. One that was stopped early is compared with as many steps of
        `gids`: the first ones of a cold start take longest.
    """
    ours = {number: run for number, run in by_name.get("gids", {}).items() if "failed" not in run}
    if not ours:
        return {}
    found = {}
    for name, runs in by_name.items():
        pairs = [
            (run, ours[number])
            for number, run in runs.items()
            if name != "gids" and "failed" not in run and number in ours
        ]
        if not pairs:
            continue
        same = [_SameSteps.of(theirs, mine) for theirs, mine in pairs]
        end_to_end = [theirs.step_s / mine.step_s for theirs, mine in same]
        found[name] = {
            "end_to_end": median(end_to_end),
            "end_to_end_low": min(end_to_end),
            "end_to_end_high": max(end_to_end),
            "end_to_end_runs": end_to_end,
            "with_setup": median(
                (theirs.step_s + theirs.setup_s) / (mine.step_s + mine.setup_s) for theirs, mine in same
            ),
            **_wait_ratio(same),
        }
    return found


@dataclass(frozen=True)
class _SameSteps:
    """Seconds of the steps that two runs have in common, and of the opening."""

    step_s: float
    wait_s: float
    setup_s: float

    @classmethod
    def of(cls, theirs: Result, mine: Result) -> tuple[_SameSteps, _SameSteps]:
        """Of both."""
        steps = min(theirs["steps"], mine["steps"])
        return cls._first(theirs, steps), cls._first(mine, steps)

    @classmethod
    def _first(cls, run: Result, steps: int) -> _SameSteps:
        if steps == run["steps"]:
            return cls(run["end_to_end_s"], run["feature_wait_s"], run["setup_s"])
        each = run["per_step"]
        return cls(sum(each["step_s"][:steps]), sum(each["feature_wait_s"][:steps]), run["setup_s"])


def _wait_ratio(same: Sequence[tuple[_SameSteps, _SameSteps]]) -> dict[str, float]:
    """Left out where `gids` waits for nothing."""
    if any(mine.wait_s <= 0 for _, mine in same):
        return {}
    return {"feature_wait": median(theirs.wait_s / mine.wait_s for theirs, mine in same)}


def _ceilings(folder: RunsFolder) -> Result:
    """The disk's, medians over all calls."""
    measured = [session["ceilings"] for session in folder.sessions()]
    rates = [each["random_4k_iops"] for each in measured if each["random_4k_iops"] is not None]
    return {
        **measured[-1],
        "random_4k_iops": median(rates) if rates else None,
        "sequential_mb_per_s": median(each["sequential_mb_per_s"] for each in measured),
    }


def step_bounds(facts: Mapping[str, Any], ceilings: Mapping[str, Any]) -> Result:
    """Seconds a step takes at least: computing, sampling, reading and copying alone.

    Reading: each page that Belady's optimum misses, at the disk's rate of random reads. Where mini-batches
    are dense the whole of the features once, from one end to the other, may take less (`sweep_s`).
    """
    iops, any_read = ceilings["random_4k_iops"], facts["optimal_pages"] > 0
    sweep_s = facts["features_bytes"] / (1e6 * ceilings["sequential_mb_per_s"]) / facts["steps"]
    rate = facts["host_to_device_bytes_per_s"]
    parts = {
        "compute_s": facts["compute_s"],
        "deliver_s": facts["deliver_s"],
        "disk_s": facts["optimal_pages"] / iops if iops else sweep_s * any_read,
        "copy_s": facts["copied_bytes"] / rate if rate else 0.0,
    }
    limited_by = max(parts, key=parts.__getitem__)
    return {
        **parts,
        "step_s": parts[limited_by],
        "limited_by": limited_by.removesuffix("_s"),
        "sweep_s": sweep_s * any_read,
    }
