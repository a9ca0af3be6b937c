"""A report of result files: one HTML page that needs nothing else, or Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from gids.bench.report.accuracy import accuracy_figure, accuracy_table
from gids.bench.report.paper import paper_html, paper_markdown
from gids.bench.report.tables import (
    Result,
    cache_table,
    case_text,
    ceilings_table,
    loaders_table,
    machine_table,
    per_step,
    reading_table,
    rows_table,
    sample_table,
    training_table,
)
from gids.figures.svg import Bar, Line, legend, lines, log_histogram, number_text, stacked_bars
from gids.figures.table import Table

TIMES = ("sample_s", "feature_wait_s", "copy_s", "compute_s")
TIME_NAMES = ("sampling", "waiting for features", "copying", "compute")
PLACES = ("constant", "cache", "joined", "storage")
PLACE_NAMES = ("constant buffer", "page cache of gids", "read under way", "storage")
#: Results with a section of their own.
KINDS = ("e2e", "paper", "train", "sample", "accuracy")
#: Loaders this many times slower than the fastest would leave the other bars too short to see.
MAX_SPREAD = 15

STYLE = """
:root { color-scheme: light dark; --text: #1a1a1a; --faint: #8884; --back: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e6e6; --back: #16181b; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 860px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--faint); text-align: right;
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
.facts td { text-align: left; overflow-wrap: anywhere; }
.note { font-size: 13px; opacity: .8; } .legend { margin: .2rem 0; font-size: 13px; }
.key { margin-right: 1.2rem; display: inline-block; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: currentColor; }
.grid { stroke: var(--faint); } .axis { stroke: currentColor; }
"""


def html_page(results: Sequence[Result]) -> str:
    """The page."""
    body = [section for result in results if result["name"] == "e2e" for section in _e2e_html(result)]
    body += [section for result in results if result["name"] == "paper" for section in paper_html(result)]
    training = [result for result in results if result["name"] == "train"]
    if training:
        body += _training_html(training)
    body += [section for result in results if result["name"] == "sample" for section in _sample_html(result)]
    for result in results:
        if result["name"] == "accuracy":
            body += [_heading(result), accuracy_table(result).html(), accuracy_figure(result)]
            body += ["<h3>The machine</h3>", f'<div class="facts">{machine_table(result).html()}</div>']
    for result in results:
        if result["name"] not in KINDS:
            body += [_heading(result), *[table.html() for table in _plain_tables(result)]]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>gids report</title><style>{STYLE}</style></head><body>"
        f"<h1>gids report</h1>{''.join(body)}</body></html>\n"
    )


def markdown_page(results: Sequence[Result]) -> str:
    """The tables of the page as Markdown."""
    parts = ["# gids report"]
    for result in results:
        if result["name"] == "e2e":
            parts += [_title(result, "## "), *[each.markdown() for each in _e2e_tables(result)]]
        if result["name"] == "paper":
            parts += [*paper_markdown(result), machine_table(result).markdown()]
    training = [result for result in results if result["name"] == "train"]
    if training:
        parts += ["## Training", training_table(training).markdown()]
    for result in results:
        if result["name"] not in ("e2e", "paper", "train"):
            parts += [_title(result, "## "), *[each.markdown() for each in _other_tables(result)]]
    return "\n\n".join(parts) + "\n"


def _e2e_tables(result: Result) -> list[Table]:
    cache = cache_table(result)
    return [
        *(loaders_table(result), rows_table(result), reading_table(result)),
        *([] if cache is None else [cache]),
        *(ceilings_table(result), machine_table(result)),
    ]


def _e2e_html(result: Result) -> list[str]:
    storage = result["loaders"].get("gids", {}).get("storage")
    sections = [_heading(result), loaders_table(result).html(), *_time_figures(result)]
    sections += ["<h3>Where rows came from</h3>", _rows_figure(result), rows_table(result).html()]
    sections += ["<h3>What was read</h3>", reading_table(result).html()]
    cache = cache_table(result)
    if cache is not None:
        sections += ["<h3>The page cache beside Belady's optimum</h3>", cache.html()]
    if storage:
        depth, latency = storage["in_flight"], storage["latency_histogram"]
        sections += [
            "<h3>Reads in flight over time (gids)</h3>",
            lines([Line("gids", depth["t_s"], depth["reads"])], "seconds", "reads", "Reads in flight"),
            "<h3>Latency of reads (gids)</h3>",
            log_histogram(latency["upper_us"], latency["reads"], "microseconds", "reads", "Latency of reads"),
        ]
    sections += ["<h3>The disk</h3>", ceilings_table(result).html()]
    return [*sections, "<h3>The machine</h3>", f'<div class="facts">{machine_table(result).html()}</div>']


def _time_figures(result: Result) -> list[str]:
    """Times of a step; a second figure without slow loaders, where they dwarf the others."""
    done = {name: each for name, each in result["loaders"].items() if "failed" not in each}
    if not done:
        return []
    figures = ["<h3>Time of a step</h3>", legend(TIME_NAMES), _time_figure(done)]
    seconds = {name: each["end_to_end_s"] / each["steps"] for name, each in done.items()}
    near = {name: done[name] for name in done if seconds[name] <= MAX_SPREAD * min(seconds.values())}
    if 1 < len(near) < len(done):
        figures += ["<h3>The same without the slowest</h3>", legend(TIME_NAMES), _time_figure(near)]
    return figures


def _time_figure(loaders: Mapping[str, Result]) -> str:
    bars = [
        Bar(
            name,
            [each.get(key, 0.0) / each["steps"] for key in TIMES],  # older files know of no copies
            f"{per_step(each, 'end_to_end_s')} ms",
        )
        for name, each in loaders.items()
    ]
    return stacked_bars(bars, "Time of a step by loader")


def _rows_figure(result: Result) -> str:
    bars = []
    for name, each in result["loaders"].items():
        if "failed" in each or not each["rows_from"]:
            continue
        bars.append(_rows_bar(name, [each["rows_from"][place] for place in PLACES]))
        if name == "gids":
            for node_type, counts in each["node_types"].items():
                bars.append(_rows_bar(f"  {node_type}", [counts[f"rows_{place}"] for place in PLACES]))
    return legend(PLACE_NAMES) + stacked_bars(bars, "Where rows came from")


def _rows_bar(label: str, counts: Sequence[int]) -> Bar:
    total = sum(counts)
    return Bar(label, [count / max(1, total) for count in counts], f"{total:,} rows")


def _training_html(results: Sequence[Result]) -> list[str]:
    names = [f"{each['config']['name']}, {each['loader']}" for each in results]
    accuracy, losses = [], []
    for name, each in zip(names, results, strict=True):
        epochs = [epoch["epoch"] + 1.0 for epoch in each["epochs"]]
        accuracy.append(Line(name, epochs, [100 * epoch["validation_accuracy"] for epoch in each["epochs"]]))
        step = each["losses"]["every"]
        values = each["losses"]["values"]
        losses.append(Line(name, [float(step * number) for number in range(len(values))], values))
    return [
        "<h2>Training</h2>",
        training_table(results).html(),
        "<h3>Validation accuracy</h3>",
        legend(names),
        lines(accuracy, "epoch", "accuracy, %", "Validation accuracy", y_from_zero=False, whole_x=True),
        "<h3>Loss of each step</h3>",
        legend(names),
        lines(losses, "step", "loss", "Loss", whole_x=True),
    ]


def _sample_tables(result: Result) -> list[Table]:
    return [sample_table(result), machine_table(result)]


def _sample_html(result: Result) -> list[str]:
    bars = [
        Bar(
            f"{case_text(each)}: {name}",
            [sampler["edges_per_s"]],
            f"{number_text(sampler['edges_per_s'])} edges/s",
        )
        for each in result["fanouts"]
        for name, sampler in each["samplers"].items()
    ]
    rate, machine = _sample_tables(result)
    return [
        "<h2>Sampling</h2>",
        stacked_bars(bars, "Sampled edges a second"),
        rate.html(),
        "<h3>The machine</h3>",
        f'<div class="facts">{machine.html()}</div>',
    ]


def _other_tables(result: Result) -> list[Table]:
    if result["name"] == "accuracy":
        return [accuracy_table(result), machine_table(result)]
    return _sample_tables(result) if result["name"] == "sample" else _plain_tables(result)


def _plain_tables(result: Result) -> list[Table]:
    """Numbers of a result this page has no figures for, as they are."""
    rows = tuple(_flat(result, ""))
    return [Table(("", ""), rows)]


def _flat(value: object, name: str) -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [
            row for key, each in value.items() for row in _flat(each, f"{name}.{key}" if name else str(key))
        ]
    return [(name, f"{value:,.4g}" if isinstance(value, float) else str(value))]


def _title(result: Result, mark: str = "") -> str:
    config = result.get("config", {})
    return f"{mark}{result['name']}: {config.get('name', '')}".rstrip(": ")


def _heading(result: Result) -> str:
    return f"<h2>{escape(_title(result))}</h2>"
