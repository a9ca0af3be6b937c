"""`docs/benchmarks.md`, made of committed result files: what ran on which machine, and what did not run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gids.bench.report.accuracy import accuracy_table
from gids.bench.report.paper import PART_NAMES, figures, paper_markdown, regimes_of
from gids.bench.report.tables import Result, loaders_table, machine_table
from gids.figures.table import Table

#: A memory map whose step takes less than this many times that of `gids` is as good.
AS_GOOD = 1.25
#: Share by which the cost model may be wrong.
MODEL_ERROR = 0.15
SMALL, FULL = "igbh_small", "igbh_full_regime"
#: Earlier results of the smallest data set, on machines without a GPU.
TINY = ("igbh_tiny_cold", "igbh_tiny_read_ahead", "igbh_tiny_warm")
CURVES = "accuracy_igbh_curves"
_NOT_RUN = (
    "**Not run yet.** `experiments/igbh/run.sh` makes it on a machine with a GPU; "
    "there are no numbers until it has run."
)
_REPEAT = """\
    experiments/igbh/run.sh OUT             # needs a GPU and 26 GB of disk; again until it says "0 left"
    experiments/igbh/run.sh OUT accuracy    # the accuracy curves
    cp OUT/igbh_*.json OUT/igbh_*.svg OUT/accuracy_igbh_curves.json experiments/results/
    gids report --benchmarks docs/benchmarks.md

