"""Recorded mini-batches through a loader that reads on a GPU, whose kernels run on the host here."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bam" / "cache" / "device"))

from emulated_gpu import EmulatedGpu

import bam
from bam.native import available
from gids.bench.digest import batch_sha256, features_sha256
from gids.bench.distinct import DistinctNodes
from gids.bench.loaders import LOADERS, LoaderData, Work
from gids.bench.loaders.gids_loader import GidsLoader
from gids.bench.measured import Measured, StepTimes
from gids.bench.observe import ProcessCounters
from gids.bench.recorded import record
from gids.bench.sources import BatchPlan, SampledSource
from gids.config import RunConfig
from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features
from gids.fetch.open import FeatureSettings
from gids.sampling.tensor_batch import TensorBatch

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def test_they_are_delivered_as_they_were_recorded(
    data: LoaderData, config: RunConfig, tmp_path: Path
) -> None:
    plan = BatchPlan({"paper": np.arange(100, 300)}, (4, 3), 64, seed=2)
    sampled = list(SampledSource(data.dataset.graph, plan).batches(0))
    recorded = record(tmp_path, data.dataset.graph.schema, sampled)
    settings = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="256KiB", flights=2)
    chosen = GpuFeatureSettings(FeatureSettings(cache="10%", cpu_buffer="5%"), 0, settings)
    measured = Measured({"paper": 96, "author": 96}, DistinctNodes(data.dataset.graph.schema))
    with LOADERS["in-memory"](data, config) as plain:
        expected = [features_sha256(each.features) for each in plain.deliver(Work(plan, recorded)).epoch(0)]
    with GidsLoader(data, config) as loader:
        loader.store.close()
        loader._opened = open_gpu_features(data.dataset, chosen, torch.device("cpu"), EmulatedGpu())
        loader._opened.wait_until_loaded()
        deliveries = loader.deliver(Work(plan, recorded))
        for got, wanted, rows in zip(deliveries.epoch(0), sampled, expected, strict=True):
            assert isinstance(got.sampled, TensorBatch)
            assert batch_sha256(got.sampled.to_host()) == batch_sha256(wanted)
            assert features_sha256(got.features) == rows
            measured.add(got, StepTimes(1.0, 0.0, 0.0, 0.0), None)
        deliveries.close()
        assert {each["reader"] for each in loader.describe()["features"].values()} == {"gpu"}
    result = measured.result(ProcessCounters(0, 0, 0.0))
    requested = sum(counts["rows_requested"] for counts in result["node_types"].values())
    assert sum(result["rows_from"].values()) == requested
    assert result["rows_from"]["constant"] > 0 < result["rows_from"]["storage"]
