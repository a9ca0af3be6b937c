"""Mini-batches of a data set's parts through `gids.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

import numpy as np

from gids.errors import DatasetError
from gids.fetch.feature_store import FeatureStore
from gids.graph.dataset import Dataset
from gids.graph.splits import Split
from gids.loader.loader import DataLoader
from gids.models.config import SamplingConfig
from gids.models.spec import task_named
from gids.models.train import Batch, Part
from gids.sampling.sampler_kind import SamplerKind, make_sampler


class DatasetBatches:
    """`Batches` of one task of a data set; one loader for each part. A context manager.

    Parameters
    ----------
    dataset : Dataset
    task : str
    sampling : SamplingConfig
    seed : int
        Of shuffling and sampling.
    split : Split, optional
        By default the one that came with the data, else the first 60 / 20 / 20 %.
    store : FeatureStore, optional
        Where features come from; by default the data set's own, opened here.
    loader_settings
        Further settings of :class:`gids.DataLoader`, for example ``cache="1GiB"``.

    Attributes
    ----------
    class_counts : list of int
        Training nodes of each class.

    Raises
    ------
    ConfigError
    DatasetError
        A node of the split has no label.
    """

    def __init__(
        self,
        dataset: Dataset,
        task: str,
        sampling: SamplingConfig,
        seed: int = 0,
        *,
        split: Split | None = None,
        store: FeatureStore | None = None,
        **loader_settings: int | str | float,
    ) -> None:
        chosen = task_named(dataset, task)
        split = split or chosen.usual_split()
        nodes = {Part.TRAIN: split.train, Part.VALIDATION: split.validation, Part.TEST: split.test}
        for part, ids in nodes.items():
            if (chosen.labels[ids] < 0).any():
                at = int(ids[np.argmax(chosen.labels[ids] < 0)])
                raise DatasetError(
                    str(dataset.path), f"labels of all {part.value} nodes", f"none of node {at}"
                )
        self.class_counts = chosen.class_counts(split.train)
        self._loaders: dict[Part, DataLoader] = {}
        for part, ids in nodes.items():
            trains = part is Part.TRAIN
            fanouts = sampling.fanouts if trains else sampling.evaluation_fanouts or sampling.fanouts
            self._loaders[part] = DataLoader(
                dataset,
                {chosen.node_type: ids},
                make_sampler(
                    sampling.sampler if trains else SamplerKind.NEIGHBOR,
                    list(fanouts),
                    kappa=sampling.kappa if trains else 0,
                    seed=seed,
                ),
                batch_size=sampling.batch_size if trains else sampling.evaluation_batch_size,
                shuffle=trains,
                labels=task,
                seed=seed,
                features=store or next((each.features for each in self._loaders.values()), None),
                **loader_settings,  # type: ignore[arg-type]
            )

    @property
    def steps_per_epoch(self) -> int:
        """Mini-batches of the training part."""
        return len(self._loaders[Part.TRAIN])

    def __call__(self, part: Part, epoch: int) -> Iterable[Batch]:
        """Mini-batches of one epoch of a part."""
        loader = self._loaders[part]
        loader.set_epoch(epoch)
        return loader

    def close(self) -> None:
        """Close the loaders; may be called again."""
        for loader in reversed(self._loaders.values()):
            loader.close()

    def __enter__(self) -> DatasetBatches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
