"""A training step before any that counts, so that a GPU has loaded the kernels by then."""

from __future__ import annotations

from dataclasses import replace

import torch

from gids.bench.device import TrainingDevice
from gids.bench.loaders import LoadedBatch, LoaderData
from gids.bench.sources import BatchPlan, SampledSource
from gids.config.sections import RunConfig
from gids.fetch.table import TORCH_DTYPES
from gids.graph.dataset import Features
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer
from gids.sampling.sampler_kind import SamplerKind

WARM_UP_SEEDS = 8
WARM_UP_BATCH = 2


def small_plan(plan: BatchPlan) -> BatchPlan:
    """Mini-batches of few seeds: enough to load what is compiled, too little to warm a cache."""
    seeds = {name: ids[-WARM_UP_SEEDS:] for name, ids in plan.seeds.items()}
    return BatchPlan(seeds, plan.fanouts, WARM_UP_BATCH, shuffle=False, seed=plan.seed + 1)


def step_on_zeros(config: RunConfig, data: LoaderData, plan: BatchPlan, device: TrainingDevice) -> None:
    """Have another model like the run's make a step on a mini-batch of zeros.

    On a GPU one of the usual size: CUDA loads a kernel at its first launch, for which it waits until the GPU
    is idle, which one that reads is not; and which kernels there are depends on sizes. To load all that there
    are (CUDA_MODULE_LOADING=EAGER) takes 9 s and gigabytes of host memory instead. In host memory, which may
    be limited, a small one. Draws from torch's generators.
    """
    # Another seed: loaders that sample on the host would find the first mini-batch's part of the graph warm.
    usual = replace(plan, kind=SamplerKind.NEIGHBOR, kappa=0, seed=plan.seed + 1)
    plan = usual if device.is_gpu else small_plan(plan)
    batch = next(SampledSource(data.dataset.graph, plan).batches(0))
    features = {
        name: torch.zeros(len(batch.nodes[name]), each.dim, dtype=_dtype(each), device=device.device)
        for name, each in data.mapped_features.items()
    }
    seed_type = data.task.node_type
    labels = {seed_type: torch.zeros(batch.node_counts[0][seed_type], dtype=torch.int64)}
    counts = data.task.class_counts(data.task.usual_split(config.data.split).train)
    spec = DataSpec.of_dataset(data.dataset, config.data.task)
    model = build_model(spec, config.model, config.training.seed).to(device.device)
    Trainer(model, config.training, 1, counts).step(LoadedBatch(batch, features, labels, {}, 0.0, 0.0))
    device.wait()
    if device.is_gpu:
        del batch, features, labels, model
        torch.cuda.empty_cache()  # what the step took is wanted by the loader, which has a pool of its own


def _dtype(features: Features) -> torch.dtype:
    """Of the rows as they are delivered; int8 ones would want scales."""
    found = TORCH_DTYPES[features.dtype]
    return found if found.is_floating_point else torch.float32
