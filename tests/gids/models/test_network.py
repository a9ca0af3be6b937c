"""The models over sampled blocks: shapes, gradients, independence of other nodes, equal losses."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
import torch
from small_graphs import N_CLASSES, HandMadeBatch, batch_of, random_graph, spec_of

from bam.errors import ConfigError
from gids.errors import PackageMissing, UnknownNodeType
from gids.models.config import ModelConfig, ModelName, Schedule, TrainConfig
from gids.models.network import build_model
from gids.models.spec import DataSpec
from gids.models.train import Trainer

SEEDS = np.arange(0, 60, 5)


def config_of(name: ModelName, layers: int = 2) -> ModelConfig:
    if name is ModelName.RGAT:
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    return ModelConfig(name=name, layers=layers, hidden=8, heads=2)


@pytest.mark.parametrize("name", list(ModelName))
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_logits_of_the_seeds(name: ModelName, layers: int) -> None:
    graph = random_graph()
    model = build_model(spec_of(graph), config_of(name, layers))
    batch = batch_of(graph, SEEDS, [3] * layers)
    logits = model(batch.blocks, batch.features)
    assert logits.shape == (len(SEEDS), N_CLASSES)
    assert logits.dtype == torch.float32
    logits.sum().backward()
    assert torch.isfinite(logits).all()
    assert model.classify.weight.grad is not None


@pytest.mark.parametrize("name", [ModelName.RGAT, ModelName.RGCN, ModelName.SAGE])
def test_a_seed_without_edges_has_logits(name: ModelName) -> None:
    graph = random_graph()
    model = build_model(spec_of(graph), config_of(name)).eval()
    batch = batch_of(graph, SEEDS, [0, 0])
    assert all(block.num_edges == 0 for block in batch.blocks)
    assert torch.isfinite(model(batch.blocks, batch.features)).all()


@pytest.mark.parametrize("name", list(ModelName))
def test_logits_do_not_depend_on_the_other_seeds(name: ModelName) -> None:
    graph = random_graph()
    model = build_model(spec_of(graph), config_of(name)).eval()
    together = batch_of(graph, SEEDS, [-1, -1])
    alone = batch_of(graph, SEEDS[3:4], [-1, -1])
    whole, single = (model(each.blocks, each.features) for each in (together, alone))
    torch.testing.assert_close(whole[3:4], single, rtol=1e-4, atol=1e-5)


def test_the_graph_matters_to_graph_models_only() -> None:
    graph = random_graph()
    with_edges, without = batch_of(graph, SEEDS, [3, 3]), batch_of(graph, SEEDS, [0, 0])
    for name in ModelName:
        model = build_model(spec_of(graph), config_of(name)).eval()
        first, second = (model(each.blocks, each.features) for each in (with_edges, without))
        assert torch.allclose(first, second, rtol=1e-5) == (name is ModelName.MLP)


def losses_of(name: ModelName, batches: list[HandMadeBatch], threads: int = 1) -> list[torch.Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        spec = spec_of(random_graph())
        training = TrainConfig(schedule=Schedule.COSINE, weight_decay=0.01, average=0.9, seed=5)
        trainer = Trainer(build_model(spec, config_of(name), 5), training, len(batches))
        torch.manual_seed(5)
        return [trainer.step(batch) for batch in batches]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", list(ModelName))
def test_equal_batches_give_equal_losses_bit_for_bit(name: ModelName) -> None:
    graph = random_graph()
    batches = [batch_of(graph, SEEDS, [4, 4], number) for number in range(6)]
    copies = [
        HandMadeBatch(each.blocks, {key: value.clone() for key, value in each.features.items()}, each.labels)
        for each in batches
    ]
    for threads in (1, 2):
        first, second = (losses_of(name, each, threads) for each in (batches, copies))
        assert [loss.item().hex() for loss in first] == [loss.item().hex() for loss in second]
    assert len({loss.item() for loss in first}) == len(batches)


def test_weights_depend_on_the_seed_alone() -> None:
    spec, config = spec_of(random_graph()), config_of(ModelName.RGCN)
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first = build_model(spec, config, 3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    second, other = (build_model(spec, config, seed).state_dict() for seed in (3, 4))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_wrong_number_of_blocks() -> None:
    graph = random_graph()
    model = build_model(spec_of(graph), config_of(ModelName.RGCN, layers=3))
    batch = batch_of(graph, SEEDS, [3, 3])
    with pytest.raises(ConfigError, match=r"2 layers.*3"):
        model(batch.blocks, batch.features)


def test_rgat_without_pyg_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_pyg(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("torch_geometric"):
            raise ImportError(name)
        return real_import(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without_pyg)
    with pytest.raises(PackageMissing, match=r"gids-bam\[pyg\]"):
        build_model(spec_of(random_graph()), ModelConfig(name=ModelName.RGAT, hidden=8))
    build_model(spec_of(random_graph()), ModelConfig(name=ModelName.SAGE, hidden=8))


def test_specs_are_checked() -> None:
    schema = random_graph().schema
    with pytest.raises(UnknownNodeType, match="paper"):
        DataSpec.of_schema(schema, {}, "papers", 3)
    with pytest.raises(ConfigError, match="no features"):
        build_model(DataSpec.of_schema(schema, {}, "venue", 3), ModelConfig(name=ModelName.MLP))
