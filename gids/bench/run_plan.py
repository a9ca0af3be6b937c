"""`gids plan`: what a run will read and what will limit it, from a few sampled mini-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch

from bam.errors import ConfigError
from gids.bench.device import TrainingDevice
from gids.bench.loaders.base import LoadedBatch, LoaderData
from gids.bench.sources import BatchPlan, SampledSource
from gids.config.sections import RunConfig
from gids.fetch.constant_buffer import parse_share
from gids.fetch.memory import available_memory_bytes
from gids.fetch.read_plan import read_lengths
from gids.fetch.size_plan import Sizes, TierPages, expected_tiers, pages_of_rows, recommend_sizes
from gids.fetch.storage_model import StorageModel, storage_model
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer
from gids.sampling.block import SampledBatch

#: Mini-batches sampled to plan with.
PLAN_BATCHES = 16
#: Bytes per second to a GPU: PCIe 4.0 with 16 lanes, as measured on many machines.
PCIE_BYTES_PER_S = 25e9
_COMPUTE_STEPS = 2


@dataclass(frozen=True)
class StepBounds:
    """Seconds a step takes at least, by what could limit it; 0 where nothing has to be done.

    Attributes
    ----------
    disk_s, pcie_s, sampling_s, compute_s : float
    """

    disk_s: float
    pcie_s: float
    sampling_s: float
    compute_s: float

    @property
    def step_s(self) -> float:
        """All of them go on at the same time, so the longest is the bound."""
        return float(max(asdict(self).values()))

    @property
    def limited_by(self) -> str:
        """Which that is."""
        bounds = asdict(self)
        return max(bounds, key=bounds.__getitem__).removesuffix("_s")


@dataclass(frozen=True)
class RunPlan:
    """What to expect with given sizes.

    Attributes
    ----------
    sizes : Sizes
    batch_bytes : int
        Features of a mini-batch.
    pages, constant_hit_rate, cache_hit_rate : float
        Distinct pages of a mini-batch; shares of them in the two tiers.
    reads, read_bytes : float
        A step's reads, after merging, and their bytes.
    bounds : StepBounds
    """

    sizes: Sizes
    batch_bytes: int
    pages: float
    constant_hit_rate: float
    cache_hit_rate: float
    reads: float
    read_bytes: float
    bounds: StepBounds

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "step_s": self.bounds.step_s, "limited_by": self.bounds.limited_by}


@dataclass(frozen=True)
class SampledRun:
    """Mini-batches to plan with.

    Attributes
    ----------
    batches : list of SampledBatch
    pages : list of int64 array
        Distinct pages of each, over all stored features.
    batch_bytes, features_bytes : int
        Features of a mini-batch; of the data set, in whole pages.
    sampling_s, compute_s : float
        Of a step.
    """

    batches: list[SampledBatch]
    pages: list[np.ndarray[tuple[int], np.dtype[np.int64]]]
    batch_bytes: int
    features_bytes: int
    sampling_s: float
    compute_s: float


def sample_run(
    data: LoaderData, config: RunConfig, plan: BatchPlan, *, compute: bool, n_batches: int = PLAN_BATCHES
) -> SampledRun:
    """Sample mini-batches, and train on two of them with features of zeros where `compute` is to be timed."""
    source = SampledSource(data.dataset.graph, plan)
    if len(source) == 0:
        raise ConfigError("data", config.data.folder, "a training part with seeds")
    batches = list(islice(_from_epoch(source, 0), n_batches))  # of several epochs where one is short
    begin = time.perf_counter()
    for _ in islice(_from_epoch(source, len(batches)), len(batches)):
        pass
    sampling_s = (time.perf_counter() - begin) / len(batches)
    first_page, page_bytes = _first_pages(data, config.loader.page_bytes), config.loader.page_bytes
    pages = []
    n_bytes = 0
    for batch in batches:
        mine = [np.empty(0, np.int64)]
        for name, each in data.dataset.features.items():
            rows = each.rows_of(batch.nodes[name])
            n_bytes += len(rows) * each.row_bytes
            mine.append(pages_of_rows(rows, each.row_bytes, page_bytes, first_page[name]))
        pages.append(np.unique(np.concatenate(mine)))
    sizes = [each.n_rows * each.row_bytes for each in data.dataset.features.values()]
    total = sum(-(-each // page_bytes) * page_bytes for each in sizes)
    compute_s = _compute_s(data, config, batches) if compute else 0.0
    return SampledRun(batches, pages, n_bytes // len(batches), total, sampling_s, compute_s)


def make_plan(run: SampledRun, config: RunConfig, storage: StorageModel, sizes: Sizes) -> RunPlan:
    """What to expect of a loader with these sizes."""
    page_bytes = config.loader.page_bytes
    tiers = expected_tiers(run.pages, sizes.cpu_buffer_bytes // page_bytes, sizes.cache_bytes // page_bytes)
    lengths = [read_lengths(pages, storage.rules) for pages in tiers.missing]
    steps = max(1, len(lengths))
    reads, read_bytes = sum(map(len, lengths)) / steps, sum(int(each.sum()) for each in lengths) / steps
    if storage.cost is None:
        disk_s = reads / (storage.facts.iops * storage.facts.n_ssd)
    else:
        disk_s = sum(float(storage.cost.cost_us(each).sum()) for each in lengths) / steps / 1e6
    pcie_s = run.batch_bytes / PCIE_BYTES_PER_S if torch.cuda.is_available() else 0.0
    bounds = StepBounds(disk_s, pcie_s, run.sampling_s, run.compute_s)
    return _run_plan(run, sizes, tiers, reads, read_bytes, bounds)


def _run_plan(
    run: SampledRun, sizes: Sizes, tiers: TierPages, reads: float, read_bytes: float, bounds: StepBounds
) -> RunPlan:
    asked = tiers.requested or 1.0
    return RunPlan(
        sizes,
        run.batch_bytes,
        tiers.requested,
        tiers.constant / asked,
        tiers.cached / asked,
        reads,
        read_bytes,
        bounds,
    )


def configured_sizes(run: SampledRun, config: RunConfig, best: Sizes) -> Sizes:
    """Sizes of the configuration, the best ones where it says ``auto``: a cache of what the buffer leaves."""
    loader = config.loader
    cache, buffer, window = loader.cache, loader.cpu_buffer, loader.window
    buffer_bytes = (
        best.cpu_buffer_bytes if buffer == "auto" else parse_share(buffer, run.features_bytes, "cpu_buffer")
    )
    rest_bytes = max(loader.page_bytes, best.cache_bytes + best.cpu_buffer_bytes - buffer_bytes)
    return Sizes(
        rest_bytes if cache == "auto" else parse_share(cache, run.features_bytes, "cache"),
        buffer_bytes,
        window if isinstance(window, int) else best.window,
    )


def best_sizes(run: SampledRun, config: RunConfig, available_bytes: int | None = None) -> Sizes:
    """Recommended sizes for the memory that is available on this machine."""
    available = available_memory_bytes() if available_bytes is None else available_bytes
    loader = config.loader
    return recommend_sizes(
        available, run.features_bytes, run.batch_bytes, run.pages, loader.page_bytes, loader.prefetch
    )


def storage_of(data: LoaderData, config: RunConfig) -> StorageModel:
    """The model of the storage under the data set, as the loader would take it."""
    loader = config.loader
    return storage_model(
        data.dataset.path,
        loader.page_bytes,
        contiguous=loader.contiguous,
        ssd=loader.ssd,
        calibration=loader.calibration,
    )


def _first_pages(data: LoaderData, page_bytes: int) -> Mapping[str, int]:
    first, next_page = {}, 0
    for name, each in data.dataset.features.items():
        first[name] = next_page
        next_page += -(-each.n_rows * each.row_bytes // page_bytes)
    return first


def _from_epoch(source: SampledSource, first: int) -> Iterator[SampledBatch]:
    return (batch for epoch in count(first) for batch in source.batches(epoch))


def _compute_s(data: LoaderData, config: RunConfig, batches: list[SampledBatch]) -> float:
    spec = DataSpec.of_dataset(data.dataset, config.data.task)
    device = TrainingDevice.named(config.loader.device)
    model = build_model(spec, config.model, config.training.seed).to(device.device)
    counts = data.task.class_counts(data.task.usual_split(config.data.split).train)
    trainer = Trainer(model, config.training, _COMPUTE_STEPS + 1, counts)
    seconds = []
    for batch in batches[: _COMPUTE_STEPS + 1]:
        features = {
            name: torch.zeros(len(batch.nodes[name]), each.dim, device=device.device)
            for name, each in data.dataset.features.items()
        }
        seeds = len(batch.output_nodes[data.task.node_type])
        labels = {data.task.node_type: torch.zeros(seeds, dtype=torch.int64)}
        device.wait()
        begin = time.perf_counter()
        trainer.step(LoadedBatch(batch, features, labels, {}, 0.0, 0.0))
        device.wait()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)
