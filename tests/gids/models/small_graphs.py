"""Random small graphs, their sampled mini-batches, and features of differing dim and dtype."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from gids.graph.graph import Graph
from gids.models.spec import DataSpec
from gids.sampling.block import Block, SampledBatch
from gids.sampling.neighbor import NeighborSampler

COUNTS = {"paper": 60, "author": 40, "venue": 5, "unused": 3}
DIMS = {"paper": 12, "author": 7}
EDGES = {
    ("paper", "cites", "paper"): 200,
    ("author", "writes", "paper"): 90,
    ("paper", "written_by", "author"): 90,
    ("venue", "shows", "paper"): 30,
    ("venue", "empty", "author"): 0,
    ("paper", "shown_at", "venue"): 30,
}
N_CLASSES = 4


@dataclass(frozen=True, eq=False)
class HandMadeBatch:
    """As much of a mini-batch as a model needs."""

    blocks: tuple[Block, ...]
    features: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]
    scales: Mapping[str, Tensor] = field(default_factory=dict)


@cache
def random_graph(seed: int = 0) -> Graph:
    generator = np.random.default_rng(seed)
    edges = {
        each: (generator.integers(0, COUNTS[each[0]], n), generator.integers(0, COUNTS[each[2]], n))
        for each, n in EDGES.items()
    }
    return Graph.from_coo(edges, COUNTS)


def spec_of(graph: Graph) -> DataSpec:
    return DataSpec.of_schema(graph.schema, DIMS, "paper", N_CLASSES)


def all_features(seed: int = 0) -> dict[str, Tensor]:
    """Rows of all nodes: papers float32, authors bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    papers = torch.randn(COUNTS["paper"], DIMS["paper"], generator=generator)
    authors = torch.randn(COUNTS["author"], DIMS["author"], generator=generator)
    return {"paper": papers, "author": authors.to(torch.bfloat16)}


def batch_of(graph: Graph, seeds: np.ndarray, fanouts: list[int], number: int = 0) -> HandMadeBatch:
    sampled: SampledBatch = NeighborSampler(fanouts, seed=1).sample(graph, {"paper": seeds}, batch=number)
    rows = all_features()
    features = {name: each[torch.from_numpy(sampled.nodes[name])] for name, each in rows.items()}
    labels = {"paper": torch.from_numpy(seeds % N_CLASSES)}
    return HandMadeBatch(sampled.blocks, features, labels)
