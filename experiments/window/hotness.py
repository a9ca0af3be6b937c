"""Which rows are hot: requests that a constant buffer serves, by how its rows were chosen; and what samplers
that share random numbers ask for.

    python experiments/window/hotness.py [NAME=STORE ...] [--real NAME=FOLDER ...] [--trace NAME=F] --json F

An epoch is replayed that was not measured. `random` is the share of the rows itself; `oracle` counts the
replayed epoch. Of a recorded trace (`.npy`, row numbers), of which there is no graph, the first half is
measured and the second replayed; shares are of the rows that it asks for at all. Graphs that the result file
has stay.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.bench.machine import command, commit, describe_machine
from gids.cli.options import write_json
from gids.fetch.expected_requests import HotnessMethod
from gids.fetch.hotness_methods import expect_requests
from gids.graph.dataset import Dataset
from gids.graph.open_dataset import open_dataset
from gids.graph.real.by_name import load_real
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches
from gids.sampling.shared_draws import DependentSampler, LaborSampler

SHARES = (0.05, 0.1, 0.2, 0.4)
REPLAYED_EPOCH = 7
KAPPAS = (4, 16, 64)

Counts = dict[str, npt.NDArray[np.int64]]


class Epoch:
    """One epoch of a sampler: how often each row is asked for, and how much of that is new."""

    def __init__(
        self, dataset: Dataset, seeds: Mapping[str, Any], sampler: NeighborSampler, size: int
    ) -> None:
        order = SeedBatches(seeds, dataset.graph.schema, batch_size=size, shuffle=True)
        self.counts: Counts = {
            name: np.zeros(each.n_rows, np.int64) for name, each in dataset.features.items()
        }
        self.edges = self.requests = shared = 0
        last: dict[str, npt.NDArray[np.int64]] = {}
        for number in range(len(order)):
            nodes = order.batch(REPLAYED_EPOCH, number).nodes
            batch = sampler.sample(dataset.graph, nodes, epoch=REPLAYED_EPOCH, batch=number)
            self.edges += batch.num_edges
            for name, each in dataset.features.items():
                rows = each.rows_of(batch.nodes[name])
                self.counts[name][rows] += 1
                self.requests += len(rows)
                if name in last:
                    shared += int(np.isin(rows, last[name], assume_unique=True).sum())
                last[name] = rows
        self.shared_with_the_last = shared / max(1, self.requests)
        self.distinct = sum(int((each > 0).sum()) for each in self.counts.values())


def served(counts: Mapping[str, Any], replayed: Counts, share: float) -> float:
    """Share of requests for the rows with the highest counts, all rows of one size."""
    names = list(replayed)
    flat = np.concatenate([np.asarray(counts[name], np.float64) for name in names])
    asked = np.concatenate([replayed[name] for name in names])
    held = np.argsort(-flat, kind="stable")[: int(share * len(flat))]
    return float(asked[held].sum() / asked.sum())


def measure(dataset: Dataset, batch_size: int, fanouts: list[int]) -> dict[str, Any]:
    """All figures of one graph."""
    task = next(iter(dataset.tasks.values()))
    seeds = {task.node_type: (task.given or task.split()).train}
    plain = NeighborSampler(fanouts, seed=0)
    epoch = Epoch(dataset, seeds, plain, batch_size)
    shares: dict[str, dict[str, float]] = {}
    settings = {"batch_size": batch_size, "epochs": 2}
    for method in HotnessMethod:
        found = expect_requests(dataset.graph, dataset.features, seeds, plain, method=method, **settings)
        counts = {name: found.whole_counts(name) for name in found.levels}
        shares[method.value] = {f"{share:.0%}": served(counts, epoch.counts, share) for share in SHARES}
    shares["oracle"] = {f"{share:.0%}": served(epoch.counts, epoch.counts, share) for share in SHARES}
    shares["random"] = {f"{share:.0%}": share for share in SHARES}
    samplers: dict[str, NeighborSampler] = {"neighbor": plain, "labor": LaborSampler(fanouts, seed=0)}
    for kappa in KAPPAS:
        samplers[f"labor, kappa {kappa}"] = LaborSampler(fanouts, kappa=kappa, seed=0)
        samplers[f"dependent, kappa {kappa}"] = DependentSampler(fanouts, kappa=kappa, seed=0)
    epochs = {name: Epoch(dataset, seeds, each, batch_size) for name, each in samplers.items()}
    return {
        "batch_size": batch_size,
        "fanouts": fanouts,
        "served_by_buffer": shares,
        "samplers": {
            name: {
                "requests": each.requests,
                "edges": each.edges,
                "distinct_rows": each.distinct,
                "shared_with_the_last_mini_batch": each.shared_with_the_last,
            }
            for name, each in epochs.items()
        },
    }


def measure_trace(requests: npt.NDArray[np.int64]) -> dict[str, Any]:
    """The same of a recorded trace, which says nothing of the graph: only `measured` can be compared."""
    rows, places = np.unique(requests.ravel(), return_inverse=True)
    n_rows = len(rows)
    halves = np.array_split(places.ravel(), 2)
    first, second = ({"rows": np.bincount(half, minlength=n_rows)} for half in halves)
    return {
        "requests": int(requests.size),
        "rows": n_rows,
        "served_by_buffer": {
            "measured": {f"{share:.0%}": served(first, second, share) for share in SHARES},
            "oracle": {f"{share:.0%}": served(second, second, share) for share in SHARES},
            "random": {f"{share:.0%}": share for share in SHARES},
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="*", metavar="NAME=STORE")
    parser.add_argument("--real", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--trace", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    path = Path(arguments.json)
    graphs = json.loads(path.read_text())["graphs"] if path.exists() else {}
    result = {
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(path.resolve().parent),
        "replayed_epoch": REPLAYED_EPOCH,
        "graphs": graphs,
    }
    for each in arguments.trace:
        name, _, file = each.partition("=")
        graphs[name] = measure_trace(np.load(file))
        write_json(arguments.json, result)
    for each in arguments.real:
        name, _, folder = each.partition("=")
        graphs[name] = measure(load_real(name, folder), 32, [10, 5])
        write_json(arguments.json, result)
    for each in arguments.stores:
        name, _, store = each.partition("=")
        graphs[name] = measure(open_dataset(Path(store)), 512, [10, 5])
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
