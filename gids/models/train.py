"""Training on mini-batches, whoever makes them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bam.errors import ConfigError
from gids.models.config import ModelConfig, Schedule, TrainConfig
from gids.models.metrics import Confusion, Score
from gids.models.network import BlockNetwork, FeatureClassifier, build_model
from gids.models.spec import DataSpec
from gids.sampling.tensor_batch import AnyBlock

logger = logging.getLogger(__name__)

WARM_UP_SHARE = 0.1


class Batch(Protocol):
    """What is needed of a mini-batch; `gids.loader.MiniBatch` has it, and any other loader's can."""

    @property
    def blocks(self) -> Sequence[AnyBlock]: ...

    @property
    def features(self) -> Mapping[str, Tensor]: ...

    @property
    def labels(self) -> Mapping[str, Tensor]: ...

    @property
    def scales(self) -> Mapping[str, Tensor]: ...


class Part(Enum):
    """A part of the labelled nodes."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


Batches = Callable[[Part, int], Iterable[Batch]]
"""(part, epoch) -> its mini-batches. The same arguments should give the same mini-batches."""


@dataclass(frozen=True)
class EpochResult:
    """One epoch.

    Attributes
    ----------
    validation : Score
    train_s, wait_s, evaluate_s : float
        Seconds of training in all, of that waiting for mini-batches, and of evaluation.
    """

    validation: Score
    train_s: float
    wait_s: float
    evaluate_s: float


@dataclass(frozen=True)
class TrainResult:
    """What came out of training.

    Attributes
    ----------
    losses : tuple of float
        Of every step.
    epochs : tuple of EpochResult
    best_epoch : int
        The first one with the highest validation score, by `TrainConfig.best_by`; the model has its weights.
    test : Score
        Of the best epoch.
    seconds : float
    """

    losses: tuple[float, ...]
    epochs: tuple[EpochResult, ...]
    best_epoch: int
    test: Score
    seconds: float


class Trainer:
    """A model, its optimizer and its learning rate; takes one mini-batch at a time.

    Parameters
    ----------
    model : BlockNetwork or FeatureClassifier
    config : TrainConfig
    total_steps : int, optional
        Needed by the cosine schedule.
    class_counts : sequence of int, optional
        Training nodes of each class; needed to balance classes.

    Raises
    ------
    ConfigError
        Classes are to be balanced, and their sizes are not known.
    """

    def __init__(
        self,
        model: BlockNetwork | FeatureClassifier,
        config: TrainConfig,
        total_steps: int = 0,
        class_counts: Sequence[int] = (),
    ) -> None:
        self.model, self.config = model, config
        self._class_weights = class_weights(class_counts, config.class_balance, model.spec.n_classes)
        self._total_steps, self._step = max(1, total_steps), 0
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self._average: dict[str, Tensor] | None = None
        if config.average:
            self._average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def step(self, batch: Batch) -> Tensor:
        """One step of gradient descent; the loss before it, detached."""
        self.model.train()
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.learning_rate * self._rate()
        logits = self.model(batch.blocks, batch.features, batch.scales)
        labels = batch.labels[self.model.spec.seed_type].to(logits.device, torch.int64)
        loss = nn.functional.cross_entropy(
            logits,
            labels,
            weight=None if self._class_weights is None else self._class_weights.to(logits.device),
            label_smoothing=self.config.label_smoothing,
        )
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._step += 1
        self._update_average()
        return loss.detach()

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimizer, step and average: with torch's generator all that the next step needs."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "average": self._average,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._average = state["step"], state["average"]

    def _rate(self) -> float:
        """Factor of the learning rate at this step."""
        if self.config.schedule is Schedule.CONSTANT:
            return 1.0
        share = min(1.0, (self._step + 1) / self._total_steps)
        if share < WARM_UP_SHARE:
            return share / WARM_UP_SHARE
        return 0.5 * (1 + math.cos(math.pi * (share - WARM_UP_SHARE) / (1 - WARM_UP_SHARE)))

    def _update_average(self) -> None:
        if self._average is None:
            return
        # Young averages forget faster, or the initial weights would stay in them for long.
        keep = min(self.config.average, (1 + self._step) / (10 + self._step))
        for name, value in self.model.state_dict().items():
            self._average[name].lerp_(value, 1 - keep)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model has the averaged weights while in this context, where there is an average."""
        if self._average is None:
            yield
            return
        own = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self._average)
        try:
            yield
        finally:
            self.model.load_state_dict(own)


