"""What every loader in a comparison has in common."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bam.storage.monitored import MonitoredEngine
from gids.bench.device import TrainingDevice
from gids.bench.recorded import RecordedBatches
from gids.bench.sources import BatchPlan
from gids.config.sections import RunConfig
from gids.fetch.counts import FetchCounts
from gids.graph.dataset import Dataset, Features, Task
from gids.sampling.block import SampledBatch
from gids.sampling.tensor_batch import AnyBlock, TensorBatch


def read_only_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """A tensor over the memory of an array, which torch would warn of where it may not be written."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


@dataclass(frozen=True, eq=False)
class LoadedBatch:
    """A mini-batch as the training step takes it (:class:`gids.models.train.Batch`), and what it took.

    Attributes
    ----------
    sampled : SampledBatch or TensorBatch
    features, labels, scales : mapping of str to tensor
        As in :class:`gids.loader.minibatch.MiniBatch`.
    sample_s, feature_wait_s : float
        Seconds the caller waited for it: for its sampling, and for its features.
    adapt_s : float
        Seconds the caller spent on turning another library's blocks into ours; in none of the two.
    copy_s : float
        Seconds the caller waited for the copy of its features to the training device.
    counts : mapping of str to FetchCounts, optional
        Where its rows came from, by node type; None where the loader cannot know.
    """

    sampled: SampledBatch | TensorBatch
    features: Mapping[str, torch.Tensor]
    labels: Mapping[str, torch.Tensor]
    scales: Mapping[str, torch.Tensor]
    sample_s: float
    feature_wait_s: float
    adapt_s: float = 0.0
    copy_s: float = 0.0
    counts: Mapping[str, FetchCounts] | None = None

    @property
    def blocks(self) -> Sequence[AnyBlock]:
        """Blocks in the order of computation."""
        return self.sampled.blocks


@dataclass(frozen=True, eq=False)
class LoaderData:
    """What all loaders work on.

    Attributes
    ----------
    dataset : Dataset
        Graph, labels, and the features as the gids loader reads them.
    mapped_features : mapping of str to Features
        Features as the other loaders read them: from the folder the store was made of, where there is one.
    task : Task
    """

    dataset: Dataset
    mapped_features: Mapping[str, Features]
    task: Task

    def files(self) -> list[str]:
        """Paths of all feature files, the largest first."""
        both = (*self.dataset.features.values(), *self.mapped_features.values())
        sizes = {file.path: file.bytes for each in both for file in each.description.files}
        return sorted(sizes, key=lambda path: (-sizes[path], path))


@dataclass(frozen=True, eq=False)
class Work:
    """Mini-batches that are to be delivered.

    Attributes
    ----------
    plan : BatchPlan
    recorded : RecordedBatches, optional
        Deliver these and sample none.
    same_batches : bool
        Every loader delivers those that the sampler of `gids` makes; else DGL's loaders sample with DGL.
    """

    plan: BatchPlan
    recorded: RecordedBatches | None = None
    same_batches: bool = False


class Deliveries(ABC):
    """Mini-batches of one :class:`Work` through one loader.

    Attributes
    ----------
    resumes : bool
        Whether an epoch can begin at any mini-batch, and is then the same from there on.
    """

    resumes: bool = True

    @abstractmethod
    def __len__(self) -> int:
        """Mini-batches of an epoch."""

    @abstractmethod
    def epoch(self, epoch: int, first: int = 0) -> Iterator[LoadedBatch]:
        """Those of an epoch, from mini-batch `first` on."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What its mini-batches depend on, in plain JSON types."""

    @abstractmethod
    def close(self) -> None:
        """Stop what runs ahead; may be called again."""


class BenchLoader(ABC):
    """A way to get features, opened once in a process. A context manager.

    Parameters
    ----------
    data : LoaderData
    config : RunConfig

    Attributes
    ----------
    holds_features : bool
        Whether it keeps all features in memory, so that a memory limit below their size cannot apply.
    device : TrainingDevice
        Where it hands out features.
    monitors : list of MonitoredEngine
        Engines whose depth and latency are recorded, where there are any.
    """

    holds_features = False

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        self.data, self.config = data, config
        self.device = TrainingDevice.named(config.loader.device)
        self.monitors: list[MonitoredEngine] = []
        self._labels = read_only_tensor(np.asarray(data.task.labels))

    @abstractmethod
    def deliver(self, work: Work) -> Deliveries:
        """Get ready to deliver; nothing is read or sampled yet."""

    @abstractmethod
    def warm_up(self, work: Work) -> None:
        """Deliver small mini-batches, or sample them, so that nothing is compiled while the clock runs."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Which path really runs."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory; may be called again."""

    def labels_of(self, batch: SampledBatch) -> dict[str, torch.Tensor]:
        """Labels of the seeds."""
        name = self.data.task.node_type
        return {name: self._labels[torch.from_numpy(batch.output_nodes[name])]}

    def __enter__(self) -> BenchLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
