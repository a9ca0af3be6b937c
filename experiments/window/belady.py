"""Misses of the loader's cache beside Belady's optimum and LRU, on recorded mini-batches of IGBH's graphs.

    python experiments/window/belady.py NAME=STORE ... --json F [--parts P] [--max-seeds N]

STORE is a converted data set; only its graph and the order of its rows are used. Rows are 512 bytes of zeros
in memory, read through the loader's own fetcher, window and C++ cache, a page a row, so that nothing is
modelled: the misses are the pages that were read. The epoch that is replayed is not one of those that hotness
was measured on.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import bam
from bam.array.sources import MemorySource
from bam.bench.machine import command, commit, describe_machine
from gids.bench.belady_gap import optimal_misses
from gids.cli.options import write_json
from gids.fetch.expected_requests import ExpectedRequests, HotnessMethod
from gids.fetch.feature_store import FeatureStore
from gids.fetch.fetcher import Fetcher
from gids.fetch.forecast import Forecast
from gids.fetch.foresight import Foresight, parse_foresight
from gids.fetch.hotness_methods import expect_requests
from gids.fetch.output_pool import OutputPool
from gids.fetch.table import open_tables
from gids.graph.dataset import Dataset, Features
from gids.graph.open_dataset import open_dataset
from gids.sampling.block import SampledBatch
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

ROW_BYTES = 512
FANOUTS = [10, 5]
BATCH_SIZE = 512
MEASURED_EPOCHS, REPLAYED_EPOCH = 2, 2
SHARES = (0.1, 0.2, 0.4, 0.6)
WINDOW = 8
#: Window depths that are compared.
DEPTHS = (0, 8)

Save = Callable[[dict[str, Any]], None]


class Trace:
    """Mini-batches of one epoch, and what was measured on others."""

    def __init__(self, store: Path, max_seeds: int, sampler: NeighborSampler | None = None) -> None:
        self.dataset = with_zeros(open_dataset(store))
        self.n_rows = sum(each.n_rows for each in self.dataset.features.values())
        task = next(iter(self.dataset.tasks.values()))
        seeds = {task.node_type: task.split().train[:max_seeds]}
        sampler = sampler or NeighborSampler(FANOUTS, seed=0)
        self.requests = expect_requests(
            self.dataset.graph,
            self.dataset.features,
            seeds,
            sampler,
            batch_size=BATCH_SIZE,
            method=HotnessMethod.MEASURED,
            epochs=MEASURED_EPOCHS,
        )
        order = SeedBatches(seeds, self.dataset.graph.schema, batch_size=BATCH_SIZE, shuffle=True, seed=0)
        self.batches = []
        for number in range(len(order)):
            batch = order.batch(REPLAYED_EPOCH, number)
            sampled = sampler.sample(
                self.dataset.graph, batch.nodes, epoch=REPLAYED_EPOCH, batch=batch.number
            )
            self.batches.append(replace(sampled, blocks=()))
        self.pages = self._pages()
        self.n_distinct = len(np.unique(self.pages))

    def _pages(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        first = dict(
            zip(
                self.dataset.features,
                np.cumsum([0, *(each.n_rows for each in self.dataset.features.values())]).tolist(),
                strict=False,
            )
        )
        parts = [
            each.rows_of(batch.nodes[name]) + first[name]
            for batch in self.batches
            for name, each in self.dataset.features.items()
        ]
        return np.concatenate(parts)


def with_zeros(dataset: Dataset) -> Dataset:
    """The same with features of zeros in memory that is never touched, read as if they lay in files."""
    features = {}
    for name, each in dataset.features.items():
        source = MemorySource(np.zeros((each.n_rows, ROW_BYTES // 4), np.float32))
        features[name] = Features(
            name, each.dtype, ROW_BYTES // 4, source, source.describe(), rank=each.rank, levels=each.levels
        )
    return replace(dataset, features=features)


def pages_read(
    trace: Trace,
    n_lines: int,
    window: int,
    policy: str,
    requests: ExpectedRequests | None,
    foresight: int | str = 0,
) -> int:
    """Pages that the loader's fetcher reads for the epoch."""
    cache = bam.SharedCache(f"{n_lines} lines", page_bytes=ROW_BYTES, policy=policy)
    tables = open_tables(trace.dataset.features, cache)
    store, pool = FeatureStore(tables, requests=requests), OutputPool()
    fetcher = Fetcher(
        store,
        pool,
        forecast=Forecast(tables, requests, len(trace.batches)),
    )
    if foresight:
        fetcher.look_beyond(Foresight(iter(trace.batches), parse_foresight(foresight, n_lines)))
    waiting: list[SampledBatch] = list(trace.batches)
    while waiting or len(fetcher):
        while waiting and len(fetcher) <= window:
            fetcher.announce(waiting.pop(0))
        fetcher.fetch()
    misses = sum(table.counts().pages_read for table in tables.values())
    fetcher.close()
    store.close()
    cache.close()
    gc.collect()
    return misses


