"""Where rows come from: constant buffer, page cache, shared reads, storage; by cache size and window.

    python examples/plot_tiers.py [--scale S] [--out tiers.svg]

A synthetic graph with IGBH's layout is made in a temporary folder; the loader counts where rows came from.
"""

import argparse
import tempfile
from pathlib import Path

import gids
from gids.cli.main import main as command
from gids.figures.svg import Bar, Line, lines, stacked_bars
from gids.figures.svg_file import Panel, svg_file

CACHES = (0.05, 0.1, 0.2, 0.4)
WINDOWS = (0, 1, 4, 8)
CPU_BUFFER = 0.05


def make_store(folder, scale):
    made, store = str(Path(folder) / "igbh"), str(Path(folder) / "store")
    for arguments in (
        ["synth", "--scale", str(scale), "--dim", "512", "--out", made],
        ["convert", "igbh", made, store],
    ):
        if command(arguments):
            raise SystemExit(f"gids {arguments[0]} failed")
    return gids.open_dataset(store)


def report_of(dataset, cache, window):
    """The cache report of one epoch."""
    with gids.DataLoader(
        dataset,
        {"paper": dataset.tasks["19"].split().train},
        gids.NeighborSampler([10, 5]),
        batch_size=32,
        shuffle=True,
        cache=cache,
        cpu_buffer=CPU_BUFFER,
        window=window,
        accumulate=0,  # each mini-batch is read alone, or this small epoch would be a single read
    ) as loader:
        for _ in loader:
            pass
        return loader.cache_report()


def draw(scale=0.01, caches=CACHES, windows=WINDOWS, out="tiers.svg"):
    """Hit rates by (cache, window), which are drawn into `out`."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_store(folder, scale)
        reports = {
            (cache, window): report_of(dataset, cache, window) for cache in caches for window in windows
        }
    rates = {name: report.hit_rate for name, report in reports.items()}
    for (cache, window), rate in rates.items():
        print(f"cache {cache:4.0%} of the rows, window {window}: hit rate {rate:.3f}")
    curves = [
        Line(
            f"window {window}", [100 * cache for cache in caches], [rates[cache, window] for cache in caches]
        )
        for window in windows
    ]
    tiers = ["constant buffer", "page cache", "a read that was under way", "storage"]
    bars = [bar(f"cache {cache:.0%}, window {windows[-1]}", reports[cache, windows[-1]]) for cache in caches]
    panels = [
        Panel(
            "Rows that needed no read",
            [curve.label for curve in curves],
            lines(curves, "cache, % of the features", "hit rate", "Hit rate"),
        ),
        Panel("Where rows came from", tiers, stacked_bars(bars, "Rows by tier")),
    ]
    Path(out).write_text(svg_file(panels))
    return rates


def bar(label, report):
    counts = report.total
    parts = (counts.rows_constant, counts.rows_cache, counts.rows_joined, counts.rows_storage)
    return Bar(label, parts, f"{report.hit_rate:.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.01, help="of IGBH-tiny (default 0.01)")
    parser.add_argument("--out", default="tiers.svg")
    options = parser.parse_args()
    draw(options.scale, out=options.out)
    print(f"figures: {options.out}")