def class_weights(counts: Sequence[int], balance: float, n_classes: int) -> Tensor | None:
    """What each class's losses are multiplied by, 1 for a class of mean size; None where that is 1 for all.

    Parameters
    ----------
    counts : sequence of int
        Training nodes of each class; one without any weighs as much as one with one.
    balance : float
        See :class:`gids.models.config.TrainConfig`.
    n_classes : int

    Raises
    ------
    ConfigError
    """
    if balance == 0:
        return None
    if len(counts) != n_classes:
        raise ConfigError("class_counts", f"{len(counts)} numbers", f"{n_classes}, to balance classes")
    sizes = torch.tensor(counts, dtype=torch.float32).clamp_min(1)
    return (sizes.mean() / sizes) ** balance


@torch.no_grad()
def evaluate(model: BlockNetwork | FeatureClassifier, batches: Iterable[Batch]) -> Score:
    """Predict the seeds of all mini-batches and compare with their labels."""
    model.eval()
    confusion = Confusion(model.spec.n_classes)
    for batch in batches:
        predictions = model(batch.blocks, batch.features, batch.scales).argmax(1)
        confusion.add(batch.labels[model.spec.seed_type], predictions)
    return confusion.score()


def train(
    spec: DataSpec,
    model: ModelConfig,
    config: TrainConfig,
    batches: Batches,
    *,
    steps_per_epoch: int = 0,
    class_counts: Sequence[int] = (),
    on_epoch: Callable[[int, EpochResult], None] | None = None,
) -> tuple[BlockNetwork | FeatureClassifier, TrainResult]:
    """Train a new model; stop at the last epoch or when patience ends; go back to the best epoch; test it.

    Weights and dropout depend on `config.seed` alone; torch's own generators are left as they were. On a CPU
    equal mini-batches give equal losses, bit for bit.

    Parameters
    ----------
    spec : DataSpec
    model : ModelConfig
    config : TrainConfig
    batches : callable
        See :data:`Batches`; asked for each epoch's training part, and for the other parts with epoch 0, so
        that every epoch is judged by the same mini-batches.
    steps_per_epoch : int
        Mini-batches of an epoch; needed by the cosine schedule.
    class_counts : sequence of int
        Training nodes of each class; needed to balance classes.
    on_epoch : callable, optional
        Told of each epoch when it is done.

    Raises
    ------
    ConfigError, PackageMissing
    """
    begin = time.perf_counter()
    network = build_model(spec, model, config.seed)
    trainer = Trainer(network, config, steps_per_epoch * config.epochs, class_counts)
    losses: list[float] = []
    epochs: list[EpochResult] = []
    best_state: dict[str, Any] = {}
    best_epoch = 0
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        for epoch in range(config.epochs):
            epoch_losses, result = _epoch(trainer, batches, epoch)
            losses += epoch_losses
            epochs.append(result)
            best = epochs[best_epoch].validation
            if epoch == 0 or result.validation.by(config.best_by) > best.by(config.best_by):
                best_epoch = epoch
                with trainer.averaged():
                    best_state = {name: value.clone() for name, value in network.state_dict().items()}
            logger.info("epoch %d: loss %.4f, %s", epoch, _mean(epoch_losses), result)
            if on_epoch is not None:
                on_epoch(epoch, result)
            if config.patience and epoch - best_epoch >= config.patience:
                break
    network.load_state_dict(best_state)
    test = evaluate(network, batches(Part.TEST, 0))
    return network, TrainResult(tuple(losses), tuple(epochs), best_epoch, test, time.perf_counter() - begin)


def _epoch(trainer: Trainer, batches: Batches, epoch: int) -> tuple[list[float], EpochResult]:
    begin = time.perf_counter()
    wait_s, losses = 0.0, []
    iterator = iter(batches(Part.TRAIN, epoch))
    while True:
        asked = time.perf_counter()
        batch = next(iterator, None)
        wait_s += time.perf_counter() - asked
        if batch is None:
            break
        losses.append(trainer.step(batch))
    values = [float(loss) for loss in losses]
    trained = time.perf_counter()
    with trainer.averaged():
        validation = evaluate(trainer.model, batches(Part.VALIDATION, 0))
    return values, EpochResult(validation, trained - begin, wait_s, time.perf_counter() - trained)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))
