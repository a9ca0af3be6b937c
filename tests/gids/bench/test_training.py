"""Training runs: the losses of `gids.models.train`, from any loader, and after any number of kills."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documented_fields import documented

from gids.bench.checkpoint import CHECKPOINT_NAME, LOSSES_NAME, RunFolder
from gids.bench.loaders import LoaderData
from gids.bench.training import run_training
from gids.config import RunConfig
from gids.errors import NonFiniteLoss, UnfinishedWorkError
from gids.models.batches import DatasetBatches
from gids.models.spec import DataSpec
from gids.models.train import train

REPOSITORY = Path(__file__).resolve().parents[3]

# How often the run is killed; many more kills take longer and find no more.
KILLS = int(os.environ.get("GIDS_TEST_KILLS", "6"))


def _losses(out: Path) -> list[float]:
    return np.fromfile(out / LOSSES_NAME, np.float64).tolist()


@pytest.fixture(scope="module")
def uninterrupted(
    config: RunConfig, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("run")
    torch.set_num_threads(1)
    return out, run_training(config, root, out)


def test_losses_and_scores_are_those_of_plain_training(
    uninterrupted: tuple[Path, dict[str, Any]], config: RunConfig, data: LoaderData
) -> None:
    out, result = uninterrupted
    spec = DataSpec.of_dataset(data.dataset, "19")
    seed = config.training.seed
    with DatasetBatches(data.dataset, "19", config.sampling, seed, cache="1MiB") as batches:
        _, plain = train(spec, config.model, config.training, batches)
    assert _losses(out) == list(plain.losses)
    assert result["test_accuracy"] == plain.test.accuracy
    assert [each["validation_accuracy"] for each in result["epochs"]] == [
        each.validation.accuracy for each in plain.epochs
    ]
    assert result["best_epoch"] == plain.best_epoch
    assert result["losses"]["values"] == list(plain.losses)


def test_every_field_of_a_result_is_documented_and_the_other_way_round(
    uninterrupted: tuple[Path, dict[str, Any]],
) -> None:
    assert set(uninterrupted[1]) == documented("`train`")


def test_a_memory_map_gives_equal_losses(
    uninterrupted: tuple[Path, dict[str, Any]], config: RunConfig, root: Path, tmp_path: Path
) -> None:
    out, result = uninterrupted
    other = run_training(config, root, tmp_path, loader="dgl-mmap", same_batches=True)
    assert _losses(tmp_path) == _losses(out)
    assert other["losses_sha256"] == result["losses_sha256"]
    assert (other["hit_rate"], result["hit_rate"] is None) == (None, False)


def test_dgl_samples_for_itself_unless_told(config: RunConfig, root: Path, tmp_path: Path) -> None:
    short = replace(config, training=replace(config.training, epochs=1))
    result = run_training(short, root, tmp_path, loader="dgl-mmap", checkpoint_seconds=0)
    assert not result["same_batches"]
    assert result["steps"] == result["epochs"][0]["steps"] == 10


def test_a_finished_run_goes_on_for_more_epochs(
    uninterrupted: tuple[Path, dict[str, Any]], config: RunConfig, root: Path, tmp_path: Path
) -> None:
    short = replace(config, training=replace(config.training, epochs=1))
    first = run_training(short, root, tmp_path)
    second = run_training(config, root, tmp_path)
    assert (first["resumed"], second["resumed"]) == (0, 1)
    assert second["losses_sha256"] == uninterrupted[1]["losses_sha256"]


def test_other_settings_are_refused(config: RunConfig, root: Path, tmp_path: Path) -> None:
    short = replace(config, training=replace(config.training, epochs=1))
    run_training(short, root, tmp_path)
    other = replace(short, model=replace(short.model, hidden=16))
    with pytest.raises(UnfinishedWorkError, match="other settings"):
        run_training(other, root, tmp_path)
    losses = tmp_path / LOSSES_NAME
    os.truncate(losses, losses.stat().st_size - 8)
    with pytest.raises(UnfinishedWorkError, match="fewer than the 10 losses"):
        run_training(short, root, tmp_path)
    (tmp_path / CHECKPOINT_NAME).write_bytes(b"damaged")
    with pytest.raises(UnfinishedWorkError, match="cannot be read"):
        run_training(short, root, tmp_path)


def test_losses_beyond_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    state = folder.load("x")
    state.n_losses = 2
    folder.save(state, [1.0, 2.0])
    with open(tmp_path / LOSSES_NAME, "ab") as file:
        file.write(b"half a loss")
    assert folder.load("x").resumed == 1
    assert folder.losses().tolist() == [1.0, 2.0]


def test_a_loss_that_is_no_number_ends_the_run_with_what_to_do(
    config: RunConfig, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root / "igbh", tmp_path / "igbh")
    path = tmp_path / "igbh" / "processed" / "paper" / "node_feat.npy"
    rows = np.load(path)
    rows[:, 3] = np.nan
    np.save(path, rows)
    broken = replace(config, data=replace(config.data, store=""))
    with pytest.raises(NonFiniteLoss, match=r"step 0 is nan.*gids convert") as caught:
        run_training(broken, tmp_path, tmp_path / "run", checkpoint_seconds=0)
    assert caught.value.step == 0
    assert not (tmp_path / "run" / CHECKPOINT_NAME).exists()


def test_a_disk_that_fills_up_ends_in_a_clear_error_and_the_run_goes_on(
    uninterrupted: tuple[Path, dict[str, Any]], config: RunConfig, root: Path, tmp_path: Path
) -> None:
    short = replace(config, training=replace(config.training, epochs=1))
    run_training(short, root, tmp_path)
    checkpoint = (tmp_path / CHECKPOINT_NAME).read_bytes()
    code = f"""
