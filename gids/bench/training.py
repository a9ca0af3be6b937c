"""`gids train`: a model trained through any loader, in a run that can be killed at any moment and goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from bam.bench.machine import command, commit, describe_machine
from gids.bench.checkpoint import RunFolder, RunState, fingerprint
from gids.bench.data import open_data
from gids.bench.device import TrainingDevice
from gids.bench.loaders import LOADERS, BenchLoader, Deliveries, LoadedBatch, LoaderData, Work
from gids.bench.observe import peak_rss_bytes
from gids.bench.sources import BatchPlan
from gids.bench.warm_up import step_on_zeros
from gids.config.read import as_table
from gids.config.sections import RunConfig
from gids.errors import DatasetError, NonFiniteLoss
from gids.fetch.counts import FetchCounts, total
from gids.models.config import Schedule
from gids.models.metrics import Score
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Part, Trainer, evaluate
from gids.sampling.sampler_kind import SamplerKind

SCHEMA = 1
MAX_LOSSES = 2000

Report = Callable[[str], object]


def run_training(
    config: RunConfig,
    root: Path,
    out: Path,
    *,
    loader: str = "gids",
    same_batches: bool = False,
    checkpoint_seconds: float = 60.0,
    report: Report = lambda line: None,
) -> dict[str, Any]:
    """Train, or go on with the run in `out`; test the weights of the best epoch.

    Parameters
    ----------
    config : RunConfig
    root : Path
        Folder that all data sets are below.
    out : Path
        Folder of the run.
    loader : str
        See :data:`gids.bench.loaders.LOADERS`.
    same_batches : bool
        DGL's loaders deliver the mini-batches that the sampler of `gids` makes.
    checkpoint_seconds : float
        At most so much work is done again after a kill; 0: none.
    report : callable
        Told of each epoch in one line.

    Returns
    -------
    dict
        The content of the result file, see `docs/results.md`.

    Raises
    ------
    ConfigError, DatasetError, UnfinishedWorkError
        Before any work.
    NonFiniteLoss
        At the next checkpoint or end of an epoch, which is then not written.
    """
    data = open_data(config.data, root, out / "features")
    with LOADERS[loader](data, config) as opened:
        parts = {
            part: opened.deliver(Work(_plan(config, data, part), same_batches=same_batches)) for part in Part
        }
        try:
            run = _Run(config, data, parts, RunFolder(out), opened, loader, checkpoint_seconds, report)
            with _deterministic(opened.device):
                result = run.run()
        finally:
            for deliveries in parts.values():
                deliveries.close()
        path = opened.describe()
    largest = Path(data.files()[0])
    return {
        "schema": SCHEMA,
        "name": "train",
        "commit": commit(),
        "command": command(),
        "machine": {**describe_machine(largest), "threads": torch.get_num_threads()},
        "config": as_table(config),
        "loader": loader,
        "same_batches": same_batches or loader in ("gids", "in-memory"),
        "path": path,
        **result,
        "peak_rss_bytes": peak_rss_bytes(),
    }


@contextmanager
def _deterministic(device: TrainingDevice) -> Iterator[None]:
    """Sums on a GPU in one order, so that equal mini-batches give equal losses there, too.

    Operations that have no such order are warned of. cuBLAS also wants CUBLAS_WORKSPACE_CONFIG, before it
    starts.
    """
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    if device.is_gpu:
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def _plan(config: RunConfig, data: LoaderData, part: Part) -> BatchPlan:
    split, sampling, task = data.task.usual_split(config.data.split), config.sampling, data.task
    ids = {Part.TRAIN: split.train, Part.VALIDATION: split.validation, Part.TEST: split.test}[part]
    if (task.labels[ids] < 0).any():
        raise DatasetError(str(data.dataset.path), f"labels of all {part.value} nodes", "nodes without one")
    plan = BatchPlan(
        {task.node_type: ids},
        sampling.fanouts,
        sampling.batch_size,
        seed=config.training.seed,
        sampler_threads=config.loader.sampler_threads,
        kind=config.sampling.sampler,
        kappa=config.sampling.kappa,
    )
    if part is Part.TRAIN:
        return plan
    fanouts = sampling.evaluation_fanouts or sampling.fanouts
    plan = replace(plan, kind=SamplerKind.NEIGHBOR, kappa=0)
    return replace(plan, fanouts=fanouts, batch_size=sampling.evaluation_batch_size, shuffle=False)


class _Run:
    def __init__(
        self,
        config: RunConfig,
        data: LoaderData,
        parts: dict[Part, Deliveries],
        folder: RunFolder,
        opened: BenchLoader,
        loader: str,
        checkpoint_seconds: float,
        report: Report,
    ) -> None:
        self._config, self._data, self._parts = config, data, parts
        self._folder, self._report = folder, report
        self._checkpoint_seconds, self._saved_at = checkpoint_seconds, time.perf_counter()
        self._loader, self._device = loader, opened.device
        spec = DataSpec.of_dataset(data.dataset, config.data.task)
        self._model = build_model(spec, config.model, config.training.seed).to(self._device.device)
        self._trainer = Trainer(
            self._model,
            config.training,
            len(parts[Part.TRAIN]) * config.training.epochs,
            data.task.class_counts(data.task.usual_split(config.data.split).train),
        )
        self._state = folder.load(_fingerprint(config, parts))
        self._new_losses: list[torch.Tensor] = []
        self._counts: FetchCounts | None = FetchCounts()

    def run(self) -> dict[str, Any]:
        state, epochs = self._state, self._config.training.epochs
        begin = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            if self._device.is_gpu:
                plan = _plan(self._config, self._data, Part.TRAIN)
                step_on_zeros(self._config, self._data, plan, self._device)
            torch.manual_seed(self._config.training.seed)
            if state.generator is not None:
                self._trainer.load_state_dict(state.trainer)
                torch.set_rng_state(state.generator)
            if state.device_generator is not None and self._device.is_gpu:
                torch.cuda.set_rng_state(state.device_generator, self._device.device)
            while state.epoch < epochs and not self._patience_ended():
                self._train_epoch()
                self._end_epoch()
        self._model.load_state_dict(state.best_model)
        test = _evaluate(self._model, self._parts[Part.TEST])
        self._folder.save_model(state.best_model)
        return self._result(test, time.perf_counter() - begin)

    def _patience_ended(self) -> bool:
        patience = self._config.training.patience
        return bool(patience) and len(self._state.epochs) - 1 - self._state.best_epoch >= patience

    def _train_epoch(self) -> None:
        state, deliveries = self._state, self._parts[Part.TRAIN]
        bar = tqdm(
            desc=f"{self._loader} epoch {state.epoch}",
            total=len(deliveries),
            initial=state.batch,
            unit="step",
            disable=None,
            leave=False,
        )
        with bar:
            for batch in deliveries.epoch(state.epoch, state.batch):
                self._device.wait()  # for features on their way, which are no compute
                begin = time.perf_counter()
                self._new_losses.append(self._trainer.step(batch))
                self._device.wait()
                self._count(batch, time.perf_counter() - begin)
                del batch
                state.batch += 1
                bar.update(1)
                # Not where the loader could not go on: DGL's own sampler restarts its epoch.
                if deliveries.resumes and self._is_due():
                    self._save()

    def _count(self, batch: LoadedBatch, compute_s: float) -> None:
        seconds = {
            "sample_s": batch.sample_s,
            "feature_wait_s": batch.feature_wait_s,
            "compute_s": compute_s,
        }
        for name, value in seconds.items():
            self._state.times[name] = self._state.times.get(name, 0.0) + value
        if batch.counts is None or self._counts is None:
            self._counts = None
        else:
            self._counts += total(batch.counts.values())

    def _is_due(self) -> bool:
        return time.perf_counter() - self._saved_at >= self._checkpoint_seconds

    def _save(self) -> None:
        state = self._state
        losses = [float(loss) for loss in self._new_losses]
        for step, loss in enumerate(losses, state.n_losses):
            if not math.isfinite(loss):
                raise NonFiniteLoss(step, loss)
        state.n_losses += len(losses)
        state.trainer, state.generator = self._trainer.state_dict(), torch.get_rng_state()
        if self._device.is_gpu:
            state.device_generator = torch.cuda.get_rng_state(self._device.device)
        self._folder.save(state, losses)
        self._new_losses.clear()
        self._saved_at = time.perf_counter()

    def _end_epoch(self) -> None:
        state = self._state
        begin = time.perf_counter()
        with self._trainer.averaged():
            score = _evaluate(self._model, self._parts[Part.VALIDATION])
            measure = self._config.training.best_by
            best = state.epochs[state.best_epoch][f"validation_{measure.value}"] if state.epochs else -1.0
            if score.by(measure) > best:
                state.best_epoch = state.epoch
                state.best_model = {name: each.clone() for name, each in self._model.state_dict().items()}
        state.epochs.append(
            {
                "epoch": state.epoch,
                "steps": state.batch,
                "validation_accuracy": score.accuracy,
                "validation_macro_f1": score.macro_f1,
                **state.times,
                "evaluate_s": time.perf_counter() - begin,
            }
        )
        state.epoch, state.batch, state.times = state.epoch + 1, 0, {}
        self._save()
        self._report(_one_line(state))

    def _result(self, test: Score, seconds: float) -> dict[str, Any]:
        state, losses = self._state, self._folder.losses()
        step = max(1, -(-len(losses) // MAX_LOSSES))
        counts = self._counts
        return {
            "steps": len(losses),
            "epochs": state.epochs,
            "best_epoch": state.best_epoch,
            "test_accuracy": test.accuracy,
            "test_macro_f1": test.macro_f1,
            "losses": {"every": step, "values": losses[::step].tolist()},
            "losses_sha256": fingerprint({"losses": losses.tolist()}),
            "rows_requested": None if counts is None else counts.rows_requested,
            "hit_rate": None if counts is None else counts.hit_rate,
            "resumed": state.resumed,
            "seconds": seconds,
        }


def _fingerprint(config: RunConfig, parts: Mapping[Part, Deliveries]) -> str:
    """Of what a step depends on; so a finished run can go on for more epochs."""
    table = as_table(config)
    depends = {key: dict(table[key]) for key in ("data", "model", "sampling", "training")}
    if config.training.schedule is Schedule.CONSTANT:
        del depends["training"]["epochs"], depends["training"]["patience"]
    batches = {part.value: deliveries.settings() for part, deliveries in parts.items()}
    return fingerprint({**depends, "batches": batches})


def _evaluate(model: Any, deliveries: Deliveries) -> Score:
    def batches() -> Iterator[LoadedBatch]:
        yield from tqdm(
            deliveries.epoch(0),
            desc="evaluate",
            total=len(deliveries),
            unit="step",
            disable=None,
            leave=False,
        )

    return evaluate(model, batches())


def _one_line(state: RunState) -> str:
    last = state.epochs[-1]
    seconds = sum(last.get(name, 0.0) for name in ("sample_s", "feature_wait_s", "compute_s"))
    return (
        f"epoch {last['epoch']}: validation accuracy {last['validation_accuracy']:.4f}, "
        f"macro-F1 {last['validation_macro_f1']:.4f}, {last['steps']} steps in {seconds:.1f} s"
    )
