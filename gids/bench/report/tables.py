"""Tables of a report: the same content for the page and for Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gids.figures.table import Table

Result = Mapping[str, Any]


def loaders_table(result: Result) -> Table:
    """Times of each loader, a step."""
    heads = (
        *("loader", "steps", "step, ms", "features, ms", "sampling, ms", "compute, ms"),
        *("gids is faster: step", "features"),
    )
    rows = tuple(_loader_row(name, each, result["ratios"]) for name, each in result["loaders"].items())
    return Table(heads, rows, _loaders_note(result))


def _loader_row(name: str, loader: Result, ratios: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    if "failed" in loader:
        return (name, "failed", *[""] * 6)
    ratio = ratios.get(name, {})
    return (
        name,
        f"{loader['steps']}",
        *(per_step(loader, key) for key in ("end_to_end_s", "feature_wait_s", "sample_s", "compute_s")),
        *(f"{ratio[key]:.2f}x" if key in ratio else "" for key in ("end_to_end", "feature_wait")),
    )


def per_step(loader: Result, key: str) -> str:
    """Milliseconds a step."""
    return f"{1000 * loader[key] / loader['steps']:,.1f}"


def _loaders_note(result: Result) -> str:
    notes = []
    for name, each in result["loaders"].items():
        if "failed" in each:
            notes.append(f"{name} failed: {each['failed']}.")
        ahead, memory = each.get("read_ahead", {}), each.get("memory", {})
        if ahead.get("note"):
            notes.append(f"{name}: read-ahead of {ahead['asked_kib']} KiB was not possible: {ahead['note']}.")
        if memory.get("note"):
            notes.append(f"{name}: {memory['note']}.")
        if "steps" in each and each["steps"] < each["asked_steps"]:
            notes.append(
                f"{name}: stopped at the time limit after {each['steps']} of "
                f"{each['asked_steps']} steps; all times are per step."
            )
    equal = result["equal"]
    for what, same in equal.items():
        if same is not None:
            notes.append(f"{what.replace('_', ' ')}: {'equal' if same else 'NOT equal'} for all loaders.")
    return " ".join(note[0].upper() + note[1:] for note in notes)


def rows_table(result: Result) -> Table:
    """Where rows came from, by loader."""
    heads = ("loader", "rows", "distinct", "constant", "cache", "joined", "storage", "hit rate")
    rows = []
    for name, each in _done(result).items():
        places = each["rows_from"] or {}
        counts = (each["rows_requested"], each["rows_distinct"])
        shares = (
            f"{100 * places[key] / max(1, each['rows_requested']):.1f} %" if places else "-"
            for key in ("constant", "cache", "joined", "storage")
        )
        hit_rate = "-" if each["hit_rate"] is None else f"{100 * each['hit_rate']:.1f} %"
        rows.append((name, *(f"{count:,}" for count in counts), *shares, hit_rate))
    return Table(heads, tuple(rows), "Of a memory map the kernel does not say which rows were cached.")


def cache_table(result: Result) -> Table | None:
    """Misses of the page cache beside the fewest possible; None where they were not counted."""
    found = result["loaders"].get("gids", {}).get("belady")
    if not found:
        return None
    rows = (
        ("lines of the cache", f"{found['lines']:,}"),
        ("pages asked for, once a mini-batch", f"{found['pages_requested']:,}"),
        ("distinct pages", f"{found['pages_distinct']:,}"),
        ("misses", f"{found['misses']:,}"),
        ("misses of Belady's optimum", f"{found['optimal_misses']:,}"),
        ("misses as a multiple of the optimum", "-" if found["gap"] is None else f"{found['gap']:.3f}"),
    )
    note = (
        "The optimum knows the whole future, for the same mini-batches and as many lines. "
        "Mini-batches that are read together share pages beyond those lines."
    )
    return Table(("page cache of gids", ""), rows, note)


def reading_table(result: Result) -> Table:
    """What each loader read and held."""
    heads = ("loader", "reads", "MB read", "MB useful", "peak RSS, MB", "limit, MB", "with page cache, MB")
    rows = []
    for name, each in _done(result).items():
        memory = each["memory"]
        limit, peak = (memory["limit_bytes"], memory["peak_bytes"]) if memory["enforced"] else (0, 0)
        rows.append(
            (
                name,
                f"{each['reads']:,}",
                *(f"{each[key] / 1e6:,.0f}" for key in ("bytes_read", "bytes_useful", "peak_rss_bytes")),
                *(f"{number / 1e6:,.0f}" if number else "-" for number in (limit, peak)),
            )
        )
    note = "Of a memory map, reads are page faults that waited; bytes are what the kernel read, ahead or not."
    return Table(heads, tuple(rows), note)


def _done(result: Result) -> dict[str, Result]:
    return {name: each for name, each in result["loaders"].items() if "failed" not in each}


def ceilings_table(result: Result) -> Table:
    """What the disk can do, and what the gids loader got out of it."""
    ceilings = result["ceilings"]
    iops, sequential = ceilings["random_4k_iops"], ceilings["sequential_mb_per_s"]
    rows = [
        ("random reads of 4 KiB, 1/s", "-" if iops is None else f"{iops:,.0f}"),
        ("sequential reads, MB/s", f"{sequential:,.0f}"),
    ]
    ours = result["loaders"].get("gids", {})
    storage = ours.get("storage")
    if storage and ours["end_to_end_s"]:
        rows += [
            ("gids: reads, 1/s over the run", f"{ours['reads'] / ours['end_to_end_s']:,.0f}"),
            ("gids: MB/s over the run", f"{ours['bytes_read'] / 1e6 / ours['end_to_end_s']:,.0f}"),
            ("gids: bytes per read", f"{ours['bytes_read'] / max(1, ours['reads']):,.0f}"),
            ("gids: reads in flight, mean", f"{storage['mean_in_flight']:,.1f}"),
            *(
                (f"gids: latency {name}, µs", f"{value:,.0f}")
                for name, value in storage["latency_us"].items()
            ),
        ]
    return Table(("disk", ""), tuple(rows), ceilings["note"])


def machine_table(result: Result) -> Table:
    """Where it ran."""
    machine = result["machine"]
    disk = machine["disk"]
    rows = (
        ("processor", f"{machine['processor']}, {machine['cores']} cores"),
        ("memory", f"{machine['memory_bytes'] / 1e9:.0f} GB"),
        ("kernel", machine["kernel"]),
        ("disk", f"{disk['device']}, {disk['file_system']}, read-ahead {disk['read_ahead_kib']} KiB"),
        ("threads", f"{machine.get('threads', '')}"),
        ("page cache", _page_cache(result)),
        ("commit", result["commit"]),
        ("command", result["command"]),
    )
    return Table(("", ""), rows)


def _page_cache(result: Result) -> str:
    if result.get("cold"):
        return "cold"
    return "warm: everything was delivered once before" if result.get("warm") else "as it was"


def training_table(results: Sequence[Result]) -> Table:
    """How good the trained models are."""
    heads = ("run", "loader", "epochs", "steps", "validation", "test", "macro-F1", "seconds")
    rows = tuple(
        (
            each["config"]["name"],
            each["loader"],
            f"{len(each['epochs'])}",
            f"{each['steps']:,}",
            f"{100 * max(epoch['validation_accuracy'] for epoch in each['epochs']):.2f} %",
            f"{100 * each['test_accuracy']:.2f} %",
            f"{each['test_macro_f1']:.4f}",
            f"{each['seconds']:,.1f}",
        )
        for each in results
    )
    digests = [each["losses_sha256"] for each in results]
    note = "All losses are equal, bit for bit." if len(set(digests)) == 1 < len(digests) else ""
    return Table(heads, rows, note)


def case_text(measured: Result) -> str:
    """Fanouts, and how many seeds where the file says it."""
    seeds = f", {measured['batch_size']:,} seeds" if "batch_size" in measured else ""
    return ", ".join(map(str, measured["fanouts"])) + seeds


def sample_table(result: Result) -> Table:
    """Sampled edges a second."""
    rows = [
        (
            f"fanouts {case_text(each)}: {name}",
            f"{sampler['edges_per_s']:,.0f}",
            f"{min(sampler['rounds_edges_per_s']):,.0f} to {max(sampler['rounds_edges_per_s']):,.0f}",
            f"{each['ratios'][name]:.2f}x" if name in each["ratios"] else "",
        )
        for each in result["fanouts"]
        for name, sampler in each["samplers"].items()
    ]
    compiled = result["compile"]
    note = f"Medians of {result['config']['rounds']} rounds, {result['machine']['threads']} threads."
    if compiled is not None:
        first, cached = (f"{compiled[name]:.1f} s" for name in ("first_s", "cached_s"))
        note += f" Compilation: {first} once, {cached} in later processes."
    return Table(("sampler", "edges a second", "rounds", "of DGL"), tuple(rows), note)
