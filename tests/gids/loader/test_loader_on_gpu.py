"""Loaders that read on a GPU, whose kernels run on the host here (tests/gpu has the same on a real one)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

TESTS = Path(__file__).resolve().parents[2]
sys.path += [str(TESTS / "bam" / "cache" / "device"), str(TESTS / "gids" / "sampling")]

import gpu_loaders as checks  # noqa: E402
from emulated_gpu import EmulatedGpu  # noqa: E402
from host_kernels import HostKernels, host_library  # noqa: E402

import bam  # noqa: E402
import gids  # noqa: E402
from bam.errors import ConfigError  # noqa: E402
from bam.native import available  # noqa: E402
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine  # noqa: E402
from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features, row_sources  # noqa: E402
from gids.fetch.cuda.store import GpuFeatureStore  # noqa: E402
from gids.fetch.open import FeatureSettings  # noqa: E402
from gids.loader.loader import DataLoader  # noqa: E402
from gids.loader.open_path import PathRequest, _batch_bytes, _held_bytes  # noqa: E402
from gids.sampling.cuda.sampler import CudaSampler  # noqa: E402
from gids.sampling.neighbor import NeighborSampler  # noqa: E402
from gids.sampling.seeds import SeedBatches  # noqa: E402

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")
CPU = torch.device("cpu")
READ_PATH = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="256KiB", flights=2)


def open_store(given: Any, *, gpu_buffer: Any = 0, **settings: Any) -> GpuFeatureStore:
    chosen = GpuFeatureSettings(FeatureSettings(**settings), gpu_buffer, READ_PATH)
    return open_gpu_features(given, chosen, CPU, EmulatedGpu())


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> checks.Machine:
    library = host_library(tmp_path_factory.mktemp("sampler"))

    def sampler(neighbor: NeighborSampler, graph: Any) -> CudaSampler:
        return CudaSampler(neighbor, graph, kernels=HostKernels(library))

    return checks.Machine(open_store, sampler)


@pytest.mark.parametrize(("method", "settings", "window"), checks.EPOCHS)
def test_epochs_are_those_of_the_host(
    machine: checks.Machine, tmp_path: Path, method: str, settings: dict[str, Any], window: Any
) -> None:
    metrics = checks.check_epochs(machine, tmp_path, method, settings, window)
    assert metrics.sampler == "gpu"
    assert {each["reader"] for each in metrics.paths.values()} == {"gpu"}
    assert metrics.accumulator.batches == 6
    if settings["cache"] == "auto":  # of which whole runs are read the first time
        assert max(each["pages_per_read"] for each in metrics.paths.values()) > 1.5
    if "gpu_buffer" in settings:
        assert metrics.total.rows_resident > 0
    if settings["cache"] == "auto":
        assert metrics.total.pages_read <= sum(each["cache_lines"] for each in metrics.paths.values())


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


def test_rows_in_memory_are_read_where_they_are(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    store = open_store(rows)
    with checks.open_loader(machine, dataset, store) as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
            checks.equal_batches(got, plain)
        assert loader.metrics().total.rows_constant == loader.metrics().total.rows_requested
    store.close()


def test_a_calibration_is_no_matter_where_nothing_is_read(machine: checks.Machine, tmp_path: Path) -> None:
    path = checks.make_data(tmp_path)
    checks.calibrate_long_reads_cheap(path)
    dataset = gids.open_dataset(path)
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    for given in (rows, {}):
        store = open_store(given, cache="1KiB", calibration=str(path))
        with checks.open_loader(machine, dataset, store, accumulate="1MiB") as loader:
            for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
                assert set(got.features) == set(given)
                assert all(torch.equal(tensor, plain.features[name]) for name, tensor in got.features.items())
        store.close()


def test_features_can_be_handed_out_in_another_type(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    store = open_store(dataset, cache="10%", page_bytes=512)
    with checks.open_loader(machine, dataset, store, dtype=torch.float16) as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset, dtype=torch.float16), strict=True):
            assert {rows.dtype for rows in got.features.values()} == {torch.float16}
            checks.equal_batches(got, plain)
    store.close()


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8"])
def test_rows_of_every_type(machine: checks.Machine, tmp_path: Path, stored: str) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path, dtype=stored))
    store = open_store(dataset, cache="10%", page_bytes=512)
    with checks.open_loader(machine, dataset, store, dtype=torch.float32) as loader:
        for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
            checks.equal_batches(got, plain)  # decoded by numpy there
    store.close()


def test_a_failed_read_reaches_the_consumer_and_the_loader_stays_usable(
    machine: checks.Machine, tmp_path: Path
) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rule = FaultRule(FaultKind.ERROR, nth=200)
    store = open_store(
        dataset,
        cache="10%",
        page_bytes=512,
        contiguous=False,  # a read of several pages is repeated page by page
        wrap=lambda engine: NativeFaultEngine(engine, [rule]),
    )
    with checks.open_loader(machine, dataset, store, window=3) as loader:
        taken = []
        with pytest.raises(bam.StorageError) as caught:
            taken.extend(loader)
        assert caught.value.errno == 5
        loader.load_state_dict(loader.state_dict())
        taken += list(loader)
        for got, plain in zip(taken, checks.plain_epoch(dataset), strict=True):
            checks.equal_batches(got, plain)
    store.close()


def test_what_a_gpu_cannot_do_is_said_before_any_work(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    sampler = checks.neighbor()
    with pytest.raises(ConfigError, match="device='cuda'"):
        DataLoader(dataset, checks.SEEDS, sampler, read_path="gpu")
    with pytest.raises(ConfigError, match="gpu_buffer"):
        DataLoader(dataset, checks.SEEDS, sampler, gpu_buffer="10%")
    with pytest.raises(ConfigError, match="NeighborSampler"):
        DataLoader(dataset, checks.SEEDS, machine.sampler(sampler, dataset.graph))
    store, other = open_store(dataset, cache="10%"), gids.open_dataset(tmp_path / "store")
    with pytest.raises(ConfigError, match="another graph"):
        DataLoader(dataset, checks.SEEDS, machine.sampler(sampler, other.graph), features=store)
    store.close()


def test_a_sampler_of_ones_own_samples_on_the_host_and_says_so(tmp_path: Path) -> None:
    class FirstNodes(NeighborSampler):
        """Of a user: always the neighbours of seed 0, whatever is asked for."""

        def sample(self, graph: Any, seeds: Any, *, epoch: int = 0, batch: int = 0) -> Any:
            return super().sample(graph, {"paper": np.array([0])}, epoch=0, batch=0)

    dataset = gids.open_dataset(checks.make_data(tmp_path))
    store = open_store(dataset, cache="10%", page_bytes=512)
    with DataLoader(
        dataset, {"paper": np.arange(100)}, FirstNodes([4, 3]), batch_size=20, features=store
    ) as loader:
        assert [batch.output_nodes["paper"].tolist() for batch in loader] == [[0]] * 5
        assert loader.metrics().sampler == "host, because it has a way of its own to sample"
    store.close()


@pytest.mark.parametrize("window", [1, 3])
def test_foresight_gives_the_same_and_reads_no_more(
    machine: checks.Machine, tmp_path: Path, window: int
) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    reads = []
    for foresight in (0, 5):
        store = open_store(dataset, cache="30%", page_bytes=512, policy="look_ahead_global")
        with checks.open_loader(machine, dataset, store, window=window, foresight=foresight) as loader:
            for got, plain in zip(loader, checks.plain_epoch(dataset), strict=True):
                checks.equal_batches(got, plain)
            reads.append(loader.metrics().total.pages_read)
        store.close()
    # What is estimated beyond the window is nearly as good on so small a graph.
    assert reads[1] <= 1.02 * reads[0]


def test_loaders_share_rows_in_memory_and_need_no_features(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    one, other, none = open_store(rows), open_store(rows), open_store({})  # registered once, or CUDA refuses
    plain = checks.plain_epoch(dataset)
    with (
        checks.open_loader(machine, dataset, one) as first,
        checks.open_loader(machine, dataset, other) as second,
    ):
        for got, too, expected in zip(first, second, plain, strict=True):
            checks.equal_batches(got, expected)
            checks.equal_batches(too, expected)
    one.close()
    with checks.open_loader(machine, dataset, other) as second:
        checks.equal_batches(next(iter(second)), plain[0])
    other.close()
    with checks.open_loader(machine, dataset, none) as loader:
        assert [batch.features for batch in loader] == [{}] * len(plain)
    none.close()


def test_an_error_of_sampling_comes_behind_the_mini_batches_before_it(
    machine: checks.Machine, tmp_path: Path
) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    store = open_store(dataset, cache="10%", page_bytes=512)
    with checks.open_loader(machine, dataset, store, window=2) as loader:
        draw, calls = loader._path._sampler.sample, []

        def failing(*arguments: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 4:
                raise RuntimeError("no more")
            return draw(*arguments, **named)

        loader._path._sampler.sample = failing
        taken = []
        with pytest.raises(RuntimeError, match="no more"):
            taken.extend(loader)
        assert len(taken) == 3
    store.close()


def test_foresight_does_not_hold_up_the_first_mini_batch(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    store = open_store(dataset, cache="10%", page_bytes=512)
    with checks.open_loader(machine, dataset, store, window=1, foresight=64, batch_size=10) as loader:
        iterator = iter(loader)
        next(iterator)
        fetcher = iterator._pipeline._fetcher
        assert len(fetcher) < 12  # of 30
    store.close()


def test_a_shared_store_says_where_it_is(machine: checks.Machine, tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    store = open_store(dataset, cache="10%", page_bytes=512)
    for wrong in ({"device": "meta"}, {"read_path": "host"}):
        with pytest.raises(ConfigError, match="the features are there"):
            checks.open_loader(machine, dataset, store, **wrong)
    store.close()


def test_memory_of_mini_batches_follows_from_the_settings(tmp_path: Path) -> None:
    dataset = gids.open_dataset(checks.make_data(tmp_path))
    sources = row_sources(dataset)
    row_bytes = {name: source.row_bytes for name, source in sources.items()}
    seeds = SeedBatches(checks.SEEDS, dataset.graph.schema, batch_size=2, seed=0)

    def held(**changed: Any) -> int:
        named = {"window": 2, "foresight": 0, "accumulate": 0, "prefetch": 1} | changed
        request = PathRequest(
            graph=dataset.graph,
            sampler=checks.neighbor(),
            given=dataset,
            labels={},
            seeds=seeds,
            device=torch.device("cuda"),
            kind="auto",
            dtype=None,
            settings=FeatureSettings(),
            gpu_buffer=0,
            graph_bytes=None,
            gpu=None,
            peak_share=0.95,
            **named,
        )
        return _held_bytes(request, _batch_bytes(request, row_bytes), sources)

    usual = held()
    assert held(window=20) > usual
    assert held(foresight=30) > held(foresight=10) > usual
    assert usual < held(foresight="auto") <= held(foresight=64)
    assert held(prefetch=5) > usual
    assert held(accumulate="1GiB") >= usual + 2 * 2**30 > held(accumulate="auto") == usual
