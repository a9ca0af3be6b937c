"""Settings that cannot work are named."""

from __future__ import annotations

import pytest

from bam.errors import ConfigError
from gids.models.config import ModelConfig, ModelName, SamplingConfig, TrainConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 10, "heads": 4}, "heads=4.*divisor of hidden=10"),
        ({"heads": 0}, "heads=0"),
        ({"layers": 0}, "layers=0"),
        ({"hidden": 0}, "hidden=0"),
        ({"dropout": 1.0}, r"dropout=1\.0"),
        ({"input_dropout": -0.1}, r"input_dropout=-0\.1"),
    ],
)
def test_models(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**settings)


def test_heads_matter_to_attention_only() -> None:
    assert ModelConfig(ModelName.RGCN, hidden=10).hidden == 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"learning_rate": 0}, "learning_rate=0"),
        ({"weight_decay": -1}, "weight_decay=-1"),
        ({"label_smoothing": 1}, "label_smoothing=1"),
        ({"average": 1}, "average=1"),
        ({"class_balance": 1.5}, r"class_balance=1\.5"),
        ({"patience": -1}, "patience=-1"),
    ],
)
def test_training(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fanouts": ()}, "fanouts.*layer"),
        ({"evaluation_fanouts": (3,)}, "evaluation_fanouts.*2 layers"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"evaluation_batch_size": 0}, "evaluation_batch_size=0"),
    ],
)
def test_sampling(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SamplingConfig(**settings)
