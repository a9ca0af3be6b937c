"""Targets of the comparison: which were met, in how many runs, and what stands in the way of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gids.bench.report.tables import Result
from gids.figures.table import Table

#: A result file and one of its regimes, by ``cold``, ``steady`` and ``full``.
Regimes = Mapping[str, tuple[Result, Mapping[str, Any]]]
#: Share by which the cost model may be wrong.
MODEL_ERROR = 0.15
_WORDS = {"compute": "computing", "deliver": "delivering mini-batches", "disk": "the disk", "copy": "copying"}


@dataclass(frozen=True)
class Target:
    """What is to be reached.

    Attributes
    ----------
    regime : str
        ``cold``, ``steady`` or ``full``.
    what : str
    loader : str
        A loader that `gids` is to be so many times faster than; or empty, and then ``field`` counts.
    limit : float
    at_most : bool
    field : str
        ``bound_ratio``, ``busy_share`` or ``model_error``.
    """

    regime: str
    what: str
    limit: float
    loader: str = ""
    at_most: bool = False
    field: str = ""


TARGETS = (
    Target("cold", "IGBH-small, cold: over `dgl-mmap-128k`", 8, "dgl-mmap-128k"),
    Target("cold", "IGBH-small, cold: over `dgl-mmap-tuned`", 3, "dgl-mmap-tuned"),
    Target("steady", "IGBH-small, steady: over `dgl-mmap-tuned`", 5, "dgl-mmap-tuned"),
    Target("full", "IGBH-full's regime: over `dgl-mmap-128k`", 25, "dgl-mmap-128k"),
    Target("full", "IGBH-full's regime: over `dgl-mmap-tuned`", 4, "dgl-mmap-tuned"),
    Target("cold", "IGBH-small, cold: step over its bound", 1.10, at_most=True, field="bound_ratio"),
    Target("full", "IGBH-full's regime: step over its bound", 1.10, at_most=True, field="bound_ratio"),
    Target("steady", "everything cached: device busy", 0.95, field="busy_share"),
    Target("cold", "IGBH-small, cold: cost model's error", MODEL_ERROR, at_most=True, field="model_error"),
    Target("full", "IGBH-full's regime: cost model's error", MODEL_ERROR, at_most=True, field="model_error"),
)


def targets_table(regimes: Regimes) -> Table:
    """All of them, with what was measured."""
    rows = []
    for target in TARGETS:
        value = _value(target, regimes)
        sign = "at most" if target.at_most else "at least"
        verdict = "not run yet" if value is None else _verdict(target, value, regimes[target.regime][1])
        measured = "-" if value is None else f"{value:.2f}"
        opening = _with_opening(target, regimes)
        rows.append((target.what, f"{sign} {target.limit:g}", measured, opening, verdict))
    note = "With opening: all steps and what comes before them, such as filling the constant buffer."
    return Table(("what", "target", "measured", "with opening", ""), tuple(rows), note)


def _with_opening(target: Target, regimes: Regimes) -> str:
    """A ratio of times that take in the opening of both loaders."""
    if not target.loader or target.regime not in regimes:
        return "-"
    ratio = regimes[target.regime][1]["ratios"].get(target.loader)
    return "-" if ratio is None else f"{ratio['with_setup']:.2f}"


def _value(target: Target, regimes: Regimes) -> float | None:
    if target.regime not in regimes:
        return None
    _, regime = regimes[target.regime]
    ours = regime["loaders"].get("gids", {"failed": ""})
    if "failed" in ours:
        return None
    if target.loader:
        ratio = regime["ratios"].get(target.loader)
        return None if ratio is None else float(ratio["end_to_end"])
    if target.field == "busy_share":
        return float(ours["busy_share"])
    if target.field == "model_error":
        return abs(float(regime["model"]["error"]))
    return float(regime["bound_ratio"])


def _verdict(target: Target, value: float, regime: Mapping[str, Any]) -> str:
    """With what it rests on, where that is less than was asked for: fewer runs, or not all of their steps."""
    told, wanted = "met" if _is_met(target, value) else "MISSED", regime["planned"]["repetitions"]
    held = regime["loaders"][target.loader or "gids"]
    runs = held["repetitions"]
    if target.loader:
        runs = regime["ratios"][target.loader]["end_to_end_runs"]
    if len(runs) < wanted:
        told += f", in {len(runs)} of {wanted} runs"
    if held["steps"] < held["asked_steps"]:
        told += f", over {held['steps']} of {held['asked_steps']} steps"
    return told


def _is_met(target: Target, value: float) -> bool:
    return value <= target.limit if target.at_most else value >= target.limit


def missed_lines(regimes: Regimes) -> Iterator[str]:
    """Of every regime with a missed target, what limits `gids` there and what would remove it."""
    for name, (_, regime) in regimes.items():
        values = [(target, _value(target, regimes)) for target in TARGETS if target.regime == name]
        missed = [target for target, value in values if value is not None and not _is_met(target, value)]
        if not missed:
            continue
        ours, bound = regime["loaders"]["gids"], regime["bound"]
        steps = ours["steps"]
        parts = ", ".join(
            f"{1000 * ours[key] / steps:.1f} {word}"
            for key, word in (
                *(("feature_wait_s", "waiting for rows"), ("sample_s", "sampling")),
                *(("copy_s", "copying"), ("compute_s", "computing")),
            )
        )
        yield (
            f"{regime['title']}, missed: {'; '.join(_with_need(target, regime) for target in missed)}. "
            f"A step of `gids` takes {1000 * ours['end_to_end_s'] / steps:.1f} ms ({parts}). "
            f"{_limit(bound)} {_remedy(bound, ours)}"
        )


def _with_need(target: Target, regime: Mapping[str, Any]) -> str:
    """A target, and how long a step would take that reached it."""
    if not target.loader:
        return target.what
    ours, ratio = regime["loaders"]["gids"], regime["ratios"][target.loader]["end_to_end"]
    needed_s = ours["end_to_end_s"] / ours["steps"] * ratio / target.limit
    computes = needed_s < regime["bound"]["compute_s"]
    why = "; computing alone takes longer, so here no loader can" if computes else ""
    return f"{target.what} (a step would have to take {1000 * needed_s:.1f} ms{why})"


def _limit(bound: Mapping[str, Any]) -> str:
    """The limiting resource; of a disk also what reading everything in order would take."""
    limited_by = bound["limited_by"]
    if limited_by != "disk":
        return f"The limiting resource is {_WORDS[limited_by]}: {1000 * bound['step_s']:.1f} ms alone."
    sweep_s = bound.get("sweep_s", 0.0)
    sweep = f", and all features in one sequential sweep {1000 * sweep_s:.1f} ms" if sweep_s else ""
    return (
        f"The limiting resource is the disk: page by page, at its random rate, what Belady's optimum reads "
        f"would take {1000 * bound['disk_s']:.1f} ms a step{sweep}."
    )


def _remedy(bound: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    step_s = ours["end_to_end_s"] / ours["steps"]
    if step_s > 1.5 * bound["step_s"]:
        return "The loader is far from that: it, and not the machine, is what has to become faster."
    return {
        "disk": "A faster disk, or more memory, would shorten it.",
        "compute": "A smaller model or a faster GPU would shorten it, with any loader.",
        "copy": "A wider bus to the GPU would shorten it.",
        "deliver": "Mini-batches that are sampled on the GPU would shorten it.",
    }[bound["limited_by"]]
