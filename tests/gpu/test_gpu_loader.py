"""Loaders that read on a GPU; the same checks run on an emulated one in tests/gids/loader."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS / "gids" / "loader"))

import gpu_loaders as checks  # noqa: E402

import bam  # noqa: E402
import gids  # noqa: E402
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine  # noqa: E402
from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features  # noqa: E402
from gids.fetch.cuda.store import GpuFeatureStore  # noqa: E402
from gids.fetch.open import FeatureSettings  # noqa: E402
from gids.graph.dataset import Dataset  # noqa: E402
from gids.loader.loader import DataLoader  # noqa: E402

READ_PATH = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="1MiB", flights=3)
DEVICE = torch.device("cuda", 0)


def open_store(given: Any, *, gpu_buffer: Any = 0, **settings: Any) -> GpuFeatureStore:
    chosen = GpuFeatureSettings(FeatureSettings(**settings), gpu_buffer, READ_PATH)
    return open_gpu_features(given, chosen, DEVICE)


@pytest.fixture
def machine(gpu: Any) -> checks.Machine:
    return checks.Machine(open_store, lambda neighbor, graph: neighbor)


@pytest.mark.parametrize(("method", "settings", "window"), checks.EPOCHS)
def test_epochs_are_those_of_the_host(
    machine: checks.Machine, tmp_path: Path, method: str, settings: dict[str, Any], window: Any
) -> None:
    metrics = checks.check_epochs(machine, tmp_path, method, settings, window)
    assert metrics.sampler == "gpu"
    assert {each["reader"] for each in metrics.paths.values()} == {"gpu"}
    assert ("gpu_buffer" not in settings) or metrics.total.rows_resident > 0


def test_counts_are_those_of_a_plain_model(machine: checks.Machine, tmp_path: Path) -> None:
    checks.check_counts(machine, tmp_path)


def test_an_epoch_goes_on_and_loaders_share_a_store(machine: checks.Machine, tmp_path: Path) -> None:
    checks.check_resume(machine, tmp_path)


def test_constant_rows_come_in_bulk(machine: checks.Machine, tmp_path: Path) -> None:
    checks.check_constant_rows_come_in_bulk(machine, tmp_path)


@pytest.mark.parametrize(("method", "settings"), checks.GROUPED)
def test_mini_batches_are_read_together(
    machine: checks.Machine, tmp_path: Path, method: str, settings: dict[str, Any]
) -> None:
    checks.check_groups(machine, tmp_path, method, settings)


def test_groups_of_what_is_kept(machine: checks.Machine, tmp_path: Path) -> None:
    checks.check_groups_of_what_is_kept(machine, tmp_path)


def test_a_page_fails_that_a_group_needs(
    machine: checks.Machine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checks.check_a_page_that_fails_in_a_group(machine, tmp_path)
    assert "mini-batches are read one by one" in caplog.text


def test_memory_is_asked_for_first(machine: checks.Machine, tmp_path: Path) -> None:
    checks.check_memory_is_asked_for_first(machine, tmp_path)


def usual(dataset: Dataset, **settings: Any) -> DataLoader:
    """As a user opens one."""
    defaults: dict[str, Any] = {
        "batch_size": 50,
        "shuffle": True,
        "seed": 3,
        "labels": "19",
    }
    return DataLoader(dataset, checks.SEEDS, checks.neighbor(), device="cuda", **{**defaults, **settings})


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.bfloat16])
def test_a_loader_as_users_open_it(gpu: Any, tmp_path: Path, dtype: torch.dtype | None) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    with usual(dataset, dtype=dtype, cache="20%") as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset, dtype=dtype), strict=True):
            assert all(rows.is_cuda for rows in got.features.values())
            checks.equal_batches(got, plain)
    with usual(dataset, read_path="host", dtype=dtype, cache="20%") as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset, dtype=dtype), strict=True):
            checks.equal_batches(got, plain)


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8"])
def test_rows_of_every_type(gpu: Any, tmp_path: Path, stored: str) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path, dtype=stored))
    with usual(dataset, dtype=torch.float32, cache="20%") as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
            checks.equal_batches(got, plain)


def test_rows_in_memory_are_read_where_they_are(gpu: Any, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    with usual(dataset, features=rows) as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
            checks.equal_batches(got, plain)
        assert loader.metrics().total.rows_constant == loader.metrics().total.rows_requested


def test_reads_fail_now_and_then_and_every_batch_is_right(gpu: Any, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rules = [FaultRule(FaultKind.ERROR, nth=number) for number in (50, 400, 900)]
    store = open_store(
        dataset,
        cache="10%",
        page_bytes=512,
        contiguous=False,  # a read of several pages is repeated page by page
        wrap=lambda engine: NativeFaultEngine(engine, rules),
    )
    plain, taken, failed = checks.plain_epoch(dataset), [], 0
    try:
        with usual(dataset, features=store, window=3) as loader:
            while len(taken) < len(plain):
                try:
                    taken.extend(loader)
                except bam.StorageError:
                    failed += 1
                    loader.load_state_dict(loader.state_dict())
            for got, expected in zip(taken, plain, strict=True):
                checks.equal_batches(got, expected)
    finally:
        store.close()
    assert 1 <= failed <= 3


def test_training_on_the_gpu_learns_from_the_same_batches(gpu: Any, tmp_path: Path) -> None:
    """A model's losses on batches of a GPU are those on the same batches copied from the host."""
    from gids.models.config import ModelConfig, TrainConfig
    from gids.models.network import build_model
    from gids.models.spec import DataSpec
    from gids.models.train import Trainer

    dataset = gids.open_dataset(checks.make_data(tmp_path))
    losses = []
    for path in ("gpu", "host"):
        spec = DataSpec.of_dataset(dataset, "19")
        model = build_model(spec, ModelConfig(hidden=8, heads=2, dropout=0.0, input_dropout=0.0), 0).to(
            "cuda"
        )
        trainer = Trainer(model, TrainConfig(learning_rate=0.01), 0)
        with usual(dataset, read_path=path, cache="20%") as loader:
            losses.append([float(trainer.step(batch)) for batch in loader])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)


def test_mini_batches_become_pyg_and_dgl(gpu: Any, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    with usual(dataset, cache="20%") as loader:
        batch = next(iter(loader))
        data = batch.to_pyg()
        assert data["paper"].x.is_cuda
        assert torch.equal(data["paper"].n_id, batch.nodes["paper"])
        assert torch.equal(data["paper"].x, batch.features["paper"])


def test_two_loaders_have_the_same_rows_in_memory(gpu: Any, tmp_path: Path) -> None:
    """CUDA registers memory once; and memory that its owner has pinned is taken as it is."""
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    pinned = {name: torch.from_numpy(each).pin_memory() for name, each in rows.items()}
    plain = checks.plain_epoch(dataset)
    for features in (rows, pinned):
        with usual(dataset, features=features) as one, usual(dataset, features=features) as other:
            for got, too, expected in zip(one, other, plain, strict=True):
                checks.equal_batches(got, expected)
                checks.equal_batches(too, expected)


def test_a_loader_without_features(gpu: Any, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    with usual(dataset, features={}) as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
            assert got.features == {}
            assert torch.equal(got.nodes["paper"].cpu(), torch.from_numpy(plain.nodes["paper"]))
