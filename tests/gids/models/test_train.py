"""The training loop: it learns, stops, goes back to the best epoch, and leaves torch's generator alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from small_graphs import HandMadeBatch, batch_of, random_graph, spec_of

from bam.errors import ConfigError
from gids.models.config import Measure, ModelConfig, ModelName, TrainConfig
from gids.models.network import build_model
from gids.models.train import EpochResult, Part, Trainer, TrainResult, class_weights, evaluate, train

MODEL = ModelConfig(name=ModelName.RGCN, hidden=16, dropout=0.0)
PARTS = {Part.TRAIN: np.arange(40), Part.VALIDATION: np.arange(40, 50), Part.TEST: np.arange(50, 60)}


def batches(part: Part, epoch: int) -> Iterable[HandMadeBatch]:
    graph = random_graph()
    order = np.random.default_rng(epoch).permutation(PARTS[part]) if part is Part.TRAIN else PARTS[part]
    for first in range(0, len(order), 10):
        yield batch_of(graph, order[first : first + 10], [5, 5], first + 100 * epoch)


def run(**settings: object) -> TrainResult:
    return train(spec_of(random_graph()), MODEL, TrainConfig(**settings), batches, steps_per_epoch=4)[1]


def test_learns_by_heart() -> None:
    """Labels are random here, so only the training part can become good."""
    model, result = train(spec_of(random_graph()), MODEL, TrainConfig(30, 1e-2), batches)
    assert len(result.losses) == 30 * 4
    assert np.mean(result.losses[-4:]) < 0.2 < 1 < np.mean(result.losses[:4])
    assert result.test.n == 10
    assert evaluate(model, batches(Part.TRAIN, 0)).n == 40


def test_the_best_epoch_is_kept() -> None:
    model, result = train(spec_of(random_graph()), MODEL, TrainConfig(6, 1e-2), batches)
    accuracies = [epoch.validation.accuracy for epoch in result.epochs]
    assert result.best_epoch == int(np.argmax(accuracies))
    assert evaluate(model, batches(Part.VALIDATION, 0)) == result.epochs[result.best_epoch].validation
    assert evaluate(model, batches(Part.TEST, 0)) == result.test


def test_the_best_epoch_by_macro_f1() -> None:
    """The same training, judged otherwise; here the two disagree, or the test would show nothing."""
    by_accuracy, by_macro_f1 = (
        run(epochs=6, learning_rate=1e-2, seed=3, best_by=measure)
        for measure in (Measure.ACCURACY, Measure.MACRO_F1)
    )
    assert by_accuracy.losses == by_macro_f1.losses
    assert by_macro_f1.best_epoch == int(np.argmax([each.validation.macro_f1 for each in by_macro_f1.epochs]))
    assert by_macro_f1.best_epoch != by_accuracy.best_epoch


def test_class_weights_undo_the_classes_sizes() -> None:
    counts = [89, 9, 1, 0]
    weights = class_weights(counts, 1.0, 4)
    assert weights is not None
    assert weights.tolist() == pytest.approx([25 / 89, 25 / 9, 25, 25])
    half = class_weights(counts, 0.5, 4)
    assert half is not None
    assert half.tolist() == pytest.approx([value**0.5 for value in weights.tolist()])
    assert class_weights(counts, 0.0, 4) is None


def test_balanced_classes_weigh_in_the_loss() -> None:
    """The loss of the first step is the weighted mean of those of its seeds."""
    n_classes = spec_of(random_graph()).n_classes
    counts = [2 ** (number + 1) for number in range(n_classes)]
    batch = next(iter(batches(Part.TRAIN, 0)))
    model = build_model(spec_of(random_graph()), MODEL)
    trainer = Trainer(model, TrainConfig(class_balance=0.5), class_counts=counts)
    labels = batch.labels[model.spec.seed_type].to(torch.int64)
    with torch.no_grad():
        logits = model.train()(batch.blocks, batch.features, batch.scales)
        each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    weights = torch.tensor([counts[label] ** -0.5 for label in labels.tolist()])
    expected = float((weights * each).sum() / weights.sum())
    assert float(trainer.step(batch)) == pytest.approx(expected, rel=1e-5)


def test_balance_needs_the_classes_sizes() -> None:
    with pytest.raises(ConfigError, match="class_counts"):
        run(epochs=1, class_balance=0.5)


def test_patience_ends_training() -> None:
    result = run(epochs=50, learning_rate=1e-9, patience=3)
    assert len(result.epochs) == result.best_epoch + 4


def test_same_seed_same_everything() -> None:
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    first = run(epochs=2, seed=3)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(12)
    second, other = run(epochs=2, seed=3), run(epochs=2, seed=4)
    assert first.losses == second.losses
    assert (first.test, first.best_epoch) == (second.test, second.best_epoch)
    assert first.losses != other.losses


def test_every_epoch_is_told_of() -> None:
    told: list[tuple[int, EpochResult]] = []
    _, result = train(
        spec_of(random_graph()), MODEL, TrainConfig(3), batches, on_epoch=lambda *each: told.append(each)
    )
    assert told == list(enumerate(result.epochs))


def test_averaged_weights_are_a_running_mean() -> None:
    trainer = Trainer(build_model(spec_of(random_graph()), MODEL), TrainConfig(average=0.5))
    name = "classify.weight"
    expected = trainer.model.state_dict()[name].clone()
    for step, batch in enumerate(batches(Part.TRAIN, 0), 1):
        trainer.step(batch)
        keep = min(0.5, (1 + step) / (10 + step))
        expected = keep * expected + (1 - keep) * trainer.model.state_dict()[name]
    own = trainer.model.state_dict()[name].clone()
    with trainer.averaged():
        torch.testing.assert_close(trainer.model.state_dict()[name], expected)
    assert torch.equal(trainer.model.state_dict()[name], own)