import resource, sys
from pathlib import Path
from gids.bench.checkpoint import RunFolder
from gids.errors import DiskFullError
folder = RunFolder({str(tmp_path)!r})
state = folder.load({torch.load(tmp_path / CHECKPOINT_NAME, weights_only=True)["settings"]!r})
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(checkpoint) // 2}, resource.RLIM_INFINITY))
try:
    state.n_losses += 1
    folder.save(state, [1.0])
except DiskFullError as error:
    sys.exit(7 if "run the same command again" in str(error) else 8)
"""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 7
    assert (tmp_path / CHECKPOINT_NAME).read_bytes() == checkpoint
    run_training(config, root, tmp_path)
    assert _losses(tmp_path) == _losses(uninterrupted[0])


def _train_in_child(config: RunConfig, root: Path, out: Path, started: Any) -> None:
    torch.set_num_threads(1)
    started.set()
    run_training(config, root, out, checkpoint_seconds=0)


def test_killed_at_random_moments_it_goes_on_with_equal_losses(
    uninterrupted: tuple[Path, dict[str, Any]], config: RunConfig, root: Path, tmp_path: Path
) -> None:
    # Forked from a server that has everything imported: a fresh interpreter would need seconds each time.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gids.bench.training"])
    chance = random.Random(0)
    seconds = uninterrupted[1]["seconds"]
    kills = 0
    for _ in range(KILLS):
        started = context.Event()
        process = context.Process(target=_train_in_child, args=(config, root, tmp_path, started))
        process.start()
        assert started.wait(60)
        process.join(chance.uniform(0, 1.2 * seconds))
        if process.is_alive():
            process.kill()
            process.join()
            kills += process.exitcode == -signal.SIGKILL
    result = run_training(config, root, tmp_path)
    assert kills > 0
    assert _losses(tmp_path) == _losses(uninterrupted[0])
    assert result["losses_sha256"] == uninterrupted[1]["losses_sha256"]
    scores = [[each["validation_accuracy"] for each in run["epochs"]] for run in (result, uninterrupted[1])]
    assert scores[0] == scores[1]
    expected = torch.load(uninterrupted[0] / "model.pt", weights_only=True)
    for name, value in torch.load(tmp_path / "model.pt", weights_only=True).items():
        assert torch.equal(value, expected[name])
