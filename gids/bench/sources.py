"""Where a loader's mini-batches come from: sampled by gids, sampled by DGL, or recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.bench.recorded import RecordedBatches
from gids.graph.graph import Graph
from gids.sampling.block import SampledBatch
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.sampler_kind import SamplerKind, make_sampler
from gids.sampling.seeds import SeedBatches


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Which mini-batches an epoch has.

    Attributes
    ----------
    seeds : mapping of str to int64 array
    fanouts : tuple of int
    batch_size : int
    shuffle : bool
    seed : int
        Of shuffling and sampling.
    sampler_threads : int
    kind : SamplerKind
    kappa : int
        As in :class:`gids.models.config.SamplingConfig`.
    """

    seeds: Mapping[str, npt.NDArray[np.int64]]
    fanouts: tuple[int, ...]
    batch_size: int
    shuffle: bool = True
    seed: int = 0
    sampler_threads: int = 1
    kind: SamplerKind = SamplerKind.NEIGHBOR
    kappa: int = 0

    def sampler(self) -> NeighborSampler:
        """The sampler of `gids` for these mini-batches."""
        return make_sampler(
            self.kind, list(self.fanouts), kappa=self.kappa, seed=self.seed, threads=self.sampler_threads
        )


class BatchSource(ABC):
    """Mini-batches without features, epoch by epoch.

    Attributes
    ----------
    adapt_s : float
        Seconds spent so far on turning another library's blocks into ours, which its users need not do.
    resumes : bool
        Whether an epoch can begin at any mini-batch.
    """

    adapt_s: float = 0.0
    resumes: bool = True

    @abstractmethod
    def __len__(self) -> int:
        """Mini-batches of an epoch."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the mini-batches depend on, in plain JSON types."""

    @abstractmethod
    def batches(self, epoch: int, first: int = 0) -> Iterator[SampledBatch]:
        """Those of an epoch, from mini-batch `first` on."""


class SampledSource(BatchSource):
    """Sampled by `gids` when asked for, in the caller's thread: those :class:`gids.DataLoader` delivers."""

    def __init__(self, graph: Graph, plan: BatchPlan) -> None:
        self._graph, self._plan, self._sampler = graph, plan, plan.sampler()
        self._seeds = SeedBatches(
            plan.seeds, graph.schema, batch_size=plan.batch_size, shuffle=plan.shuffle, seed=plan.seed
        )

    def __len__(self) -> int:
        return len(self._seeds)

    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"seeds": self._seeds.settings(), "fanouts": list(self._plan.fanouts)}
        if self._plan.kind is not SamplerKind.NEIGHBOR:
            settings |= {"sampler": self._plan.kind.value, "kappa": self._plan.kappa}
        return settings

    def batches(self, epoch: int, first: int = 0) -> Iterator[SampledBatch]:
        for number in range(first, len(self)):
            seeds = self._seeds.batch(epoch, number)
            yield self._sampler.sample(self._graph, seeds.nodes, epoch=epoch, batch=seeds.number)


class RecordedSource(BatchSource):
    """Recorded before; every epoch has the same ones."""

    def __init__(self, recorded: RecordedBatches) -> None:
        self._recorded = recorded

    def __len__(self) -> int:
        return len(self._recorded)

    def settings(self) -> dict[str, Any]:
        return {"recorded": len(self)}

    def batches(self, epoch: int, first: int = 0) -> Iterator[SampledBatch]:
        for number in range(first, len(self)):
            yield self._recorded[number]