def lru_misses(pages: Sequence[int], n_lines: int) -> int:
    """Of a fully associative cache that gives up the page used longest ago."""
    cached: OrderedDict[int, None] = OrderedDict()
    misses = 0
    for page in pages:
        if page in cached:
            cached.move_to_end(page)
            continue
        misses += 1
        if len(cached) == n_lines:
            cached.popitem(last=False)
        cached[page] = None
    return misses


def measured_at(trace: Trace, n_lines: int) -> dict[str, Any]:
    """Misses in a cache of `n_lines`: the loader's, LRU's, and the fewest possible."""
    optimum = optimal_misses(trace.pages, n_lines)
    misses = {
        "window 8": pages_read(trace, n_lines, WINDOW, "look_ahead_global", trace.requests, "auto"),
        "window 8, no foresight": pages_read(trace, n_lines, WINDOW, "look_ahead_global", trace.requests),
        "lru": lru_misses(trace.pages.tolist(), n_lines),
    }
    return {
        "lines": n_lines,
        "optimal_misses": optimum,
        "misses": misses,
        "ratio": {name: count / optimum for name, count in misses.items()},
    }


def parts_at(trace: Trace, n_lines: int) -> dict[str, Any]:
    """What each part is worth: misses over the optimum's with sets of 32, and without `gids hotness`."""
    optimum = optimal_misses(trace.pages, n_lines)
    misses = {
        "sets of 32": pages_read(trace, n_lines, WINDOW, "look_ahead", trace.requests),
        "degrees": pages_read(trace, n_lines, WINDOW, "look_ahead_global", None),
        "sets of 32, degrees": pages_read(trace, n_lines, WINDOW, "look_ahead", None),
    }
    return {"lines": n_lines, "ratio": {name: count / optimum for name, count in misses.items()}}


def depths_at(trace: Trace, n_lines: int) -> dict[str, Any]:
    """Hit rate for each window depth, beside the most that any policy can reach, whatever it knows."""
    requests = len(trace.pages)
    without = {
        "lru": 1 - lru_misses(trace.pages.tolist(), n_lines) / requests,
        "clock": 1 - pages_read(trace, n_lines, 0, "clock", None) / requests,
    }
    rates = {
        depth: 1 - pages_read(trace, n_lines, depth, "look_ahead_global", trace.requests) / requests
        for depth in DEPTHS
    }
    optimum = 1 - optimal_misses(trace.pages, n_lines) / requests
    return {
        "lines": n_lines,
        "hit_rate_without_window": without,
        "hit_rate_by_depth": rates,
        "optimal_hit_rate": optimum,
        "gain_of_depth_8": {name: rates[WINDOW] / rate for name, rate in without.items()},
        "largest_possible_gain": {name: optimum / rate for name, rate in without.items()},
    }


def measure(name: str, store: Path, max_seeds: int, parts: Sequence[str], save: Save) -> None:
    """Figures of one graph, saved as they come."""
    trace = Trace(store, max_seeds)
    save(
        {
            "rows": trace.n_rows,
            "batches": len(trace.batches),
            "requests": len(trace.pages),
            "distinct_rows": trace.n_distinct,
            "dispersion": trace.requests.dispersion,
        }
    )
    if "depth" in parts:
        save({"window_depth": depths_at(trace, trace.n_distinct // 10)})
    for part, measured in (("shares", measured_at), ("parts", parts_at)):
        for share in SHARES if part in parts else ():
            save({part: {f"{share:.0%}": measured(trace, int(share * trace.n_rows))}})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="+", metavar="NAME=STORE")
    parser.add_argument("--json", required=True)
    parser.add_argument("--parts", default="shares,parts,depth", help="what to measure (default: all)")
    parser.add_argument("--max-seeds", type=int, default=2**62, help="training nodes of an epoch, at most")
    arguments = parser.parse_args()
    path = Path(arguments.json)
    result = json.loads(path.read_text()) if path.exists() else {"graphs": {}}
    result |= {"commit": commit(), "command": command(), "machine": describe_machine(path.resolve().parent)}
    result["settings"] = {
        "fanouts": FANOUTS,
        "batch_size": BATCH_SIZE,
        "window": WINDOW,
        "page_bytes": ROW_BYTES,
        "hotness": f"measured on epochs 0 to {MEASURED_EPOCHS - 1}",
        "replayed": f"epoch {REPLAYED_EPOCH}, from an empty cache",
    }
    for each in arguments.stores:
        name, _, store = each.partition("=")
        graph = result["graphs"].setdefault(name, {})

        def save(found: dict[str, Any], graph: dict[str, Any] = graph, name: str = name) -> None:
            for key, value in found.items():
                graph[key] = {**graph.get(key, {}), **value} if isinstance(value, dict) else value
            write_json(arguments.json, result)
            print(name, json.dumps(found), flush=True)

        measure(name, Path(store), arguments.max_seeds, arguments.parts.split(","), save)


if __name__ == "__main__":
    main()
