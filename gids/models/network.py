"""RGAT, R-GCN and GraphSAGE over blocks, and a classifier of features alone, built from settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from bam.errors import ConfigError
from gids.models.config import ModelConfig, ModelName
from gids.models.convolutions import AttentionConvolution, MeanConvolution, gat_conv
from gids.models.layers import InputProjection, MakeConvolution, RelationLayer
from gids.models.spec import DataSpec
from gids.sampling.tensor_batch import AnyBlock


class BlockNetwork(nn.Module):
    """Classifies the seeds of mini-batches.

    Parameters
    ----------
    spec : DataSpec
    config : ModelConfig

    Raises
    ------
    PackageMissing
        RGAT without torch_geometric.
    """

    def __init__(self, spec: DataSpec, config: ModelConfig) -> None:
        super().__init__()
        self.spec, self.config = spec, config
        hidden = config.hidden
        self.project = InputProjection(spec.node_types, spec.feature_dims, hidden, config.input_dropout)
        make = _convolution_of(config)
        self.layers = nn.ModuleList(
            RelationLayer(spec.node_types, spec.edge_types, hidden, hidden, make, config.combine, config.skip)
            for _ in range(config.layers)
        )
        n_norms = config.layers if config.norm else 0
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(n_norms))
        self.dropout = nn.Dropout(config.dropout)
        self.classify = nn.Linear(hidden, spec.n_classes)

    def forward(
        self,
        blocks: Sequence[AnyBlock],
        features: Mapping[str, Tensor],
        scales: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits of the seeds.

        Parameters
        ----------
        blocks : sequence of Block
            First layer first; as many as the model has layers.
        features : mapping of str to tensor
            Rows of the source nodes of the first block, of every node type with features; of any dtype.
        scales : mapping of str to tensor, optional
            Of int8 rows, one number for each column.

        Returns
        -------
        float32 tensor, shape (seeds, classes)

        Raises
        ------
        ConfigError
        """
        if len(blocks) != len(self.layers):
            raise ConfigError("blocks", f"{len(blocks)} layers", f"{len(self.layers)}, as the model has")
        vectors = self.project(features, blocks[0].num_src, scales)
        vectors = {name: self._activate(each) for name, each in vectors.items()}
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            vectors = layer(block, vectors)
            if self.config.norm:
                vectors = {name: self.norms[number](each) for name, each in vectors.items()}
            vectors = {name: self._activate(each) for name, each in vectors.items()}
        logits: Tensor = self.classify(vectors[self.spec.seed_type])
        return logits

    def _activate(self, vectors: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(nn.functional.leaky_relu(vectors))
        return dropped


class FeatureClassifier(nn.Module):
    """Classifies the seeds from their own features: what is left without a graph.

    Parameters
    ----------
    spec : DataSpec
        The seeds' type must have features.
    config : ModelConfig
        `layers` hidden layers of `hidden` elements.
    """

    def __init__(self, spec: DataSpec, config: ModelConfig) -> None:
        super().__init__()
        if spec.seed_type not in spec.feature_dims:
            raise ConfigError("model.name", "mlp", f"a graph model: {spec.seed_type!r} has no features")
        self.spec, self.config = spec, config
        dims = {spec.seed_type: spec.feature_dims[spec.seed_type]}
        self.project = InputProjection([spec.seed_type], dims, config.hidden, config.input_dropout)
        self.hidden = nn.ModuleList(nn.Linear(config.hidden, config.hidden) for _ in range(config.layers - 1))
        self.dropout = nn.Dropout(config.dropout)
        self.classify = nn.Linear(config.hidden, spec.n_classes)

    def forward(
        self,
        blocks: Sequence[AnyBlock],
        features: Mapping[str, Tensor],
        scales: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Logits of the seeds, as :meth:`BlockNetwork.forward`; the blocks only tell the number of seeds."""
        name = self.spec.seed_type
        count = blocks[-1].num_dst[name]
        rows = {name: features[name][:count]} if name in features else {}
        vectors = self.project(rows, {name: count}, scales)[name]
        for layer in self.hidden:
            vectors = layer(self._activate(vectors))
        logits: Tensor = self.classify(self._activate(vectors))
        return logits

    def _activate(self, vectors: Tensor) -> Tensor:
        dropped: Tensor = self.dropout(nn.functional.leaky_relu(vectors))
        return dropped


def build_model(spec: DataSpec, config: ModelConfig, seed: int = 0) -> BlockNetwork | FeatureClassifier:
    """A model with weights drawn from `seed`; torch's own generator is left as it was.

    Raises
    ------
    ConfigError, PackageMissing
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FeatureClassifier(spec, config) if config.name is ModelName.MLP else BlockNetwork(spec, config)


def _convolution_of(config: ModelConfig) -> MakeConvolution:
    if config.name is ModelName.RGAT:
        gat_conv()  # raises now, before any layer is made
        return partial(AttentionConvolution, heads=config.heads)
    return partial(MeanConvolution, own=config.name is ModelName.SAGE)
