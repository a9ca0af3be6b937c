"""Why a window of 8 alone misses more than Belady's optimum: the causes one by one, in an idealised cache.

    python experiments/window/limits.py NAME=STORE ... --json F [--max-seeds N] [--shares S]

Adds `limits` to the result file of `belady.py`. The cache gives up the very page that is needed last of all,
where the real one looks at 160 of them. What is needed last is known exactly inside the window; outside it
goes by the requests still to come: estimated from two other epochs; from eight; or counted in the replayed
epoch itself, which no loader can know and which says how many requests are to come and not when.
"""

from __future__ import annotations

import argparse
import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from belady import BATCH_SIZE, FANOUTS, REPLAYED_EPOCH, with_zeros
from numba import njit

from gids.bench.belady_gap import optimal_misses
from gids.cli.options import write_json
from gids.graph.open_dataset import open_dataset
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

WINDOWS = (8, 16, 32)
OTHER_EPOCHS = (0, 1, 3, 4, 5, 6, 7, 8)
#: A row that was asked for as often as expected comes again all the same, by that share of its count.
FLOOR = 0.02

Pages = npt.NDArray[np.int64]


class Epochs:
    """Rows that each epoch asks for, a page a row."""

    def __init__(self, store: Path, max_seeds: int) -> None:
        self._dataset = with_zeros(open_dataset(store))
        task = next(iter(self._dataset.tasks.values()))
        seeds = {task.node_type: task.split().train[:max_seeds]}
        self._sampler = NeighborSampler(FANOUTS, seed=0)
        self._order = SeedBatches(
            seeds, self._dataset.graph.schema, batch_size=BATCH_SIZE, shuffle=True, seed=0
        )
        self.n_rows = sum(each.n_rows for each in self._dataset.features.values())

    def batches(self, epoch: int) -> list[Pages]:
        """Of each mini-batch."""
        features = self._dataset.features
        first = np.cumsum([0, *(each.n_rows for each in features.values())])
        batches = []
        for number in range(len(self._order)):
            nodes = self._order.batch(epoch, number).nodes
            batch = self._sampler.sample(self._dataset.graph, nodes, epoch=epoch, batch=number)
            rows = [
                each.rows_of(batch.nodes[name]) + begin
                for (name, each), begin in zip(features.items(), first, strict=False)
            ]
            batches.append(np.concatenate(rows))
        return batches

    def counts(self, epoch: int) -> Pages:
        """Requests for each row."""
        return np.bincount(np.concatenate(self.batches(epoch)), minlength=self.n_rows)


@njit(cache=True)
def next_batches(pages: Any, batch_of: Any, n_rows: Any) -> Any:
    """Mini-batch of each request's next request; -1: none."""
    found, last = np.empty(len(pages), np.int64), np.full(n_rows, -1)
    for i in range(len(pages) - 1, -1, -1):
        found[i] = last[pages[i]]
        last[pages[i]] = batch_of[i]
    return found


@njit(cache=True)
def misses(
    pages: Any, batch_of: Any, ends: Any, after: Any, lines: Any, window: Any, expected: Any, weight: Any
) -> Any:
    """Of a cache that orders pages by next use, or, outside the window, by ``expected - weight * seen``."""
    never = 1e9
    order, seen = np.zeros(len(expected)), np.zeros(len(expected))
    cached = np.zeros(len(expected), np.bool_)
    last_first = [(0.0, 0) for _ in range(0)]
    known = held = missed = 0
    for i in range(len(pages)):
        while known < len(ends) and known <= batch_of[i] + window:
            for j in range(0 if known == 0 else ends[known - 1], ends[known]):
                seen[pages[j]] += 1
            known += 1
        page = pages[i]
        use = float(after[i])
        if use < 0 or use > batch_of[i] + window:
            to_come = max(expected[page] - weight * seen[page], FLOOR * expected[page])
            use = never + never / (1.0 + to_come)
        if not cached[page]:
            missed += 1
            if held < lines:
                held += 1
            else:
                # Entries of pages that were given up or used meanwhile are out of date.
                while not cached[last_first[0][1]] or order[last_first[0][1]] != -last_first[0][0]:
                    heapq.heappop(last_first)
                if use > -last_first[0][0]:
                    continue
                cached[heapq.heappop(last_first)[1]] = False
            cached[page] = True
        order[page] = use
        heapq.heappush(last_first, (-use, page))
    return missed


def limits(epochs: Epochs, shares: list[float]) -> dict[str, Any]:
    """Misses over the optimum's, by share of the rows that fit and by what is known."""
    batches = epochs.batches(REPLAYED_EPOCH)
    pages, sizes = np.concatenate(batches), [len(each) for each in batches]
    ends, batch_of = np.cumsum(sizes), np.repeat(np.arange(len(sizes)), sizes)
    after = next_batches(pages, batch_of, epochs.n_rows)
    others = [epochs.counts(epoch) for epoch in OTHER_EPOCHS]
    mean = np.mean(others, axis=0)
    often = (mean >= 1) & (mean <= 8)
    weight = 1 - float((np.var(others, axis=0, ddof=1)[often] / mean[often]).mean())
    two, own = np.mean(others[:2], axis=0), np.bincount(pages, minlength=epochs.n_rows).astype(float)
    found: dict[str, Any] = {}
    for share in shares:
        lines = int(share * epochs.n_rows)
        optimum = optimal_misses(pages, lines)

        def ratio(window: int, expected: Any, weight: float, lines: int = lines, of: int = optimum) -> float:
            return float(misses(pages, batch_of, ends, after, lines, window, expected, weight) / of)

        found[f"{share:.0%}"] = {
            **{f"window {window}, two epochs": ratio(window, two, weight) for window in WINDOWS},
            "window 8, eight epochs": ratio(8, mean, weight),
            "window 8, the epoch's own counts": ratio(8, own, 1.0),
        }
        print(share, found[f"{share:.0%}"], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("stores", nargs="+", metavar="NAME=STORE")
    parser.add_argument("--json", required=True)
    parser.add_argument("--max-seeds", type=int, default=2**62, help="training nodes of an epoch, at most")
    parser.add_argument("--shares", default="0.1,0.2,0.4", help="of the rows, that fit in the cache")
    arguments = parser.parse_args()
    result = json.loads(Path(arguments.json).read_text())
    for each in arguments.stores:
        name, _, store = each.partition("=")
        shares = [float(share) for share in arguments.shares.split(",")]
        result["graphs"][name]["limits"] = limits(Epochs(Path(store), arguments.max_seeds), shares)
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
