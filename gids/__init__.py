"""GNN mini-batches whose features stay in files: sampling, reading and caching ahead of training."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gids.fetch.counts import FetchCounts as FetchCounts
    from gids.fetch.feature_store import FeatureStore as FeatureStore
    from gids.graph.csc import Csc as Csc
    from gids.graph.dataset import Dataset as Dataset
    from gids.graph.graph import Graph as Graph
    from gids.graph.open_dataset import open_dataset as open_dataset
    from gids.graph.schema import EdgeType as EdgeType
    from gids.graph.schema import Schema as Schema
    from gids.loader.loader import DataLoader as DataLoader
    from gids.loader.metrics import LoaderMetrics as LoaderMetrics
    from gids.loader.minibatch import MiniBatch as MiniBatch
    from gids.sampling.block import Block as Block
    from gids.sampling.block import SampledBatch as SampledBatch
    from gids.sampling.cuda.sampler import CudaSampler as CudaSampler
    from gids.sampling.neighbor import NeighborSampler as NeighborSampler
    from gids.sampling.shared_draws import DependentSampler as DependentSampler
    from gids.sampling.shared_draws import LaborSampler as LaborSampler
    from gids.table.table import open_table as open_table

__version__ = "0.1.0"

# Imported when they are first used, so that `import gids` is quick and brings in neither numba nor torch.
_HOME = {
    "Block": "gids.sampling.block",
    "Csc": "gids.graph.csc",
    "CudaSampler": "gids.sampling.cuda.sampler",
    "DataLoader": "gids.loader.loader",
    "Dataset": "gids.graph.dataset",
    "DependentSampler": "gids.sampling.shared_draws",
    "EdgeType": "gids.graph.schema",
    "FeatureStore": "gids.fetch.fetcher",
    "FetchCounts": "gids.fetch.counts",
    "Graph": "gids.graph.graph",
    "LaborSampler": "gids.sampling.shared_draws",
    "LoaderMetrics": "gids.loader.metrics",
    "MiniBatch": "gids.loader.minibatch",
    "NeighborSampler": "gids.sampling.neighbor",
    "SampledBatch": "gids.sampling.block",
    "Schema": "gids.graph.schema",
    "open_dataset": "gids.graph.open_dataset",
    "open_table": "gids.table.table",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gids' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
