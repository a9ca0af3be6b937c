"""`python -m gids.bench.child JOB RESULT`: one loader, in this process alone."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from bam.errors import BamError
from gids.bench.belady_gap import belady_gap
from gids.bench.data import open_data, train_plan_of
from gids.bench.device import TrainingDevice
from gids.bench.digest import batch_sha256, features_sha256, joined_sha256
from gids.bench.distinct import DistinctNodes
from gids.bench.job import Job, JobKind
from gids.bench.loaders import LOADERS, BenchLoader, Deliveries, LoadedBatch, LoaderData, Work
from gids.bench.loaders.gids_loader import GidsLoader
from gids.bench.measured import Measured, StepTimes
from gids.bench.observe import EngineRecorder, ProcessCounters, anonymous_bytes, peak_rss_bytes
from gids.bench.paper.bounds import measure_bounds
from gids.bench.recorded import RecordedBatches, open_recorded
from gids.bench.sources import BatchPlan, RecordedSource, SampledSource
from gids.bench.warm_up import small_plan, step_on_zeros
from gids.fetch.feature_store import FeatureStore
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer
from gids.sampling.tensor_batch import TensorBatch


def main(arguments: Sequence[str]) -> int:
    """Do the job and write its result: what was measured, or the error that stopped it."""
    job_file, result_file = map(Path, arguments)
    job = Job.read(job_file)
    if job.config.bench.threads:
        torch.set_num_threads(job.config.bench.threads)
    try:
        result = run(job)
    except BamError as error:
        result = {"failed": f"{type(error).__name__}: {error}"}
    partial = result_file.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.replace(result_file)
    return 0


def run(job: Job) -> dict[str, Any]:
    """The result of a job, as plain values."""
    data = open_data(job.config.data, Path(job.root), Path(job.work))
    plan = train_plan(job, data)
    recorded = open_recorded(job.recorded) if job.recorded else None
    if job.kind is JobKind.BELADY:
        return {"belady": _belady(job, data, plan, recorded)}
    if job.kind is JobKind.BOUNDS:
        return measure_bounds(job, data, plan, open_recorded(job.recorded))
    begin = time.perf_counter()
    with LOADERS[job.loader](data, job.config) as loader:
        deliveries = loader.deliver(Work(plan, recorded))
        try:
            result: dict[str, Any] = {}
            if job.kind is JobKind.TIME:
                loader.warm_up(Work(small_plan(plan), same_batches=recorded is not None))
                result["setup_s"] = time.perf_counter() - begin
                result |= _timed(job, data, loader, deliveries)
            return result | _verified(deliveries, job.verify_steps)
        finally:
            deliveries.close()


def _belady(job: Job, data: LoaderData, plan: BatchPlan, recorded: RecordedBatches | None) -> dict[str, Any]:
    graph = data.dataset.graph
    source = RecordedSource(recorded) if recorded is not None else SampledSource(graph, plan)
    batches = islice((batch for epoch in count() for batch in source.batches(epoch)), job.steps)
    warm_up = SampledSource(graph, small_plan(plan)).batches(0)
    # Only where rows lie counts, which is the same for a GPU's cache.
    on_host = replace(job.config, loader=replace(job.config.loader, device="cpu"))
    with closing(GidsLoader(data, on_host)) as loader:
        store = loader.store
        assert isinstance(store, FeatureStore)
        return belady_gap(store, warm_up, batches, job.cache_lines, job.misses)


def train_plan(job: Job, data: LoaderData) -> BatchPlan:
    """Mini-batches of the training part."""
    return train_plan_of(job.config, data)


def endless(deliveries: Deliveries) -> Iterator[LoadedBatch]:
    """Mini-batches of epoch 0, 1 ..."""
    epoch = 0
    while True:
        yield from deliveries.epoch(epoch)
        epoch += 1


def _verified(deliveries: Deliveries, steps: int) -> dict[str, Any]:
    """Fingerprints of what is delivered, step by step."""
    if steps == 0:
        return {}
    batches, features = [], []
    for batch in islice(endless(deliveries), steps):
        batches.append(batch_sha256(TensorBatch.of(batch.sampled).to_host()))
        features.append(features_sha256(batch.features))
    return {
        "verified_steps": len(batches),
        "batches_sha256": joined_sha256(batches),
        "features_sha256": joined_sha256(features),
        "step_batches_sha256": batches,
        "step_features_sha256": features,
    }


def _timed(job: Job, data: LoaderData, loader: BenchLoader, deliveries: Deliveries) -> dict[str, Any]:
    device = loader.device
    trainer = _trainer(job, data, device) if job.config.bench.train else None
    row_bytes = {name: each.row_bytes for name, each in data.mapped_features.items()}
    measured = Measured(row_bytes, DistinctNodes(data.dataset.graph.schema))
    limit_s = job.config.bench.max_seconds or float("inf")
    if job.config.bench.warm:
        for _ in islice(endless(deliveries), job.steps):
            pass
    before = ProcessCounters.now()
    with torch.random.fork_rng(devices=[]), EngineRecorder(loader.monitors) as recorder:
        torch.manual_seed(job.config.training.seed)
        iterator = endless(deliveries)
        begin = time.perf_counter()
        for _ in tqdm(range(job.steps), desc=job.loader, unit="step", disable=None, leave=False):
            asked = time.perf_counter()
            batch = next(iterator)
            handed_out = time.perf_counter()
            device.wait()  # for features that are on their way, so that no wait for them counts as compute
            delivered = time.perf_counter()
            with device.busy() as busy:
                loss = None if trainer is None else trainer.step(batch)
            done = time.perf_counter()
            times = StepTimes(delivered - asked, delivered - handed_out, done - delivered, busy.seconds)
            measured.add(batch, times, loss)
            del batch
            if done - begin > limit_s:
                break
        counters = ProcessCounters.now() - before
        anonymous = anonymous_bytes()
        del iterator
    return {
        **measured.result(counters),
        "asked_steps": job.steps,
        "device": device.name,
        "peak_rss_bytes": peak_rss_bytes(),
        "anonymous_bytes": anonymous,
        "storage": recorder.report(),
        "path": loader.describe(),
    }


def _trainer(job: Job, data: LoaderData, device: TrainingDevice) -> Trainer:
    """A new model."""
    config = job.config
    step_on_zeros(config, data, train_plan(job, data), device)
    spec = DataSpec.of_dataset(data.dataset, config.data.task)
    counts = data.task.class_counts(data.task.usual_split(config.data.split).train)
    model = build_model(spec, config.model, config.training.seed).to(device.device)
    return Trainer(model, config.training, job.steps, counts)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    # Memory maps and worker processes need no tidy end, and a limit may leave no room for one.
    os._exit(status)
