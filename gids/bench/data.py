"""The data set that a configuration names: made where it may be made, and opened."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bam.array.description import ArrayDescription
from bam.array.sources import FileSource
from bam.errors import ConfigError
from gids.bench.loaders.base import LoaderData
from gids.bench.sources import BatchPlan
from gids.config.sections import DataConfig, RunConfig
from gids.errors import DatasetError, did_you_mean
from gids.graph.convert import convert_igbh
from gids.graph.dataset import Dataset, Features, Task
from gids.graph.feature_types import FeatureDtype
from gids.graph.igbh import is_igbh, open_igbh
from gids.graph.open_dataset import open_dataset
from gids.graph.progress import Progress, no_progress
from gids.graph.real.by_name import FIXED_SPLITS, RANDOM_SPLITS, load_real
from gids.graph.store import is_store, open_store
from gids.graph.synth import synthesize

#: Names the folder that all data sets are below; `data` where it is not set.
DATA_VARIABLE = "GIDS_DATA"

IGBH = "igbh"


def data_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder that all data sets are below."""
    return Path(given or os.environ.get(DATA_VARIABLE) or "data")


def prepare_data(config: DataConfig, root: Path, progress: Progress = no_progress) -> list[str]:
    """Write the synthetic folder and the store that the configuration asks for, unless they are there.

    Returns
    -------
    list of str
        What was made.

    Raises
    ------
    DatasetError
        The folder is not there, and the configuration does not say how to make it.
    """
    if config.name != IGBH:
        return []
    made = []
    folder, store = root / config.folder, root / config.store
    has_store = bool(config.store) and is_store(store)
    if not has_store and not is_igbh(folder) and not is_store(folder):
        if not config.synth_scale:
            raise DatasetError(str(folder), "an IGBH folder; download it, or set data.synth_scale", "none")
        synthesize(folder, config.synth_scale, config.synth_seed, dim=config.synth_dim, progress=progress)
        made.append(str(folder))
    if config.store and not has_store:
        convert_igbh(folder, store, config.convert_options, progress=progress)
        made.append(str(store))
    return made


def open_data(config: DataConfig, root: Path, work: Path) -> LoaderData:
    """Open the data set for all loaders.

    Parameters
    ----------
    config : DataConfig
    root : Path
        Folder that all data sets are below.
    work : Path
        Where features that a reader holds in memory are written, so that there are files to read.

    Raises
    ------
    ConfigError, DatasetError
    """
    if config.name != IGBH:
        names = (IGBH, *FIXED_SPLITS, *RANDOM_SPLITS)
        if config.name not in names:
            raise ConfigError("data.name", config.name, f"a data set; {did_you_mean(config.name, names)}")
        real = load_real(config.name, root / config.folder, config.split_seed)
        dataset = _features_in_files(real, work)
        return LoaderData(dataset, dataset.features, _task(dataset, config.task))
    folder, store = root / config.folder, root / config.store
    if config.store and is_store(store):
        dataset = open_store(store)
        mapped = _igbh_features(folder) if is_igbh(folder) else dataset.features
    elif config.store:
        raise DatasetError(str(store), "a store; run `gids prepare --config ...`", "none")
    else:
        graph_cache = folder.with_name(folder.name + "_graph")
        dataset = open_dataset(folder, graph=config.graph_options, graph_cache=graph_cache)
        mapped = dataset.features
    return LoaderData(dataset, mapped, _task(dataset, config.task))


def train_plan_of(config: RunConfig, data: LoaderData) -> BatchPlan:
    """Mini-batches of the training part."""
    seeds = {data.task.node_type: data.task.usual_split(config.data.split).train}
    return BatchPlan(
        seeds,
        config.sampling.fanouts,
        config.sampling.batch_size,
        seed=config.training.seed,
        sampler_threads=config.loader.sampler_threads,
        kind=config.sampling.sampler,
        kappa=config.sampling.kappa,
    )


def _task(dataset: Dataset, name: str) -> Task:
    if name not in dataset.tasks:
        expected = f"a task of the data set; {did_you_mean(name, dataset.tasks)}"
        raise ConfigError("data.task", name, expected)
    return dataset.tasks[name]


def _igbh_features(folder: Path) -> Mapping[str, Features]:
    described = open_igbh(folder).features
    return {name: _features_of(name, each) for name, each in described.items()}


def _features_of(name: str, described: ArrayDescription) -> Features:
    dtype = FeatureDtype(str(described.dtype))
    source = FileSource(described.files[0].path, dtype.stored, described.shape)
    return Features(name, dtype, described.shape[1], source, described)


def _features_in_files(dataset: Dataset, work: Path) -> Dataset:
    """The same with features that were in memory written to `work`, unless the file is there already."""
    features = {name: _in_file(each, work) for name, each in dataset.features.items()}
    return replace(dataset, features=features)


def _in_file(features: Features, work: Path) -> Features:
    if not features.description.memory:
        return features
    work.mkdir(parents=True, exist_ok=True)
    rows: np.ndarray[Any, Any] = features.description.memory[0].view(features.dtype.stored)
    rows = rows.reshape(features.description.shape)
    path = work / f"{features.node_type}.npy"
    if not path.exists():
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            np.save(file, rows)
        partial.replace(path)
    return _features_of(features.node_type, FileSource(path, rows.dtype, rows.shape).describe())
