"""Settings of a model, of its mini-batches and of its training. Files with them are read by `gids.config`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bam.errors import ConfigError
from gids.sampling.sampler_kind import SamplerKind, check_kappa


class ModelName(Enum):
    """Which model.

    ``RGAT``: attention within each relation (PyG's GATConv). ``RGCN``: mean within each relation. ``SAGE``:
    the same with weights of each relation for the node itself. ``MLP``: the seeds' own features, no graph.
    """

    RGAT = "rgat"
    RGCN = "rgcn"
    SAGE = "sage"
    MLP = "mlp"


class Combine(Enum):
    """How what several relations say about a node becomes one vector."""

    SUM = "sum"
    MEAN = "mean"


class Schedule(Enum):
    """How the learning rate goes: it stays, or falls along a cosine after a rise over the first tenth."""

    CONSTANT = "constant"
    COSINE = "cosine"


class Measure(Enum):
    """What an epoch is judged by, on the validation nodes; see :class:`gids.models.metrics.Score`."""

    ACCURACY = "accuracy"
    MACRO_F1 = "macro_f1"


@dataclass(frozen=True)
class ModelConfig:
    """Size and kind of a model. The defaults are those of MLPerf's RGAT on IGBH.

    Attributes
    ----------
    name : ModelName
    layers : int
        Blocks of a mini-batch.
    hidden : int
        Elements of every vector between input and classifier; a multiple of `heads`.
    heads : int
        Attention heads (RGAT).
    dropout, input_dropout : float
        Share of elements dropped after each layer, and of the features.
    combine : Combine
    skip : bool
        Add a linear map of the node's own vector in every layer. Without it a node that no self loop serves
        forgets itself.
    norm : bool
        Layer normalization after every layer.
    """

    name: ModelName = ModelName.RGAT
    layers: int = 2
    hidden: int = 512
    heads: int = 4
    dropout: float = 0.2
    input_dropout: float = 0.0
    combine: Combine = Combine.SUM
    skip: bool = True
    norm: bool = False

    def __post_init__(self) -> None:
        _require("layers", self.layers, self.layers >= 1, "at least 1")
        _require("hidden", self.hidden, self.hidden >= 1, "at least 1")
        if self.name is ModelName.RGAT:
            divides = self.heads >= 1 and self.hidden % self.heads == 0
            _require("heads", self.heads, divides, f"a divisor of hidden={self.hidden}")
        for name in ("dropout", "input_dropout"):
            value = getattr(self, name)
            _require(name, value, 0 <= value < 1, "from 0 to below 1")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    Attributes
    ----------
    epochs : int
    learning_rate, weight_decay : float
        Of AdamW; without weight decay that is Adam.
    schedule : Schedule
    label_smoothing : float
    class_balance : float
        Power of a class's share of the training nodes that its losses are divided by: 0 and all nodes weigh
        the same, 1 and all classes do. Rare classes, and with them macro-F1, gain from something in between.
    best_by : Measure
        What the best epoch is chosen by.
    patience : int
        Epochs without a better one after which training stops; 0 for never.
    average : float
        Share of the past in a running average of the weights, which is evaluated in their place; 0 for none.
    seed : int
        Of initial weights and dropout.
    """

    epochs: int = 3
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Schedule = Schedule.CONSTANT
    label_smoothing: float = 0.0
    class_balance: float = 0.0
    best_by: Measure = Measure.ACCURACY
    patience: int = 0
    average: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require("epochs", self.epochs, self.epochs >= 1, "at least 1")
        _require("learning_rate", self.learning_rate, self.learning_rate > 0, "above 0")
        _require("weight_decay", self.weight_decay, self.weight_decay >= 0, "0 or more")
        _require("class_balance", self.class_balance, 0 <= self.class_balance <= 1, "from 0 to 1")
        _require("patience", self.patience, self.patience >= 0, "0 or more")
        for name in ("label_smoothing", "average"):
            value = getattr(self, name)
            _require(name, value, 0 <= value < 1, "from 0 to below 1")


@dataclass(frozen=True)
class SamplingConfig:
    """Mini-batches.

    Attributes
    ----------
    fanouts : tuple of int
        Neighbours per node and edge type, first layer first, so the last number is that of the seeds; -1
        for all.
    evaluation_fanouts : tuple of int
        The same for validation and test; empty: as `fanouts`.
    batch_size, evaluation_batch_size : int
        Seeds of a mini-batch.
    sampler : SamplerKind
        Of the training; validation and test always sample independently.
    kappa : int
        Of samplers that share random numbers: mini-batches for which one holds; 0: as the sampler has it.
    """

    fanouts: tuple[int, ...] = (10, 10)
    evaluation_fanouts: tuple[int, ...] = ()
    batch_size: int = 512
    evaluation_batch_size: int = 1024
    sampler: SamplerKind = SamplerKind.NEIGHBOR
    kappa: int = 0

    def __post_init__(self) -> None:
        _require("fanouts", self.fanouts, len(self.fanouts) >= 1, "at least one layer")
        same = len(self.evaluation_fanouts) in (0, len(self.fanouts))
        _require("evaluation_fanouts", self.evaluation_fanouts, same, f"{len(self.fanouts)} layers")
        for name in ("batch_size", "evaluation_batch_size"):
            value = getattr(self, name)
            _require(name, value, value >= 1, "at least 1")
        check_kappa(self.sampler, self.kappa)


def _require(setting: str, value: object, holds: bool, expected: str) -> None:
    if not holds:
        raise ConfigError(setting, value, expected)
