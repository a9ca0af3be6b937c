"""What bounds a step: what it needs of processor and GPU alone, and what has to be read in a regime."""

from __future__ import annotations

import time
from collections.abc import Iterable
from statistics import mean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.bench.belady_gap import missing_accesses, page_trace
from gids.bench.device import TrainingDevice
from gids.bench.job import Job
from gids.bench.loaders.base import LoadedBatch, LoaderData
from gids.bench.recorded import RecordedBatches
from gids.bench.run_plan import storage_of
from gids.bench.sources import BatchPlan, SampledSource
from gids.config.sections import RunConfig
from gids.fetch.accumulator import GroupMember, accumulate_bytes
from gids.fetch.constant_buffer import parse_share
from gids.fetch.cuda.grouping import Grouping
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.fetch.read_plan import read_lengths
from gids.fetch.storage_model import StorageModel
from gids.loader.open_path import gpu_accumulate_bytes
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer
from gids.sampling.block import SampledBatch
from gids.sampling.tensor_batch import TensorBatch

#: Mini-batches that are computed and sampled to time that alone, after the first, which only warms up.
TIMED_BATCHES = 12
_COPY_BYTES = 256 * 2**20

Pages = npt.NDArray[np.int64]


def measure_bounds(job: Job, data: LoaderData, plan: BatchPlan, recorded: RecordedBatches) -> dict[str, Any]:
    """Seconds of what a step needs beside reading, each thing alone; the same in all regimes.

    Parameters
    ----------
    job : Job
    data, plan, recorded
        Mini-batches of the comparison.
    """
    config = job.config
    first = [recorded[number] for number in range(min(TIMED_BATCHES, len(recorded)))]
    device = TrainingDevice.named(config.loader.device)
    return {
        "compute_s": _compute_s(data, config, first, device),
        "deliver_s": _deliver_s(recorded),
        "sampler_s": _sampler_s(data, plan),
        "host_to_device_bytes_per_s": _copy_rate(device),
        "accumulate_bytes": _accumulate_bytes(config, device),
    }


def _accumulate_bytes(config: RunConfig, device: TrainingDevice) -> int:
    """Features that `gids` reads together at most, where it reads."""
    if not device.is_gpu:
        return accumulate_bytes(config.loader.accumulate)
    free_bytes, _ = torch.cuda.mem_get_info(device.device)
    return gpu_accumulate_bytes(config.loader.accumulate, free_bytes)


def _compute_s(
    data: LoaderData, config: RunConfig, batches: list[SampledBatch], device: TrainingDevice
) -> float:
    """Of a training step whose features are there, the median."""
    spec = DataSpec.of_dataset(data.dataset, config.data.task)
    model = build_model(spec, config.model, config.training.seed).to(device.device)
    counts = data.task.class_counts(data.task.usual_split(config.data.split).train)
    trainer = Trainer(model, config.training, len(batches), counts)
    name = data.task.node_type
    seconds = []
    for batch in batches:
        features = {
            each: torch.zeros(len(batch.nodes[each]), described.dim, device=device.device)
            for each, described in data.dataset.features.items()
        }
        labels = {name: torch.zeros(len(batch.output_nodes[name]), dtype=torch.int64)}
        # Blocks lie where every loader hands them out.
        moved = TensorBatch.of(batch).to(device.device).as_loaded() if device.is_gpu else batch
        device.wait()
        with device.busy() as busy:
            trainer.step(LoadedBatch(moved, features, labels, {}, 0.0, 0.0))
        seconds.append(busy.seconds)
    return median(seconds[1:] or seconds)


def _deliver_s(recorded: RecordedBatches) -> float:
    """Of reading a recorded mini-batch, which stands for sampling in every loader, the mean."""
    begin = time.perf_counter()
    for number in range(len(recorded)):
        recorded[number]
    return (time.perf_counter() - begin) / len(recorded)


def _sampler_s(data: LoaderData, plan: BatchPlan) -> float:
    """Of sampling a mini-batch, the mean; not part of the comparison."""
    batches = SampledSource(data.dataset.graph, plan).batches(0)
    seconds = []
    for _ in range(TIMED_BATCHES):
        begin = time.perf_counter()
        if next(batches, None) is None:
            break
        seconds.append(time.perf_counter() - begin)
    return mean(seconds[1:] or seconds)


def _copy_rate(device: TrainingDevice) -> float | None:
    """Bytes a second from pinned memory to the GPU; None without one."""
    if not device.is_gpu:
        return None
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device.device)
    best = float("inf")
    for _ in range(5):
        with device.busy() as busy:
            target.copy_(source, non_blocking=True)
        best = min(best, busy.seconds)
    return _COPY_BYTES / best


