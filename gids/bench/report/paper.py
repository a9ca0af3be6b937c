"""Tables and figures of the published comparison made again: one regime at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from gids.bench.report.tables import Result, ceilings_table, machine_table, per_step
from gids.figures.svg import Bar, legend, stacked_bars
from gids.figures.table import Table

PARTS = ("sample_s", "feature_wait_s", "copy_s", "compute_s")
PART_NAMES = ("sampling", "waiting for rows", "copying", "compute")
#: Names of runs of `gids` that lack a technique begin with this.
_VARIANT = "gids-"
_WORDS = {
    "compute": "computing alone",
    "deliver": "delivering mini-batches alone",
    "disk": "the disk",
    "copy": "copying to the GPU",
    "sampling": "sampling",
}


def regimes_of(result: Result) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Regimes in a result file, with a short name: the file's own, and the steady state."""
    if "loaders" in result:
        yield ("cold" if result["regime"] == "small" else "full", result)
    if result.get("steady"):
        yield "steady", result["steady"]


def compared(regime: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Loaders of a regime, without the variants of `gids`."""
    return {name: each for name, each in regime["loaders"].items() if not name.startswith(_VARIANT)}


def figures(result: Result) -> dict[str, str]:
    """SVG images by short name: where the time of a step goes, by loader."""
    return {name: time_figure(regime, standalone=True) for name, regime in regimes_of(result)}


def time_figure(regime: Mapping[str, Any], *, standalone: bool = False) -> str:
    """Where the time of a step goes; the bars of slow loaders end where they would dwarf the others."""
    done = {name: each for name, each in compared(regime).items() if "failed" not in each}
    if not done:
        return ""
    seconds = {name: each["end_to_end_s"] / each["steps"] for name, each in done.items()}
    longest = 12 * min(seconds.values())
    bars = []
    for name, each in done.items():
        shrink = min(1.0, longest / seconds[name])
        parts = [shrink * each[key] / each["steps"] for key in PARTS]
        value = (
            f"{per_step(each, 'end_to_end_s')} ms"
            if shrink == 1.0
            else f"{1000 * seconds[name]:,.0f} ms, cut"
        )
        bars.append(Bar(name, parts, value))
    figure = stacked_bars(bars, f"Time of a step: {', '.join(PART_NAMES)}")
    if not standalone:
        return legend(PART_NAMES) + figure
    head = 'xmlns="http://www.w3.org/2000/svg" style="font: 12px sans-serif" '
    return figure.replace("<svg ", f"<svg {head}", 1)


def paper_html(result: Result) -> list[str]:
    """Sections of a page."""
    parts = []
    for _, regime in regimes_of(result):
        parts.append(f"<h2>{escape(regime['title'])}</h2>")
        parts.append(f"<p>{escape(said_of(regime))}</p>")
        parts += [loaders_table(regime).html(), "<h3>Where the time of a step goes</h3>", time_figure(regime)]
        parts.append(parts_table(regime).html())
        if any(name.startswith(_VARIANT) for name in regime["loaders"]):
            parts += ["<h3>Each technique off</h3>", techniques_table(regime).html()]
        parts += ["<h3>What bounds a step</h3>", bounds_table(regime).html()]
    if result.get("projection"):
        parts += ["<h2>IGBH-full itself, projected</h2>", projection_table(result).html()]
    parts += ["<h3>The disk</h3>", ceilings_table(_with_ceilings(result)).html()]
    return [*parts, "<h3>The machine</h3>", f'<div class="facts">{machine_table(result).html()}</div>']


def paper_markdown(result: Result, level: str = "##") -> list[str]:
    """The same as Markdown."""
    parts = []
    for _, regime in regimes_of(result):
        parts += [f"{level} {regime['title']}", said_of(regime), loaders_table(regime).markdown()]
        parts += ["Where the time of a step goes:", parts_table(regime).markdown()]
        if any(name.startswith(_VARIANT) for name in regime["loaders"]):
            parts += ["Each technique off:", techniques_table(regime).markdown()]
        parts += ["What bounds a step:", bounds_table(regime).markdown()]
    if result.get("projection"):
        parts += [f"{level} IGBH-full itself, projected", projection_table(result).markdown()]
    return parts


def _with_ceilings(result: Result) -> Mapping[str, Any]:
    _, regime = next(regimes_of(result))
    return {"ceilings": regime["ceilings"], "loaders": {}}


def said_of(regime: Mapping[str, Any]) -> str:
    """How the regime is made, and whether all that is planned has run."""
    shares, planned = regime["shares"], regime["planned"]
    said = [
        f"Cache: {100 * shares['cache']:.3g} % of the features; "
        f"constant buffer: {100 * shares['cpu_buffer']:.3g} %.",
        "Nothing is in the page cache at first."
        if regime["cold"]
        else "Everything was delivered once before.",
    ]
    if regime["published_hits"]:
        hits, published = regime["facts"]["cache_alone_hits"], regime["published_hits"]
        said.append(
            f"Without a constant buffer that cache answers at best {100 * hits:.1f} % of the requests "
            f"(Belady's optimum); published were about {100 * published:.0f} %."
        )
    if regime["limit_bytes"]:
        said.append(
            f"Host memory, page cache included, is limited to {regime['limit_bytes'] / 1e9:.2f} GB for each "
            f"loader: {regime['own_bytes'] / 1e9:.2f} GB that a process needs for itself, and the two shares."
        )
        limits = [each["memory"] for each in regime["loaders"].values() if "memory" in each]
        means = sorted({_means(each) for each in limits} - {""})
        said.append(f"Means of the limit: {', '.join(means) or 'none, see the notes'}.")
    missing = planned["runs"] - planned["made"]
    if missing:
        said.append(f"Not complete: {missing} of {planned['runs']} runs are still to be made.")
    return " ".join(said)


def _means(memory: Mapping[str, Any]) -> str:
    return str(memory.get("means") or ("" if not memory["limit_bytes"] else "NOT enforced"))


def loaders_table(regime: Mapping[str, Any]) -> Table:
    """Time of a step, and how many times that of `gids`: the median of the repetitions and their spread."""
    heads = ("loader", "steps", "runs", "step, ms", "gids is faster", "spread", "with opening", "hit rate")
    rows = []
    for name, each in compared(regime).items():
        if "failed" in each:
            rows.append((name, "failed", *[""] * 6))
            continue
        ratio = regime["ratios"].get(name)
        made = [run for run in each["repetitions"] if "failed" not in run]
        rows.append(
            (
                name,
                f"{each['steps']}",
                f"{len(made)}",
                per_step(each, "end_to_end_s"),
                f"{ratio['end_to_end']:.2f}x" if ratio else "",
                f"{ratio['end_to_end_low']:.2f} to {ratio['end_to_end_high']:.2f}" if ratio else "",
                f"{ratio['with_setup']:.2f}x" if ratio else "",
                _percent(each["hit_rate"]),
            )
        )
    return Table(heads, tuple(rows), _note(regime))


def _note(regime: Mapping[str, Any]) -> str:
    notes = []
    for name, each in regime["loaders"].items():
        if "failed" in each:
            notes.append(f"{name} failed: {each['failed']}.")
            continue
        if each["steps"] < each["asked_steps"]:
            notes.append(
                f"{name} was stopped after {each['steps']} of {each['asked_steps']} steps; "
                "its times are per step of those, and so are those of gids that it is compared with."
            )
        ahead = each.get("read_ahead", {})
        if ahead.get("note"):
            notes.append(f"{name}: read-ahead of {ahead['asked_kib']} KiB was not possible: {ahead['note']}.")
        elif name == "dgl-mmap":
            notes.append(f"dgl-mmap ran at the machine's own read-ahead of {ahead.get('kib')} KiB.")
    for what, same in regime["equal"].items():
        if same is not None:
            notes.append(f"{what.replace('_', ' ')}: {'equal' if same else 'NOT equal'} for all loaders.")
    return " ".join(note[0].upper() + note[1:] for note in notes)


def parts_table(regime: Mapping[str, Any]) -> Table:
    """What a step waited for."""
    heads = ("loader", *(f"{name}, ms" for name in PART_NAMES), "device busy", "MB read")
    rows = [
        (
            name,
            *(per_step(each, key) for key in PARTS),
            _percent(each["busy_share"]),
            f"{each['bytes_read'] / each['steps'] / 1e6:,.1f}",
        )
        for name, each in compared(regime).items()
        if "failed" not in each
    ]
    return Table(heads, tuple(rows), "MB read a step; of a memory map what the kernel read, ahead or not.")


def techniques_table(regime: Mapping[str, Any]) -> Table:
    """`gids` whole and without one technique at a time."""
    heads = ("gids", "step, ms", "of the whole", "hit rate", "reads a step")
    ours = regime["loaders"].get("gids", {"failed": ""})
    whole_s = None if "failed" in ours else ours["end_to_end_s"] / ours["steps"]
    rows = []
    for name, each in regime["loaders"].items():
        if name != "gids" and not name.startswith(_VARIANT):
            continue
        label = "everything on" if name == "gids" else name.removeprefix(_VARIANT).replace("-", " ")
        if "failed" in each:
            rows.append((label, "failed", "", "", ""))
            continue
        step_s = each["end_to_end_s"] / each["steps"]
        rows.append(
            (
                label,
                per_step(each, "end_to_end_s"),
                f"{step_s / whole_s:.2f}x" if whole_s else "",
                _percent(each["hit_rate"]),
                f"{each['reads'] / each['steps']:,.0f}",
            )
        )
    note = "Without any technique the hit rate says how short memory is."
    return Table(heads, tuple(rows), note)


def bounds_table(regime: Mapping[str, Any]) -> Table:
    """What a step takes at least, what it took, and what the cost model expected."""
    bound, model = regime["bound"], regime["model"]
    rows = [
        ("computing alone, ms", f"{1000 * bound['compute_s']:.1f}"),
        ("delivering mini-batches alone, ms", f"{1000 * bound['deliver_s']:.1f}"),
        ("reads of Belady's optimum at the disk's ceiling, ms", f"{1000 * bound['disk_s']:.1f}"),
        ("all features in one sweep instead, ms", f"{1000 * bound['sweep_s']:.1f}"),
        ("copying to the GPU alone, ms", f"{1000 * bound['copy_s']:.1f}"),
        ("the bound, ms", f"{1000 * bound['step_s']:.1f}"),
        ("which is", _WORDS[bound["limited_by"]]),
    ]
    if regime["bound_ratio"] is not None:
        rows.append(("gids, as a multiple of the bound", f"{regime['bound_ratio']:.2f}"))
    if model is not None:
        rows += [
            (f"cost model (by {model['storage']}), ms", f"{1000 * model['predicted_s']:.1f}"),
            ("its error", f"{100 * model['error']:+.0f} %"),
        ]
    return Table(("", ""), tuple(rows))


def projection_table(result: Result) -> Table:
    """IGBH-full on a drive that was not there."""
    found = result["projection"]
    cases = found["cases"]
    heads = ("a step", "as here", "neighbours never meet")
    lines: tuple[tuple[str, str, float], ...] = (
        ("rows", "rows", 1),
        ("reads", "reads", 1),
        ("MB read", "read_bytes", 1e-6),
        ("disk, ms", "disk_s", 1e3),
        ("copying, ms", "copy_s", 1e3),
        ("compute, ms", "compute_s", 1e3),
        ("sampling, ms", "sampling_s", 1e3),
        ("at least, ms", "step_s", 1e3),
    )
    rows = [(label, *(f"{scale * case[key]:,.1f}" for case in cases.values())) for label, key, scale in lines]
    rows.append(("limited by", *(_WORDS[case["limited_by"]] for case in cases.values())))
    note = (
        f"Projected, not run: {found['nodes']:,} nodes, {found['feature_bytes'] / 1e12:.2f} TB of "
        f"features on {found['drive']['name']}. Memory: {found['gpu_bytes'] / 1e9:.1f} GB on the GPU, "
        f"{found['constant_buffer_bytes'] / 1e9:.0f} GB of constant buffer, which answers "
        f"{100 * found['constant_share_of_requests']:.0f} % of the requests, and "
        f"{found['graph_bytes'] / 1e9:.0f} GB of graph. Shares of hits are those found in its regime."
    )
    return Table(heads, tuple(rows), note)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
