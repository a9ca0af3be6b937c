"""Adds up what a timed run of a loader delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gids.bench.digest import features_sha256, joined_sha256
from gids.bench.distinct import DistinctNodes
from gids.bench.loaders.base import LoadedBatch
from gids.bench.observe import ProcessCounters
from gids.fetch.counts import FetchCounts, merged, total
from gids.sampling.block import SampledBatch

_PARTS = ("sample_s", "feature_wait_s", "copy_s", "compute_s", "adapt_s")

#: Rows of a mini-batch that are hashed between two steps: kept, they would take memory from the loader.
CHECKED_ROWS = 64


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step of the training loop.

    Attributes
    ----------
    wait_s : float
        It waited for the mini-batch; of that
    device_wait_s : float
        until the training stream had the features.
    compute_s, busy_s : float
        Of the training step; of that the device was busy.
    """

    wait_s: float
    device_wait_s: float
    compute_s: float
    busy_s: float


class Measured:
    """Takes mini-batches as they are delivered; costs a millisecond each.

    Parameters
    ----------
    row_bytes : mapping of str to int
        Bytes of a feature row, of the node types that have any.
    distinct : DistinctNodes
    """

    def __init__(self, row_bytes: Mapping[str, int], distinct: DistinctNodes) -> None:
        self._row_bytes, self._distinct = row_bytes, distinct
        self._steps: dict[str, list[float]] = {name: [] for name in (*_PARTS, "busy_s", "step_s")}
        self._counts: dict[str, FetchCounts] | None = {}
        self._losses: list[torch.Tensor] = []
        self._checked: list[str] = []
        self._rows = self._bytes = self._edges = 0
        self._nodes: list[Mapping[str, Any]] = []

    def add(self, batch: LoadedBatch, step: StepTimes, loss: torch.Tensor | None) -> None:
        """A mini-batch, how long its step took, and what the training step made of it."""
        times = {
            "sample_s": batch.sample_s,
            "feature_wait_s": batch.feature_wait_s + step.device_wait_s,
            "copy_s": batch.copy_s,
            "compute_s": step.compute_s,
            "adapt_s": batch.adapt_s,
            "busy_s": step.busy_s,
            "step_s": step.wait_s - batch.adapt_s + step.compute_s,
        }
        for name, seconds in times.items():
            self._steps[name].append(seconds)
        if loss is not None:
            self._losses.append(loss)
        nodes = {name: batch.sampled.nodes[name] for name in self._row_bytes}
        self._nodes.append(nodes)
        if isinstance(batch.sampled, SampledBatch):
            self._count_distinct()  # those of a GPU are counted at the end: reading them would wait for it
        self._rows += sum(len(ids) for ids in nodes.values())
        self._bytes += sum(len(ids) * self._row_bytes[name] for name, ids in nodes.items())
        self._edges += batch.sampled.num_edges
        if batch.counts is None or self._counts is None:
            self._counts = None
        else:
            self._counts = merged(self._counts, batch.counts)
        self._checked.append(features_sha256({name: _some(rows) for name, rows in batch.features.items()}))

    def _count_distinct(self) -> None:
        while self._nodes:
            nodes = self._nodes.pop().items()
            self._distinct.add({name: torch.as_tensor(ids).cpu().numpy() for name, ids in nodes})

    def result(self, counters: ProcessCounters) -> dict[str, Any]:
        """What was measured, with the fields of `docs/results.md`."""
        self._count_distinct()
        sums = {name: sum(values) for name, values in self._steps.items()}
        return {
            "steps": len(self._steps["step_s"]),
            "end_to_end_s": sums["step_s"],
            **{name: sums[name] for name in _PARTS},
            "busy_s": sums["busy_s"],
            "busy_share": sums["busy_s"] / sums["step_s"] if sums["step_s"] else 0.0,
            "edges": self._edges,
            "rows_requested": self._rows,
            "rows_distinct": len(self._distinct),
            **self._reading(counters),
            "timed_rows_sha256": joined_sha256(self._checked),
            "losses": [float(loss) for loss in self._losses],
            "per_step": {name: values for name, values in self._steps.items() if name != "adapt_s"},
            "process": asdict(counters),
        }

    def _reading(self, counters: ProcessCounters) -> dict[str, Any]:
        """Where rows came from; of a memory map only what the kernel read for this process is known."""
        if self._counts is None:
            return {
                "rows_from": None,
                "hit_rate": None,
                "reads": counters.major_faults,
                "bytes_read": counters.device_bytes_read,
                "bytes_useful": self._bytes,
                "node_types": None,
            }
        summed = total(self._counts.values())
        return {
            "rows_from": {
                "constant": summed.rows_constant,
                "cache": summed.rows_cache,
                "joined": summed.rows_joined,
                "storage": summed.rows_storage,
            },
            "hit_rate": summed.hit_rate,
            "reads": summed.reads,
            "bytes_read": summed.bytes_read,
            "bytes_useful": summed.bytes_useful,
            "node_types": {name: asdict(each) for name, each in self._counts.items()},
        }


def _some(rows: torch.Tensor) -> torch.Tensor:
    """Rows spread evenly over all of them, in host memory."""
    step = max(1, len(rows) // CHECKED_ROWS)
    return rows[::step][:CHECKED_ROWS].cpu()
