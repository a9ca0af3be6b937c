"""What the loader hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gids.fetch.counts import FetchCounts
from gids.sampling.block import Block, SampledBatch
from gids.sampling.tensor_batch import TensorBatch, TensorBlock


@dataclass(frozen=True, eq=False)
class MiniBatch:
    """One training step's input.

    Attributes
    ----------
    sampled : SampledBatch or TensorBatch
        Nodes and blocks: numpy arrays, or, of a loader that samples on a GPU, tensors there.
    features : mapping of str to tensor
        Feature rows of the input nodes of every node type that has features, in the order of
        ``sampled.nodes``. Owned by whoever holds them; their memory is used again when they are gone.
    labels : mapping of str to tensor
        Labels of the seeds, for the node types that have any.
    counts : mapping of str to FetchCounts
        Where the rows came from.
    scales : mapping of str to tensor
        Of int8 features: multiply by it, a number for each column.
    """

    sampled: SampledBatch | TensorBatch
    features: Mapping[str, torch.Tensor]
    labels: Mapping[str, torch.Tensor]
    counts: Mapping[str, FetchCounts]
    scales: Mapping[str, torch.Tensor]

    @property
    def blocks(self) -> tuple[Block, ...] | tuple[TensorBlock, ...]:
        """Message flow graphs, in the order of computation."""
        return self.sampled.blocks

    @property
    def nodes(self) -> Mapping[str, Any]:
        """Distinct nodes of each type; the seeds first."""
        return self.sampled.nodes

    @property
    def input_nodes(self) -> Mapping[str, Any]:
        """Nodes whose features the first layer reads."""
        return self.sampled.input_nodes

    @property
    def output_nodes(self) -> Mapping[str, Any]:
        """The seeds."""
        return self.sampled.output_nodes

    @property
    def epoch(self) -> int:
        """Number of the epoch."""
        return self.sampled.epoch

    @property
    def index(self) -> int:
        """Number of the mini-batch in its epoch, over all ranks."""
        return self.sampled.batch

    def to(self, device: torch.device | str, non_blocking: bool = False) -> MiniBatch:
        """The same with tensors on `device`."""

        def moved(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {key: value.to(device, non_blocking=non_blocking) for key, value in tensors.items()}

        return replace(
            self,
            features=moved(self.features),
            labels=moved(self.labels),
            scales=moved(self.scales),
        )

    def as_dtype(self, dtype: torch.dtype) -> MiniBatch:
        """The same with features of this type; scales are multiplied in, and none are left."""
        features = {}
        for name, rows in self.features.items():
            scale = self.scales.get(name)
            # In float32 first: a product of halves would be rounded twice.
            features[name] = rows.to(dtype) if scale is None else (rows * scale.to(rows.device)).to(dtype)
        return replace(self, features=features, scales={})

    def to_dgl(self) -> Any:
        """DGL's `(input_nodes, output_nodes, blocks)`; features are `blocks[0].srcdata["feat"]`, labels
        `blocks[-1].dstdata["label"]`. All are on the device of the features.

        Raises
        ------
        PackageMissing
        """
        from gids.sampling.to_dgl import to_dgl

        return to_dgl(self._tensors(), self.features, self.labels)

    def to_pyg(self) -> Any:
        """PyG's `HeteroData`, or `Data` for a homogeneous graph, as its `NeighborLoader` gives.
        All is on the device of the features.

        Raises
        ------
        PackageMissing
        """
        from gids.sampling.to_pyg import to_pyg

        return to_pyg(self._tensors(), self.features, self.labels)

    def _tensors(self) -> TensorBatch:
        """Nodes and blocks where features and labels are."""
        batch = TensorBatch.of(self.sampled)
        rows = next(iter((*self.features.values(), *self.labels.values())), None)
        return batch if rows is None else batch.to(rows.device)
