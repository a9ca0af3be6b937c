"""`gids plan`: what a run will read and what will limit it, before it runs."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from gids.cli.options import add_config_arguments, write_json
from gids.cli.text import size_text, table_text

NAME = "plan"
HELP = "say what a run will read, what limits it, and which sizes fit this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("dir", nargs="?", metavar="DIR", help="store or IGBH folder (default: as configured)")
    add_config_arguments(parser)
    parser.add_argument(
        "--no-compute", action="store_false", dest="compute", help="do not time training steps"
    )
    parser.add_argument("--json", metavar="F", help="write the result file")


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    from gids.bench.data import data_root, open_data, train_plan_of
    from gids.bench.run_plan import best_sizes, configured_sizes, make_plan, sample_run, storage_of
    from gids.config import load_config
    from gids.graph.store import is_store

    config = load_config(arguments.config, arguments.set)
    if arguments.dir is not None:
        folder = str(Path(arguments.dir).resolve())
        store = folder if is_store(folder) else ""
        config = replace(config, data=replace(config.data, folder=folder, store=store))
    with tempfile.TemporaryDirectory(prefix="gids-plan-") as work:
        data = open_data(config.data, data_root(arguments.data), Path(work))
        sampled = sample_run(data, config, train_plan_of(config, data), compute=arguments.compute)
        storage, best = storage_of(data, config), best_sizes(sampled, config)
        plans = {
            "configured": make_plan(sampled, config, storage, configured_sizes(sampled, config, best)),
            "recommended": make_plan(sampled, config, storage, best),
        }
    rows = [
        ("cache", *(size_text(each.sizes.cache_bytes) for each in plans.values())),
        ("constant buffer", *(size_text(each.sizes.cpu_buffer_bytes) for each in plans.values())),
        ("window", *(each.sizes.window for each in plans.values())),
        ("features of a mini-batch", *(size_text(each.batch_bytes) for each in plans.values())),
        ("pages of a mini-batch", *(f"{each.pages:,.0f}" for each in plans.values())),
        ("in the constant buffer", *(f"{100 * each.constant_hit_rate:.1f} %" for each in plans.values())),
        ("in the cache", *(f"{100 * each.cache_hit_rate:.1f} %" for each in plans.values())),
        ("reads of a step", *(f"{each.reads:,.0f}" for each in plans.values())),
        ("bytes of a step", *(size_text(each.read_bytes) for each in plans.values())),
    ]
    for part in ("disk", "pcie", "sampling", "compute"):
        seconds = [getattr(each.bounds, f"{part}_s") for each in plans.values()]
        rows.append((f"{part}, ms", *(f"{1000 * each:.1f}" for each in seconds)))
    rows.append(("step at least, ms", *(f"{1000 * each.bounds.step_s:.1f}" for each in plans.values())))
    rows.append(("limited by", *(each.bounds.limited_by for each in plans.values())))
    print(table_text(("", *plans), rows))
    facts = storage.facts
    print(
        f"storage by {storage.source}: {facts.iops * facts.n_ssd:,.0f} reads/s, {facts.latency_us:.0f} us; "
        f"{facts.reads_needed(config.loader.peak_share):,.0f} reads under way are needed"
    )
    result = {name: each.to_json() for name, each in plans.items()}
    write_json(arguments.json, {"schema": 1, "name": "plan", "storage": storage.source, **result})
    return 0
