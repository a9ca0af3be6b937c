"""`docs/benchmarks.md`, made of committed result files: what ran on which machine, and what did not run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gids.bench.report.accuracy import accuracy_table
from gids.bench.report.paper import PART_NAMES, figures, paper_markdown, regimes_of
from gids.bench.report.tables import Result, loaders_table, machine_table
from gids.bench.report.targets import Regimes, missed_lines, targets_table
from gids.figures.table import Table

#: A memory map whose step takes less than this many times that of `gids` is as good.
AS_GOOD = 1.25
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
        targets_table(regimes).markdown(),
        *missed_lines(regimes),
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
        "Device busy: from the first to the last work of a step on its stream, gaps between kernels as well.",
    ]
    for result in (small, full):
        if result:
            machine = result["machine"]
            lines.append(
                f"`{_file_of(result)}.json`: {_origin(result)} data; {machine['processor']}, "
                f"{machine['cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB; "
                f"trained on {result['device']}; "
                f"{result['data']['feature_bytes'] / 1e9:.2f} GB of features.{_of_several_calls(result)}"
            )
    return "\n".join(f"- {line}" for line in lines)


def _of_several_calls(result: Result) -> str:
    """Machines of one kind differ, their disks most of all."""
    calls = result["sessions"]
    if len(calls) < 2:
        return ""
    reads = sorted((call["ceilings"]["random_4k_iops"] or 0) / 1000 for call in calls)
    sweeps = sorted(call["ceilings"]["sequential_mb_per_s"] for call in calls)
    return (
        f" Runs were made in {len(calls)} calls, on machines of one kind whose disks made "
        f"{reads[0]:.0f} to {reads[-1]:.0f} thousand random reads a second and {sweeps[0]:,.0f} to "
        f"{sweeps[-1]:,.0f} MB/s in order; bounds are those of the means."
    )


def _file_of(result: Result) -> str:
    return SMALL if result["regime"] == "small" else FULL


def _origin(result: Result) -> str:
    scale = result["config"]["data"]["synth_scale"]
    return f"synthetic (`{scale}`)" if scale else "official"


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


def _as_good(folder: Path, regimes: Regimes) -> Iterator[str]:
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
