"""A small data set and its store, shared by the tests of loaders, benchmarks and training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gids.bench.data import open_data, prepare_data
from gids.bench.loaders import LoaderData
from gids.config import RunConfig, run_config

TABLE = {
    "name": "small",
    "data": {
        "folder": "igbh",
        "store": "store",
        "task": "19",
        "synth_scale": "0.01",
        "synth_dim": 24,
    },
    "model": {"hidden": 8, "heads": 2},
    "sampling": {"fanouts": [4, 3], "batch_size": 64, "evaluation_batch_size": 100},
    "training": {"epochs": 2, "learning_rate": 0.01},
    "loader": {"cache": "20%", "cpu_buffer": "5%", "window": 2},
    "bench": {"steps": 3, "threads": 1, "tuned_threads": 3},
}


@pytest.fixture(scope="session")
def config() -> RunConfig:
    """A small configuration; its data are in `root`."""
    return run_config(TABLE)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory, config: RunConfig) -> Path:
    """The folder with the data of `config`: 1,000 papers, as an IGBH folder and as a store."""
    folder = tmp_path_factory.mktemp("bench-data")
    prepare_data(config.data, folder)
    return folder


@pytest.fixture(scope="session")
def data(config: RunConfig, root: Path) -> LoaderData:
    """The data of `config`, open."""
    return open_data(config.data, root, root / "work")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """torch computes with one thread during each test."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
