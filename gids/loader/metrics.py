"""What a loader did, at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gids.fetch.accumulator import AccumulatorReport
from gids.fetch.counts import FetchCounts, total


@dataclass(frozen=True)
class LoaderTimes:
    """Where time went so far; costs nothing to ask for, at every step too.

    Attributes
    ----------
    batches, sample_s, plan_s, fetch_s, wait_s
        As of :class:`LoaderMetrics`.
    """

    batches: int
    sample_s: float
    plan_s: float
    fetch_s: float
    wait_s: float


@dataclass(frozen=True)
class LoaderMetrics:
    """Since the loader was made, or since an earlier snapshot.

    Attributes
    ----------
    batches : int
        Mini-batches handed out.
    sample_s, fetch_s : float
        Seconds spent sampling and reading, in their threads, while training ran.
    wait_s : float
        Seconds the consumer waited for a mini-batch.
    edges : int
        Sampled edges.
    counts : mapping of str to FetchCounts
        By node type.
    paths : mapping
        Which path really runs, by node type.
    accumulator : AccumulatorReport, optional
        Of the latest iteration: how many mini-batches were read together, and why.
    sampler : str
        Where sampling runs: ``"host"`` or ``"gpu"``, with the reason if it is not where features are read.
    plan_s : float
        Seconds spent on finding out where features lie, in the thread that samples.
    """

    batches: int
    sample_s: float
    fetch_s: float
    wait_s: float
    edges: int
    counts: Mapping[str, FetchCounts]
    paths: Mapping[str, Any]
    accumulator: AccumulatorReport | None = None
    sampler: str = "host"
    plan_s: float = 0.0

    @property
    def total(self) -> FetchCounts:
        """Sum over node types."""
        return total(self.counts.values())

    @property
    def hit_rate(self) -> float:
        """1 - storage / requested rows."""
        return self.total.hit_rate

    @property
    def hidden_share(self) -> float:
        """Share of the sampling and reading time that training did not wait for; 0 when there was none."""
        work = self.sample_s + self.plan_s + self.fetch_s
        return max(0.0, 1 - self.wait_s / work) if work else 0.0
