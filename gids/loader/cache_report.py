"""What came from where and by which path, of all that a loader handed out: as data, and for TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from gids.fetch.accumulator import AccumulatorReport
from gids.fetch.counts import FetchCounts, total
from gids.loader.metrics import LoaderMetrics


class ScalarWriter(Protocol):
    """As much of TensorBoard's ``SummaryWriter`` as is needed here; any object with this method will do."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Append one point to the curve `tag`."""


@dataclass(frozen=True)
class Depth:
    """Reads that were submitted together, against those that the device needs.

    Attributes
    ----------
    needed : float
        For the wanted share of its peak.
    source : str
        Where that is from: ``calibration``, ``settings`` or ``default``.
    groups : int
        Groups of mini-batches that were read together.
    reads : tuple of int
        Of the last groups, in order: depth over time.
    """

    needed: float
    source: str
    groups: int
    reads: tuple[int, ...]

    @classmethod
    def of(cls, report: AccumulatorReport) -> Depth:
        return cls(report.reads_needed, report.source, report.groups, tuple(n for _, n in report.history))

    @property
    def reached_share(self) -> float:
        """Share of the last groups that had at least as many reads as needed; 0 without groups."""
        return sum(n >= self.needed for n in self.reads) / len(self.reads) if self.reads else 0.0


@dataclass(frozen=True)
class CacheReport:
    """The cache-metrics report.

    Attributes
    ----------
    dataset : str
    batches : int
    counts : mapping of str to FetchCounts
        By node type.
    paths : mapping of str to mapping
        Which path really ran, by node type.
    hidden_share : float
        Share of the sampling and reading time that training did not wait for.
    wait_s : float
    depth : Depth, optional
    optimal_pages : int, optional
        Pages that Belady's optimum reads with as many lines, where somebody worked that out.
    """

    dataset: str
    batches: int
    counts: Mapping[str, FetchCounts]
    paths: Mapping[str, Mapping[str, Any]]
    hidden_share: float
    wait_s: float
    depth: Depth | None = None
    optimal_pages: int | None = None

    @classmethod
    def of(cls, metrics: LoaderMetrics, dataset: str = "", optimal_pages: int | None = None) -> CacheReport:
        """Of a snapshot of :meth:`gids.DataLoader.metrics`."""
        return cls(
            dataset,
            metrics.batches,
            dict(metrics.counts),
            dict(metrics.paths),
            metrics.hidden_share,
            metrics.wait_s,
            None if metrics.accumulator is None else Depth.of(metrics.accumulator),
            optimal_pages,
        )

    @property
    def total(self) -> FetchCounts:
        """Sum over node types."""
        return total(self.counts.values())

    @property
    def hit_rate(self) -> float:
        """1 - storage / requested rows, as in published tables."""
        return self.total.hit_rate

    @property
    def miss_rate(self) -> float:
        """The rest; 0 as long as nothing was requested."""
        return 1 - self.hit_rate if self.total.rows_requested else 0.0

    @property
    def page_hit_rate(self) -> float:
        """1 - pages read / pages looked up; 0 without look-ups."""
        counts = self.total
        return 1 - counts.pages_read / counts.pages_requested if counts.pages_requested else 0.0

    @property
    def belady_ratio(self) -> float | None:
        """Pages read over those of Belady's optimum; None where that is not known, or 0."""
        return self.total.pages_read / self.optimal_pages if self.optimal_pages else None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types: what is counted, and the rates that follow from it."""
        return {
            "dataset": self.dataset,
            "batches": self.batches,
            "hit_rate": self.hit_rate,
            "miss_rate": self.miss_rate,
            "page_hit_rate": self.page_hit_rate,
            "read_amplification": self.total.read_amplification,
            "belady_ratio": self.belady_ratio,
            "optimal_pages": self.optimal_pages,
            "hidden_share": self.hidden_share,
            "wait_s": self.wait_s,
            "total": asdict(self.total),
            "by_type": {
                name: {**asdict(each), "hit_rate": each.hit_rate} for name, each in self.counts.items()
            },
            "depth": None
            if self.depth is None
            else {**asdict(self.depth), "reached_share": self.depth.reached_share},
            "paths": {name: dict(path) for name, path in self.paths.items()},
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.as_dict(), indent=1, default=str)

    def write_scalars(self, writer: ScalarWriter, step: int, prefix: str = "gids") -> None:
        """One point of each curve, for a ``torch.utils.tensorboard.SummaryWriter`` or the like."""
        counts = self.total
        points = {
            "hit_rate": self.hit_rate,
            "page_hit_rate": self.page_hit_rate,
            "read_amplification": counts.read_amplification,
            "hidden_share": self.hidden_share,
            "reads": counts.reads,
            "bytes_read": counts.bytes_read,
            "rows/constant": counts.rows_constant,
            "rows/cache": counts.rows_cache,
            "rows/joined": counts.rows_joined,
            "rows/storage": counts.rows_storage,
            **{f"hit_rate/{name}": each.hit_rate for name, each in self.counts.items()},
        }
        if self.depth is not None and self.depth.reads:
            points |= {"depth": self.depth.reads[-1], "depth_needed": self.depth.needed}
        if self.belady_ratio is not None:
            points["belady_ratio"] = self.belady_ratio
        for tag, value in points.items():
            writer.add_scalar(f"{prefix}/{tag}", float(value), step)