def reading_bounds(
    data: LoaderData, config: RunConfig, recorded: RecordedBatches, together_bytes: int = 0
) -> dict[str, Any]:
    """Pages that have to be read in a regime, and what the cost model expects them to take.

    Parameters
    ----------
    data : LoaderData
    config : RunConfig
        Of loader `gids` in the regime.
    recorded : RecordedBatches
    together_bytes : int
        Features that are read together at most, by the cost model; the optimum reads each mini-batch alone.
    """
    loader, features = config.loader, data.dataset.features
    features_bytes = sum(each.n_rows * each.row_bytes for each in features.values())
    page_bytes = loader.page_bytes
    cache_bytes = parse_share(loader.cache, features_bytes, "cache")
    lines = max(1, cache_bytes // page_bytes)
    all_pages = _pages_of_batches(data, page_bytes, 0, recorded)
    pages = _pages_of_batches(data, page_bytes, loader.cpu_buffer, recorded)
    missing = _missing(pages, lines, config.bench.warm)
    n_missing = sum(map(len, missing))
    steps = len(pages)
    row_bytes = {name: each.row_bytes for name, each in features.items()}
    rows = [_rows_of(recorded[number], row_bytes) for number in range(steps)]
    storage = storage_of(data, config)
    sizes = [sum(each[name] * row_bytes[name] for name in each) for each in rows]
    groups = _groups(pages, sizes, Grouping(storage, together_bytes, features_bytes // page_bytes))
    reads = [read_lengths(each, storage.rules) for each in _missing(groups, lines, config.bench.warm)]
    return {
        "steps": steps,
        "lines": lines,
        "features_bytes": features_bytes,
        "rows": mean(sum(each.values()) for each in rows),
        "batch_bytes": mean(sizes),
        "pages": sum(map(len, all_pages)) / steps,
        "pages_not_constant": sum(map(len, pages)) / steps,
        "cache_alone_hits": 1 - float(missing_accesses(np.concatenate(all_pages), lines).mean()),
        "optimal_pages": n_missing / steps,
        # What a GPU has not got in its cache: constant rows, which it reads in host memory, and what is read.
        "copied_bytes": page_bytes * (sum(map(len, all_pages)) - sum(map(len, pages)) + n_missing) / steps,
        "distinct_pages": len(np.unique(np.concatenate(pages))),
        "edges": mean(recorded[number].num_edges for number in range(steps)),
        "model": {
            "reads": sum(map(len, reads)) / steps,
            "read_bytes": sum(int(each.sum()) for each in reads) / steps,
            "disk_s": sum(_disk_s(storage, each) for each in reads) / steps,
            "storage": storage.source,
            "batches_together": steps / len(groups),
        },
    }


def _missing(pages: list[Pages], lines: int, warm: bool) -> list[Pages]:
    """Those of each list that Belady's optimum reads; `warm`: after it has read all lists once."""
    passes = [*pages, *pages] if warm else pages
    missed = missing_accesses(np.concatenate(passes), lines)[sum(map(len, pages)) if warm else 0 :]
    ends = np.cumsum([len(each) for each in pages])[:-1]
    return [part[is_missed] for part, is_missed in zip(pages, np.split(missed, ends), strict=True)]


def _groups(pages: list[Pages], sizes: list[int], grouping: Grouping) -> list[Pages]:
    """Distinct pages of mini-batches that are read together."""
    members = [
        GroupMember({"": grouping.sampled(each)}, size) for each, size in zip(pages, sizes, strict=True)
    ]
    found, first = [], 0
    while first < len(pages):
        n_batches = grouping.extend(members[first:]).n_batches
        grouping.begun()
        found.append(np.unique(np.concatenate(pages[first : first + n_batches])))
        first += n_batches
    return found


def _pages_of_batches(
    data: LoaderData, page_bytes: int, cpu_buffer: int | float | str, recorded: RecordedBatches
) -> list[Pages]:
    """Pages of each mini-batch, without those of rows in a constant buffer of this size."""
    settings = FeatureSettings(cache=page_bytes, cpu_buffer=cpu_buffer, page_bytes=page_bytes)
    store: FeatureStore = open_features(data.dataset, settings)
    try:
        store.wait_until_loaded()
        return [page_trace(store, [recorded[number]]) for number in range(len(recorded))]
    finally:
        store.close()


def _disk_s(storage: StorageModel, lengths: npt.NDArray[np.int64]) -> float:
    if storage.cost is None:
        return len(lengths) / (storage.facts.iops * storage.facts.n_ssd)
    return float(storage.cost.cost_us(lengths).sum()) / 1e6


def _rows_of(batch: SampledBatch, names: Iterable[str]) -> dict[str, int]:
    """Rows that a mini-batch asks for, by node type."""
    return {name: len(batch.nodes[name]) for name in names}