`experiments/igbh/run.sh` says which environment variables choose regimes, loaders, repetitions and
time limits, and how an interrupted comparison goes on. `DEVICE=cpu` runs it without a GPU, and
`gids bench paper --quick` shows in less than a minute that it works."""
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


def benchmarks_page(folder: Path) -> str:
    """The page, as Markdown.

    Parameters
    ----------
    folder : Path
        With the result files; those that are not there are said to be missing.
    """
    small, full = _read(folder, SMALL), _read(folder, FULL)
    regimes = {
        name: (result, regime) for result in (small, full) if result for name, regime in regimes_of(result)
    }
    parts = [
        "# Benchmarks",
        "This page is made of the files in `experiments/results/` by "
        "`gids report --benchmarks docs/benchmarks.md`; a test holds it against them. "
        "Fields are explained in [results.md](results.md).",
        "## To repeat it",
        _REPEAT,
        "## What is what",
        _what_is_what(small, full),
        "## Targets",
        _targets(regimes).markdown(),
        *_missed(regimes),
        *_paper_section("IGBH-small", SMALL, small),
        *_paper_section("IGBH-full's regime", FULL, full),
        "## Where memory maps are as good",
        "\n".join(f"- {line}" for line in _as_good(folder, regimes)),
        *_accuracy(folder),
        *_tiny(folder),
    ]
    return "\n\n".join(parts) + "\n"


def _read(folder: Path, name: str) -> Result | None:
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _what_is_what(small: Result | None, full: Result | None) -> str:
    lines = [
        "Data: synthetic, unless it is said otherwise. Node counts, edge counts, feature sizes and file "
        "layout are those published of IGBH; contents are made by `gids synth`, with degrees that follow a "
        "power law and classes a graph model can learn. So hit rates and accuracies are those of these data.",
        "IGBH-full's regime: a smaller data set, with cache and constant buffer the same shares of the "
        "features as the published 8 GB and 20 % are of IGBH-full's 2.24 TB, and host memory limited "
        "accordingly.",
        "IGBH-full itself: projected by the cost model, never run here.",
        "Mini-batches are sampled once and given to every loader, so sampling is in no ratio.",
    ]
    for result in (small, full):
        if result:
            machine = result["machine"]
            lines.append(
                f"`{_file_of(result)}.json`: {_origin(result)} data; {machine['processor']}, "
                f"{machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB; "
                f"trained on {result['device']}; "
                f"{result['data']['feature_bytes'] / 1e9:.2f} GB of features."
            )
    return "\n".join(f"- {line}" for line in lines)


def _file_of(result: Result) -> str:
    return SMALL if result["regime"] == "small" else FULL


def _origin(result: Result) -> str:
    scale = result["config"]["data"]["synth_scale"]
    return f"synthetic (`{scale}`)" if scale else "official"


def _targets(regimes: Mapping[str, tuple[Result, Mapping[str, Any]]]) -> Table:
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


def _with_opening(target: Target, regimes: Mapping[str, tuple[Result, Mapping[str, Any]]]) -> str:
    """A ratio of times that take in the opening of both loaders."""
    if not target.loader or target.regime not in regimes:
        return "-"
    ratio = regimes[target.regime][1]["ratios"].get(target.loader)
    return "-" if ratio is None else f"{ratio['with_setup']:.2f}"


def _value(target: Target, regimes: Mapping[str, tuple[Result, Mapping[str, Any]]]) -> float | None:
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


def _missed(regimes: Mapping[str, tuple[Result, Mapping[str, Any]]]) -> Iterator[str]:
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
            f"A step of `gids` takes {1000 * ours['end_to_end_s'] / steps:.1f} ms ({parts}); at least "
            f"{1000 * bound['step_s']:.1f} ms by {_WORDS[bound['limited_by']]}, the limiting resource"
            f"{_sweep(bound)}. {_remedy(bound, ours)}"
        )


def _with_need(target: Target, regime: Mapping[str, Any]) -> str:
    """A target, and how long a step would take that reached it."""
    if not target.loader:
        return target.what
    theirs = regime["loaders"][target.loader]
    needed_ms = 1000 * theirs["end_to_end_s"] / theirs["steps"] / target.limit
    return f"{target.what} (a step would have to take {needed_ms:.1f} ms)"


def _sweep(bound: Mapping[str, Any]) -> str:
    """Where reading everything in order takes less time than what is needed, page by page."""
    sweep_s = bound.get("sweep_s", 0.0)
    if bound["limited_by"] != "disk" or not 0 < sweep_s < bound["step_s"]:
        return ""
    return f" (page by page; {1000 * sweep_s:.1f} ms if all features were read in one sequential sweep)"


def _remedy(bound: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    step_s = ours["end_to_end_s"] / ours["steps"]
    if step_s > 1.5 * bound["step_s"]:
        return "The loader is far from that bound: it, and not the machine, is what has to become faster."
    return {
        "disk": "A faster disk, or more memory, would remove it; no loader can read the same pages faster.",
        "compute": "A smaller model or a faster GPU would remove it; loading is hidden behind computing.",
        "copy": "A wider bus to the GPU would remove it.",
        "deliver": "Mini-batches that are sampled on the GPU would remove it.",
    }[bound["limited_by"]]


def _paper_section(title: str, name: str, result: Result | None) -> list[str]:
    if result is None:
        return [f"## {title}", _NOT_RUN]
    images = [
        f"![Time of a step, {each}](../experiments/results/{name}_{each}.svg)" for each in figures(result)
    ]
    return [
        f"## {title}",
        f"[Raw figures](../experiments/results/{name}.json).",
        "Parts of a bar, from the left: " + ", ".join(PART_NAMES) + ".",
        *images,
        *paper_markdown(result, "###"),
        machine_table(result).markdown(),
    ]


def _as_good(folder: Path, regimes: Mapping[str, tuple[Result, Mapping[str, Any]]]) -> Iterator[str]:
    """What the ratios say: of the comparison, else of the earlier results."""
    found = False
    for _, regime in regimes.values():
        for name, ratio in regime["ratios"].items():
            if "mmap" in name and ratio["end_to_end"] < AS_GOOD:
                found = True
                yield f"{regime['title']}: `{name}`, {ratio['end_to_end']:.2f} times the step of `gids`."
    for name in TINY:
        result = _read(folder, name)
        for loader, ratio in (result["ratios"] if result else {}).items():
            if "mmap" in loader and ratio["end_to_end"] < AS_GOOD:
                found = True
                yield f"`{name}.json`: `{loader}`, {ratio['end_to_end']:.2f} times the step of `gids`."
    if not found:
        yield f"In no regime that was run is a memory map within {AS_GOOD:g} times the step of `gids`."
    yield (
        "Where all features fit in memory and stay there, and training takes longer than gathering rows, "
        "any loader will do: the step is that of the model."
    )


def _accuracy(folder: Path) -> Iterator[str]:
    """Curves on synthetic IGBH through several loaders, and what was reached on every set."""
    yield "## Accuracy"
    curves = _read(folder, CURVES)
    if curves is None:
        yield f"Synthetic IGBH, validation accuracy by epoch: {_NOT_RUN}"
    else:
        data = curves["config"]["data"]
        yield (
            f"Synthetic IGBH (scale `{data['synth_scale']}`), {curves['config']['model']['name']}, "
            f"validation accuracy by epoch, in percent. [Raw figures](../experiments/results/{CURVES}.json)."
        )
        yield curves_table(curves).markdown()
    yield (
        "Real and synthetic data sets; sources of what others reached are in "
        "[results.md](results.md#what-was-reached)."
    )
    rows = []
    for file in sorted(folder.glob("accuracy_*.json")):
        result = _read(folder, file.stem)
        assert result is not None
        for cells in accuracy_table(result).rows:
            rows.append((f"{result['config']['name']}: {cells[0]}", *cells[1:]))
    heads = ("data: model, loader", "seeds", "validation accuracy", "test accuracy", "test macro-F1")
    yield Table(heads, tuple(rows)).markdown()


def curves_table(result: Result) -> Table:
    """Validation accuracy of every seed and loader after each epoch."""
    runs = [
        (f"{name}, seed {run['seed']}", [epoch["validation_accuracy"] for epoch in run["epochs"]])
        for name, each in result["loaders"].items()
        for run in each["runs"]
    ]
    longest = max(len(values) for _, values in runs)
    rows = [
        (label, *(f"{100 * value:.2f}" for value in values), *[""] * (longest - len(values)))
        for label, values in runs
    ]
    equal = {None: "compared for one loader only", True: "equal, bit for bit", False: "NOT equal"}
    note = (
        f"Losses of all loaders: {equal[result['equal_losses']]}. Machine: {result['machine']['processor']}."
    )
    return Table(("loader", *(f"epoch {number + 1}" for number in range(longest))), tuple(rows), note)


def _tiny(folder: Path) -> Iterator[str]:
    yield "## IGBH-tiny, without a GPU"
    for name in TINY:
        result = _read(folder, name)
        if result is not None:
            machine = result["machine"]
            yield (
                f"[`{name}.json`](../experiments/results/{name}.json): {machine['processor']}, "
                f"{machine['cores']} cores, commit {result['commit']}."
            )
            yield loaders_table(result).markdown()
