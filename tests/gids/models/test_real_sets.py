"""Short trainings on real sets through the loader: better than any model without the graph can be."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bam.errors import ConfigError
from gids.bench.data import open_data
from gids.bench.training import run_training
from gids.config import load_config
from gids.errors import DatasetError
from gids.graph.real.by_name import FIXED_SPLITS, RANDOM_SPLITS, load_real
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
        trained = train(
            spec,
            config.model,
            config.training,
            batches,
            steps_per_epoch=steps,
            class_counts=batches.class_counts,
        )
        return trained[1].test


def test_acm(shared_data: Path) -> None:
    """The classifier of features alone reaches 0.82 when it is trained to the end."""
    assert trained(shared_data, "acm", "training.epochs=20").accuracy > 0.86


def test_cora(shared_data: Path) -> None:
    """Published for features alone: 0.55 (MLP, Kipf and Welling 2017)."""
    assert trained(shared_data, "cora", "training.epochs=40").accuracy > 0.68


def test_umls(shared_data: Path) -> None:
    """Features are node numbers, so without the graph the largest class is all there is to guess: 0.47."""
    assert trained(shared_data, "umls", "training.epochs=40").accuracy > 0.75


def test_amazon_photo(shared_data: Path) -> None:
    """The largest of the eight categories has a quarter of the products, which is what guessing is worth."""
    short = ("training.epochs=8", "sampling.fanouts=[5, 5]", "sampling.batch_size=32")
    score = trained(shared_data, "amazon_photo", *short, parts=(240, 2000))
    assert score.accuracy > 0.4


def test_debian(shared_data: Path) -> None:
    """The largest of the 58 classes has a tenth of the packages, which is what guessing is worth."""
    short = ("training.epochs=1", 'training.schedule="constant"', "training.average=0.0", "model.hidden=32")
    sampling = ("sampling.fanouts=[2, 2]", "sampling.evaluation_fanouts=[2, 2]", "sampling.batch_size=512")
    score = trained(shared_data, "debian", *short, *sampling, parts=(500, 2000))
    assert score.accuracy > 0.4


@pytest.mark.parametrize("name", ["acm", "amazon_photo", "cora", "umls"])
def test_loaders_give_equal_losses(shared_data: Path, tmp_path: Path, name: str) -> None:
    """Bit for bit, of all steps; and other mini-batches give others."""
    few = ["sampling.fanouts=[5, 5]", "sampling.evaluation_fanouts=[1, 1]"]
    config = load_config(CONFIGS / f"{name}.toml", ["training.epochs=2", "bench.tuned_threads=3", *few])
    if config.model.name is ModelName.RGAT:
        pytest.importorskip("torch_geometric", reason="torch_geometric is not installed")
    results = [
        run_training(config, shared_data, tmp_path / loader, loader=loader, same_batches=True)
        for loader in ("gids", "dgl-mmap", "dgl-mmap-tuned")
    ]
    assert len({result["losses_sha256"] for result in results}) == 1
    assert len({result["test_accuracy"] for result in results}) == 1
    other = replace(config, training=replace(config.training, seed=1))
    changed = run_training(other, shared_data, tmp_path / "other")
    assert changed["losses_sha256"] != results[0]["losses_sha256"]


def test_another_split_seed_is_another_split(shared_data: Path, tmp_path: Path) -> None:
    config = load_config(CONFIGS / "umls.toml").data
    splits = [
        open_data(replace(config, split_seed=seed), shared_data, tmp_path).task.split("files").train
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(splits[0], splits[1])
    assert not np.array_equal(splits[0], splits[2])


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
                nodes = batch.nodes["concept"]
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


@pytest.mark.parametrize("name", [*FIXED_SPLITS, *RANDOM_SPLITS])
def test_configurations_are_named_after_their_set(name: str) -> None:
    config = load_config(CONFIGS / f"{name}.toml")
    assert (config.name, config.data.name) == (name, name)


def test_unknown_set() -> None:
    with pytest.raises(ConfigError, match="did you mean 'debian'"):
        load_real("debain", "nowhere")


def test_the_experiment_writes_its_result(shared_data: Path, tmp_path: Path) -> None:
    """And goes on where it was stopped: the second command trains nothing, and finds the same."""
    script = runpy.run_path(str(REPOSITORY / "experiments" / "real" / "accuracy.py"))
    path = tmp_path / "result.json"
    options = ["--seeds", "2", "--other-seeds", "1", "--features-only", "--set", "training.epochs=3"]
    folders = ["--data", str(shared_data), "--runs", str(tmp_path / "runs"), "--json", str(path)]
    arguments = [str(CONFIGS / "umls.toml"), *options, *folders]
    assert script["main"](arguments) == 0
    result = json.loads(path.read_text())
    assert (result["name"], result["config"]["name"]) == ("accuracy", "umls")
    assert result["config"]["training"]["epochs"] == 3
    assert result["equal_losses"] is True
    ours, other = result["loaders"]["gids"], result["loaders"]["dgl-mmap"]
    assert [run["seed"] for run in ours["runs"]] == [0, 1]
    assert [run["seed"] for run in other["runs"]] == [0]
    assert result["features_only"]["seeds"] == 2
    accuracies = [run["test_accuracy"] for run in ours["runs"]]
    assert ours["test_accuracy_mean"] == pytest.approx(np.mean(accuracies))
    assert ours["test_accuracy_std"] == pytest.approx(np.std(accuracies, ddof=1))
    assert {"machine", "commit", "command", "published"} <= result.keys()
    assert script["main"](arguments) == 0
    again = json.loads(path.read_text())["loaders"]["gids"]["runs"]
    kept = ("epochs", "losses_sha256", "test_accuracy")
    assert [[run[key] for key in kept] for run in again] == [
        [run[key] for key in kept] for run in ours["runs"]
    ]


def test_unequal_losses_are_told() -> None:
    script = runpy.run_path(str(REPOSITORY / "experiments" / "real" / "accuracy.py"))
    equal_losses = script["equal_losses"]

    def loader(*digests: str) -> dict[str, object]:
        runs = [{"seed": seed, "losses_sha256": digest} for seed, digest in enumerate(digests)]
        return {"runs": runs}

    assert equal_losses({"gids": loader("a", "b"), "other": loader("a")}) is True
    assert equal_losses({"gids": loader("a", "b"), "other": loader("a", "c")}) is False
    assert equal_losses({"gids": loader("a")}) is None
