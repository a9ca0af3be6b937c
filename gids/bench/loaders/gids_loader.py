"""`gids`: the loader of this project, with its engines watched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import bam
from bam.errors import ClosedError
from bam.storage.engine import Engine
from bam.storage.monitored import MonitoredEngine
from bam.storage.native import NativeEngine
from gids.bench.loaders.base import BenchLoader, Deliveries, LoadedBatch, LoaderData, Work
from gids.bench.recorded import RecordedBatches
from gids.bench.run_plan import best_sizes, configured_sizes, sample_run
from gids.config.sections import RunConfig
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.feature_store import FeatureStore
from gids.fetch.open import FeatureSettings, open_features
from gids.graph.graph import Graph
from gids.loader.loader import DataLoader
from gids.loader.open_path import READ_PATH
from gids.sampling.block import SampledBatch
from gids.sampling.launch import Seeds
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.shared_draws import SharedDraws

#: Enough to know how large mini-batches are.
_PLAN_BATCHES = 2


class GidsLoader(BenchLoader):
    """`gids.DataLoader` over one feature store, whatever work it delivers."""

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        loader = config.loader
        self._settings: dict[str, Any] = {
            "cache": self._planned_cache() if loader.cache == "auto" else loader.cache,
            "cpu_buffer": loader.cpu_buffer,
            "engine": loader.engine.value,
            "page_bytes": loader.page_bytes,
            "policy": loader.policy or ("look_ahead_global" if loader.window else "clock"),
            "queue_depth": loader.queue_depth,
            "contiguous": loader.contiguous,
            "ssd": loader.ssd,
            "calibration": loader.calibration,
        }
        self._opened: FeatureStore | GpuFeatureStore | None = None
        if self.device.is_gpu:
            return  # the first loader opens the features where it wants them
        opened = open_features(data.dataset, FeatureSettings(**self._settings, wrap=self._monitored))
        opened.wait_until_loaded()  # so that timed steps are alike
        self._opened = opened
        # The constant buffer is read through engines of its own, which are closed by now.
        self.monitors = [each for each in self.monitors if each.is_open]

    def _planned_cache(self) -> int:
        """What `gids plan` recommends beside the constant buffer that is configured."""
        from gids.bench.data import train_plan_of  # which imports the loaders

        plan = train_plan_of(self.config, self.data)
        run = sample_run(self.data, self.config, plan, compute=False, n_batches=_PLAN_BATCHES)
        return configured_sizes(run, self.config, best_sizes(run, self.config)).cache_bytes

    @property
    def store(self) -> FeatureStore | GpuFeatureStore:
        """Its feature tables; with a GPU there are none before something is to be delivered."""
        if not isinstance(self._opened, FeatureStore | GpuFeatureStore):
            raise ClosedError("features")
        return self._opened

    def _monitored(self, engine: Engine) -> Engine:
        if not isinstance(engine, NativeEngine):
            return engine  # `describe` says that it is in Python; depth and latency are left out
        self.monitors.append(MonitoredEngine(engine))
        return self.monitors[-1]

    def deliver(self, work: Work) -> Deliveries:
        return _GidsDeliveries(self, self._data_loader(work))

    def _data_loader(self, work: Work) -> DataLoader:
        plan, task, loader = work.plan, self.data.task, self.config.loader
        recorded = work.recorded
        if recorded is not None:
            # As many mini-batches as were recorded; which seeds stand for them does not matter.
            numbers = {task.node_type: np.arange(len(recorded))}
            plan = replace(plan, seeds=numbers, batch_size=1, shuffle=False)
        opened = self._opened
        made = DataLoader(
            self.data.dataset,
            plan.seeds,
            plan.sampler() if recorded is None else RecordedSampler(recorded),
            batch_size=plan.batch_size,
            shuffle=plan.shuffle,
            seed=plan.seed,
            features=opened,
            labels={task.node_type: task.labels},
            device=self.device.device,
            gpu=self._gpu_settings(),
            window=loader.window,
            foresight=loader.foresight,
            prefetch=loader.prefetch,
            accumulate=loader.accumulate,
            peak_share=loader.peak_share,
            **({} if opened is not None else self._settings),
        )
        if opened is None:
            # All later ones share it. It is closed with the loader that was made first.
            made.features.wait_until_loaded()
            self._opened = made.features
        return made

    def _gpu_settings(self) -> bam.GpuSettings | None:
        """What the configuration sets of a GPU's read path; None where that is nothing."""
        loader = self.config.loader
        given = {
            "staging": loader.gpu_staging,
            "host_threads": loader.gpu_host_threads,
            "read_depth": loader.gpu_read_depth,
        }
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value}
        return replace(READ_PATH, **chosen) if chosen and self.device.is_gpu else None

    def warm_up(self, work: Work) -> None:
        deliveries = self.deliver(work)
        try:
            for _ in deliveries.epoch(0):
                pass
        finally:
            deliveries.close()

    def describe(self) -> dict[str, Any]:
        return {"loader": "gids.DataLoader", "features": self.store.describe()}

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


class RecordedSampler(NeighborSampler):
    """Gives recorded mini-batches by their number."""

    #: A loader that reads on a GPU would sample there in this one's place; it does not where mini-batches
    #: share draws. Nothing is drawn here.
    shared = SharedDraws(by_source=True, kappa=1)

    def __init__(self, recorded: RecordedBatches) -> None:
        super().__init__([0])
        self._recorded = recorded

    def sample(self, graph: Graph, seeds: Seeds, *, epoch: int = 0, batch: int = 0) -> SampledBatch:
        return self._recorded[batch]


class _GidsDeliveries(Deliveries):
    def __init__(self, owner: GidsLoader, loader: DataLoader) -> None:
        self._owner, self._loader = owner, loader

    def __len__(self) -> int:
        return len(self._loader)

    def settings(self) -> dict[str, Any]:
        state = self._loader.state_dict()
        return {"seeds": state["seeds"], "sampler": state["sampler"]}

    def epoch(self, epoch: int, first: int = 0) -> Iterator[LoadedBatch]:
        if first >= len(self):
            return
        self._loader.load_state_dict({**self._loader.state_dict(), "epoch": epoch, "batch": first})
        before = self._loader.times()
        iterator = iter(self._loader)
        while (batch := next(iterator, None)) is not None:
            now = self._loader.times()
            wait_s = now.wait_s - before.wait_s
            read_s = now.fetch_s - before.fetch_s + now.plan_s - before.plan_s
            # Reading is the last stage: of a wait, its end was for the reading, which finding out where
            # features lie is part of; the rest was for the sampling.
            feature_wait_s = min(wait_s, read_s)
            before = now
            loaded = [
                LoadedBatch(
                    batch.sampled,
                    batch.features,
                    batch.labels,
                    batch.scales,
                    wait_s - feature_wait_s,
                    feature_wait_s,
                    counts=batch.counts,
                )
            ]
            del batch
            yield loaded.pop()  # nothing here keeps its features while the next mini-batch is awaited

    def close(self) -> None:
        self._loader.close()
