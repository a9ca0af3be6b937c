"""The cache-metrics report for people: Markdown, HTML, and an explanation like a database's EXPLAIN."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from gids.fetch.counts import FetchCounts
from gids.figures.svg import Line, legend, lines
from gids.figures.table import Table
from gids.loader.cache_report import CacheReport

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def to_markdown(report: CacheReport) -> str:
    """The tables, with their headings."""
    return "\n".join(f"## {title}\n\n{table.markdown()}\n" for title, table in _tables(report).items())


def to_html(report: CacheReport) -> str:
    """The same as a page of its own, which loads nothing, with curves of the reads under way."""
    parts = [f"<h2>{html.escape(title)}</h2>{table.html()}" for title, table in _tables(report).items()]
    parts.append(depth_plot(report))
    title = html.escape(f"Cache metrics {report.dataset}".strip())
    style = (
        "td,th{padding:2px 12px;text-align:right}td:first-child,th:first-child{text-align:left}"
        ".key{margin-right:1em}.key i{display:inline-block;width:1em;height:.7em;margin-right:.4em}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<style>body{{font-family:sans-serif}}{style}</style><h1>{title}</h1>{''.join(parts)}"
        f"<h2>Where rows came from</h2><pre>{html.escape(explain(report))}</pre></html>\n"
    )


def depth_plot(report: CacheReport) -> str:
    """HTML: reads submitted together by each of the last groups, against those that the device needs."""
    depth = report.depth
    if depth is None or not depth.reads:
        return ""
    first = depth.groups - len(depth.reads) + 1
    groups = list(range(first, depth.groups + 1))
    curves = [
        Line("reads of a group", groups, depth.reads),
        Line("needed (N)", groups, [depth.needed] * len(groups)),
    ]
    figure = lines(curves, "group", "reads", "Reads under way", whole_x=True)
    return f"<h2>Reads under way</h2>{legend([each.label for each in curves])}{figure}"


def explain(report: CacheReport) -> str:
    """For each node type: how many rows came from where, and by which path."""
    text = [f"Features of {len(report.counts)} node types, {report.batches:,} mini-batches"]
    for name, counts in report.counts.items():
        text.append(f"  {name}: {counts.rows_requested:,} rows, hit rate {counts.hit_rate:.1%}")
        text += [f"    -> {line}" for line in _sources(counts, report.paths.get(name, {}))]
    if report.depth is not None and report.depth.groups:
        depth = report.depth
        text.append(
            f"  {depth.groups:,} groups of mini-batches; {depth.reached_share:.0%} of the last "
            f"{len(depth.reads)} had the {depth.needed:,.0f} reads that the device needs ({depth.source})"
        )
    if report.belady_ratio is not None:
        text.append(f"  pages read: {report.belady_ratio:.3f} times those of Belady's optimum")
    return "\n".join(text)


def _sources(counts: FetchCounts, path: Mapping[str, Any]) -> list[str]:
    if path.get("table") == "memory":
        return [f"memory            {_rows(counts.rows_constant, counts)}"]
    text = []
    if counts.rows_constant or "constant_rows" in path:
        loaded, rows = path.get("constant_rows_loaded", "?"), path.get("constant_rows", "?")
        size = size_text(path.get("constant_bytes", 0))
        text.append(
            f"constant buffer   {_rows(counts.rows_constant, counts)}; {loaded} of {rows} rows in {size}"
        )
    text += [
        f"page cache        {_rows(counts.rows_cache, counts)}; {counts.pages_hit:,} pages",
        f"reads under way   {_rows(counts.rows_joined, counts)}; {counts.pages_joined:,} pages",
        f"storage           {_rows(counts.rows_storage, counts)}; {counts.pages_read:,} pages in "
        f"{counts.reads:,} reads, {size_text(counts.bytes_read)}; {counts.pages_bypassed:,} not cached",
    ]
    if "engine" in path:
        way = "direct" if path.get("direct") else "through the kernel's page cache"
        text.append(
            f"  engine {path['engine']}, {way}, {path.get('reader')} reader, "
            f"{path.get('page_bytes')}-byte pages"
        )
    text += [f"  note: {note}" for note in path.get("notes", [])]
    if "constant_error" in path:
        text.append(f"  constant buffer incomplete: {path['constant_error']}")
    return text


def _tables(report: CacheReport) -> dict[str, Table]:
    rates = (report.dataset or "-", f"{report.hit_rate:.2%}", f"{report.miss_rate:.2%}")
    heads = ("type", "requested", "constant", "cache", "joined", "storage", "hit rate")
    by_type = [*report.counts.items(), ("all", report.total)]
    return {
        "Hit rate": Table(("data set", "hit rate", "miss rate"), (rates,)),
        "Rows by node type and source": Table(heads, tuple(_type_row(*each) for each in by_type)),
        "What each technique did": Table(("technique", "figure", "value"), tuple(_techniques(report))),
    }


def _type_row(name: str, counts: FetchCounts) -> tuple[str, ...]:
    rows = (
        counts.rows_requested,
        counts.rows_constant,
        counts.rows_cache,
        counts.rows_joined,
        counts.rows_storage,
    )
    return (name, *(f"{n:,}" for n in rows), f"{counts.hit_rate:.2%}")


def _techniques(report: CacheReport) -> list[tuple[str, str, str]]:
    counts = report.total
    rows = [
        ("constant buffer", "rows served", f"{_share(counts.rows_constant, counts.rows_requested)}"),
        ("page cache, window", "pages found", f"{_share(counts.pages_hit, counts.pages_requested)}"),
        ("page cache, window", "pages read and not cached", f"{counts.pages_bypassed:,}"),
        ("reads in common", "pages joined", f"{_share(counts.pages_joined, counts.pages_requested)}"),
        ("contiguous reads", "pages per read", _ratio(counts.pages_read, counts.reads)),
        ("contiguous reads", "bytes read per useful byte", f"{counts.read_amplification:.2f}"),
        ("running ahead", "sampling and reading hidden", f"{report.hidden_share:.1%}"),
    ]
    if report.depth is not None:
        depth = report.depth
        last = f"{depth.reads[-1]:,}" if depth.reads else "-"
        rows += [
            ("accumulator", "reads needed under way", f"{depth.needed:,.0f} ({depth.source})"),
            ("accumulator", "reads of the last group", last),
            ("accumulator", "groups with enough reads", f"{depth.reached_share:.0%}"),
        ]
    if report.belady_ratio is not None:
        rows.append(("Belady's optimum", "pages read over its", f"{report.belady_ratio:.3f}"))
    return rows


def size_text(n_bytes: float) -> str:
    """Bytes with a binary unit."""
    for unit in _UNITS:
        if n_bytes < 1024 or unit == _UNITS[-1]:
            return f"{n_bytes:.1f} {unit}" if unit != "B" else f"{n_bytes:.0f} B"
        n_bytes /= 1024
    raise AssertionError("unreachable")


def _rows(rows: int, counts: FetchCounts) -> str:
    return f"{rows:>12,} rows ({_share(rows, counts.rows_requested)})"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"
