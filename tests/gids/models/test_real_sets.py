"""Short trainings on real sets through the loader: better than any model without the graph can be."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bam.errors import ConfigError
from gids.config import load_config
from gids.errors import DatasetError
from gids.graph.real.by_name import load_real
from gids.graph.splits import Split
from gids.models.batches import DatasetBatches
from gids.models.config import ModelName, SamplingConfig
from gids.models.metrics import Score
from gids.models.spec import DataSpec
from gids.models.train import Part, train

REPOSITORY = Path(__file__).resolve().parents[3]
CONFIGS = REPOSITORY / "configs"


def trained(shared_data: Path, name: str, *overrides: str, parts: tuple[int, int] = (10**6, 10**6)) -> Score:
    """Test score after training as `configs/<name>.toml` says, with changes, on so many nodes to judge by."""
    config = load_config(CONFIGS / f"{name}.toml", overrides)
    if config.model.name is ModelName.RGAT:
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    dataset = load_real(config.data.name, shared_data / config.data.folder)
    given = dataset.tasks[config.data.task].split("files")
    split = Split(given.train, given.validation[: parts[0]], given.test[: parts[1]])
    with DatasetBatches(dataset, config.data.task, config.sampling, split=split) as batches:
        spec = DataSpec.of_dataset(dataset, config.data.task)
        steps = batches.steps_per_epoch
        return train(spec, config.model, config.training, batches, steps_per_epoch=steps)[1].test


def test_acm(shared_data: Path) -> None:
    """The classifier of features alone reaches 0.82 when it is trained to the end."""
    assert trained(shared_data, "acm", "training.epochs=20").accuracy > 0.86


def test_cora(shared_data: Path) -> None:
    """Published for features alone: 0.55 (MLP, Kipf and Welling 2017)."""
    assert trained(shared_data, "cora", "training.epochs=40").accuracy > 0.68


def test_umls(shared_data: Path) -> None:
    """Features are node numbers, so without the graph the largest class is all there is to guess: 0.47."""
    assert trained(shared_data, "umls", "training.epochs=40").accuracy > 0.75


def test_batches_are_the_data_sets_rows(shared_data: Path) -> None:
    dataset = load_real("umls", shared_data / "kg-umls")
    task = dataset.tasks["kind"]
    split = task.split("files")
    sampling = SamplingConfig((2, 2), batch_size=20, evaluation_batch_size=7)
    with DatasetBatches(dataset, "kind", sampling, seed=1) as batches:
        assert batches.steps_per_epoch == -(-len(split.train) // 20)
        for part, expected in ((Part.TRAIN, split.train), (Part.VALIDATION, split.validation)):
            seen = []
            for batch in batches(part, 0):
                nodes = batch.nodes["concept"]  # type: ignore[attr-defined]
                seeds = nodes[: batch.blocks[-1].num_dst["concept"]]
                assert np.array_equal(batch.features["concept"].numpy(), np.eye(135, dtype=np.float32)[nodes])
                assert np.array_equal(batch.labels["concept"].numpy(), task.labels[seeds])
                seen.append(seeds)
            assert np.array_equal(np.sort(np.concatenate(seen)), np.sort(expected))


def test_nodes_without_labels_are_found_before_work(shared_data: Path) -> None:
    dataset = load_real("umls", shared_data / "kg-umls")
    task = dataset.tasks["kind"]
    split = task.split("files")
    unlabelled = np.flatnonzero(task.labels < 0)
    wrong = replace(split, test=np.concatenate([split.test, unlabelled[:1]]))
    with pytest.raises(DatasetError, match=f"test.*node {unlabelled[0]}"):
        DatasetBatches(dataset, "kind", SamplingConfig((2, 2)), split=wrong)


@pytest.mark.parametrize("name", ["acm", "cora", "umls"])
def test_configurations_are_named_after_their_set(name: str) -> None:
    config = load_config(CONFIGS / f"{name}.toml")
    assert (config.name, config.data.name) == (name, name)


def test_unknown_set() -> None:
    with pytest.raises(ConfigError, match="did you mean 'debian'"):
        load_real("debain", "nowhere")


def test_the_experiment_writes_its_result(shared_data: Path, tmp_path: Path) -> None:
    script = runpy.run_path(str(REPOSITORY / "experiments" / "real" / "accuracy.py"))
    path = tmp_path / "result.json"
    settings = ["--seeds", "2", "--set", "training.epochs=3", "--json", str(path)]
    assert script["main"]([str(CONFIGS / "umls.toml"), "--data", str(shared_data), *settings]) == 0
    result = json.loads(path.read_text())
    assert (result["name"], result["config"]["training"]["epochs"]) == ("accuracy_umls", 3)
    accuracies = [run["test_accuracy"] for run in result["runs"]]
    assert result["test_accuracy_mean"] == pytest.approx(np.mean(accuracies))
    assert result["test_accuracy_std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert [run["seed"] for run in result["runs"]] == [0, 1]
    assert {"machine", "commit", "command"} <= result.keys()
