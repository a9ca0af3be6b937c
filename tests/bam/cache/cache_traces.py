"""Traces of page accesses that the hit-rate tests replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from bam.cache.geometry import mix64

Trace = npt.NDArray[np.int64]

N_NODES = 6000
EDGES_PER_NODE = 12
SEEDS_PER_BATCH = 32
FANOUTS = (6, 4)


class Draws:
    """Numbers that are the same on every machine and in every version of NumPy."""

    def __init__(self, seed: int) -> None:
        self._key, self._count = mix64(seed + 1), 0

    def uniform(self, n: int) -> npt.NDArray[np.float64]:
        """`n` numbers in [0, 1)."""
        value = np.arange(self._count, self._count + n, dtype=np.uint64) + np.uint64(self._key)
        self._count += n
        value = (value ^ value >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ value >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        value ^= value >> np.uint64(31)
        return (value >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sampled_trace(n_batches: int, seed: int = 0) -> Trace:
    """Pages touched when mini-batches are sampled from a graph whose popularity follows a power law.

    Seeds are drawn uniformly, neighbours from each node's fixed list, whose entries were drawn by popularity
    (exponent about 2.3). A batch touches each of its nodes once. Row and page are the same.
    """
    draws = Draws(seed)
    popularity = np.arange(1, N_NODES + 1, dtype=np.float64) ** -0.75
    cumulative = np.cumsum(popularity) / popularity.sum()
    drawn = np.searchsorted(cumulative, draws.uniform(N_NODES * EDGES_PER_NODE))
    neighbours = np.minimum(drawn, N_NODES - 1).reshape(N_NODES, EDGES_PER_NODE)
    batches = []
    for _ in range(n_batches):
        frontier = (draws.uniform(SEEDS_PER_BATCH) * N_NODES).astype(np.int64)
        layers = [frontier]
        for fanout in FANOUTS:
            picks = (draws.uniform(len(frontier) * fanout) * EDGES_PER_NODE).astype(np.int64)
            frontier = neighbours[np.repeat(frontier, fanout), picks]
            layers.append(frontier)
        nodes = np.concatenate(layers)
        _, first = np.unique(nodes, return_index=True)
        batches.append(nodes[np.sort(first)])
    return np.concatenate(batches)


def reddit_requests(shared_data: Path) -> Trace:
    """The first half of 1,000 recorded requests of 48 nodes of the Reddit graph, in order (SOURCES.md)."""
    requests: Trace = np.load(shared_data / "trace-reddit-quiver" / "25_10_workload.npy")
    return requests[:500].ravel()
