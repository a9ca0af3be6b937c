"""Checks of loaders that read on a GPU, for the emulated one and a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bam
import gids
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from gids.bench.data import prepare_data
from gids.config import run_config
from gids.errors import GpuMemoryExceeded
from gids.fetch.calibration import Calibration, Point, store_calibration
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.device_identity import DeviceIdentity
from gids.fetch.expected_requests import HotnessMethod, save_expected
from gids.fetch.hotness_methods import expect_requests
from gids.graph.dataset import Dataset
from gids.loader.loader import DataLoader
from gids.loader.minibatch import MiniBatch
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch

#: Opens a data set's features on the GPU at hand; settings of FeatureSettings, and `gpu_buffer`.
OpenStore = Callable[..., GpuFeatureStore]
N_SEEDS = 300
SEEDS = {"paper": np.arange(N_SEEDS)}
# (hotness method, settings of the store, window): emulated and real GPUs are held to the same epochs
EPOCHS: list[tuple[str, dict[str, Any], Any]] = [
    ("", {"cache": "10%"}, 4),
    ("measured", {"cache": "10%", "cpu_buffer": "20%"}, 4),
    ("measured", {"cache": "5%", "cpu_buffer": "10%", "gpu_buffer": "5%"}, "64KiB"),
    ("", {"cache": "1KiB", "cpu_buffer": "20%", "gpu_buffer": "10%"}, 2),
    ("", {"cache": "auto"}, 0),
]


@dataclass(frozen=True)
class Machine:
    """The GPU at hand.

    Attributes
    ----------
    open_store : callable
    sampler : callable
        A NeighborSampler and a graph -> a sampler for loaders on this GPU.
    """

    open_store: OpenStore
    sampler: Callable[[NeighborSampler, Any], Any]


def make_data(folder: Path, method: str = "", dtype: str = "float32") -> Path:
    """A small IGBH store in `folder`, of this element type; with hotness by `method`."""
    data = {"folder": "igbh", "store": "store", "task": "19", "synth_scale": "0.01", "synth_dim": 24}
    data["dtype"] = dtype
    prepare_data(run_config({"name": "small", "data": data}).data, folder)
    store = folder / "store"
    if method:
        dataset = gids.open_dataset(store)
        found = expect_requests(
            dataset.graph,
            dataset.features,
            SEEDS,
            neighbor(),
            batch_size=50,
            method=HotnessMethod(method),
            first_epoch=7,
        )
        save_expected(found, store)
    return store


def neighbor() -> NeighborSampler:
    return NeighborSampler([4, 3], seed=5)


def check_constant_rows_come_in_bulk(machine: Machine, folder: Path) -> None:
    """Of a hot-first store they follow each other, in the GPU's memory and in pinned memory."""
    dataset = gids.open_dataset(make_data(folder))
    bulk = bam.BulkSettings(task_bytes="64KiB", threads=3)
    store = machine.open_store(dataset, cache="10%", cpu_buffer="20%", gpu_buffer="10%", bulk=bulk)
    store.wait_until_loaded()
    described, gpu = store.describe(), store.group.store.gpu
    for kind, held in (("constant", store._pinned), ("resident", store._resident)):
        assert held
        for name, placed in held.items():
            buffer = placed.buffer
            assert buffer.first_row is not None
            assert "3 threads, 65536 bytes a task" in described[name][f"{kind}_path"]
            if kind == "resident":
                found = gpu.read(placed.address, buffer.n_rows * buffer.row_bytes)
            else:
                found = np.empty((buffer.n_rows, buffer.row_bytes), np.uint8)
                buffer.copy(np.arange(buffer.n_rows), found, np.arange(buffer.n_rows))
            rows = slice(buffer.first_row, buffer.first_row + buffer.n_rows)
            expected = bam.load_array(dataset.features[name].source, rows=rows).rows
            assert found.tobytes() == expected.tobytes()
    store.close()


def open_loader(machine: Machine, dataset: Dataset, store: GpuFeatureStore, **settings: Any) -> DataLoader:
    """Of the data set's labelled papers."""
    defaults: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 3, "labels": "19"}
    defaults["device"] = store.device
    return DataLoader(
        dataset, SEEDS, machine.sampler(neighbor(), dataset.graph), features=store, **{**defaults, **settings}
    )


def plain_epoch(dataset: Dataset, **settings: Any) -> list[MiniBatch]:
    """The same on the host, through memory maps' plain path."""
    rows = {name: each.take(np.arange(each.n_rows)) for name, each in dataset.features.items()}
    defaults: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 3, "labels": "19"}
    with DataLoader(
        dataset.graph,
        SEEDS,
        neighbor(),
        features=rows,
        **{**defaults, "labels": {"paper": dataset.tasks["19"].labels}, **settings},
    ) as loader:
        return list(loader)


def equal_batches(got: MiniBatch, expected: MiniBatch) -> None:
    """Nodes, blocks, features and labels, bit for bit."""
    sampled = TensorBatch.of(got.sampled).to_host()
    for name, ids in expected.nodes.items():
        np.testing.assert_array_equal(sampled.nodes[name], ids)
    for mine, theirs in zip(sampled.blocks, expected.blocks, strict=True):
        for edge_type, edges in theirs.edges.items():
            np.testing.assert_array_equal(mine.edges[edge_type].indptr, edges.indptr)
            np.testing.assert_array_equal(mine.edges[edge_type].indices, edges.indices)
    for tensors, others in ((got.features, expected.features), (got.labels, expected.labels)):
        assert set(tensors) == set(others)
        for name, tensor in others.items():
            assert torch.equal(tensors[name].cpu(), tensor), name


def check_epochs(
    machine: Machine, folder: Path, method: str, settings: Mapping[str, Any], window: Any
) -> Any:
    """Two epochs equal the plain ones; every row is counted once. Returns the metrics."""
    dataset = gids.open_dataset(make_data(folder, method))
    store = machine.open_store(dataset, page_bytes=512, **settings)
    try:
        store.wait_until_loaded()
        with open_loader(machine, dataset, store, window=window) as loader:
            for epoch in range(2):
                with_plain = plain_epoch(dataset) if epoch == 0 else None
                got = list(loader)
                if with_plain is not None:
                    for mine, plain in zip(got, with_plain, strict=True):
                        equal_batches(mine, plain)
                assert sorted(torch.cat([each.output_nodes["paper"] for each in got]).tolist()) == list(
                    range(N_SEEDS)
                )
                for batch in got:
                    for name, counts in batch.counts.items():
                        assert counts.rows_requested == len(batch.nodes[name])
                        assert counts.rows_requested == (
                            counts.rows_constant
                            + counts.rows_cache
                            + counts.rows_joined
                            + counts.rows_storage
                        )
            return loader.metrics()
    finally:
        store.close()


def check_counts(machine: Machine, folder: Path) -> None:
    """Where nothing is given up, every counter is that of a plain model: a set of the pages seen so far."""
    dataset = gids.open_dataset(make_data(folder, "measured"))
    store = machine.open_store(dataset, page_bytes=512, cache="64MiB", cpu_buffer="20%", gpu_buffer="5%")
    try:
        store.wait_until_loaded()
        kept = {
            name: {kind: members(rows) for kind, rows in (("resident", resident), ("constant", constant))}
            for name in dataset.features
            for resident, constant in [(store.resident().get(name), store.constant().get(name))]
        }
        seen: dict[str, set[int]] = {name: set() for name in dataset.features}
        with open_loader(machine, dataset, store, window=3) as loader:
            for _ in range(2):
                for batch in loader:
                    for name, features in dataset.features.items():
                        nodes = np.asarray(torch.as_tensor(batch.nodes[name]).cpu())
                        check_counts_of(batch.counts[name], features, nodes, kept[name], seen[name])
    finally:
        store.close()


def members(rows: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Row numbers of constant rows."""
    if rows is None:
        return np.empty(0, np.int64)
    held = rows.owner.buffer.row_set
    return np.arange(rows.n_rows) if held is None else held.members()


def check_counts_of(counts: Any, features: Any, nodes: Any, kept: Any, seen: set[int]) -> None:
    rows = features.rows_of(nodes)
    resident = np.isin(rows, kept["resident"])
    constant = resident | np.isin(rows, kept["constant"])
    begin = rows[~constant] * features.row_bytes
    first, last = begin // 512, (begin + features.row_bytes - 1) // 512
    touched = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)] or [[]])
    new = set(touched.tolist()) - seen
    reads = np.array([bool(new & {a, b}) for a, b in zip(first.tolist(), last.tolist(), strict=True)], bool)
    assert counts.rows_requested == len(rows)
    assert counts.rows_resident == resident.sum()
    assert counts.rows_constant == constant.sum()
    assert counts.pages_requested == len(touched)
    assert counts.pages_read == len(new)
    assert counts.pages_bypassed == 0
    assert counts.bytes_read == 512 * len(new)
    assert counts.bytes_useful == (~constant).sum() * features.row_bytes
    # A page that two rows of a mini-batch need is read for one of them, and joined by the other.
    assert counts.rows_storage + counts.rows_joined >= reads.sum() >= counts.rows_storage
    seen |= new


def check_resume(machine: Machine, folder: Path) -> None:
    """A loader that takes an epoch up in the middle gives what is left of it; loaders share a store."""
    dataset = gids.open_dataset(make_data(folder))
    plain = plain_epoch(dataset)
    store = machine.open_store(dataset, page_bytes=512, cache="10%")
    try:
        first = open_loader(machine, dataset, store, window=3)
        for _, batch in zip(range(2), first, strict=False):
            del batch
        state = first.state_dict()
        first.close()
        with (
            open_loader(machine, dataset, store, window=2) as second,
            open_loader(machine, dataset, store, shuffle=False) as other,
        ):
            second.load_state_dict(state)
            evaluation = iter(other)
            for expected, got in zip(plain[2:], second, strict=True):
                equal_batches(got, expected)
                seeds = next(evaluation).output_nodes["paper"]
                assert torch.equal(torch.diff(seeds.cpu()), torch.ones(len(seeds) - 1, dtype=torch.int64))
    finally:
        store.close()


def calibrate_long_reads_cheap(store: Path) -> None:
    """As if of its disk: 20,000 reads a second, 400 MB/s, so near pages are worth reading together."""
    points = tuple(
        Point(length, 16, min(20_000.0, 4e8 / length)) for length in (2**power for power in range(9, 18))
    )
    found = Calibration(DeviceIdentity.of_path(store), "uring", True, 2**30, points)
    store_calibration(found, store)


def check_groups(machine: Machine, folder: Path, method: str, settings: Mapping[str, Any]) -> None:
    """Mini-batches that are read together are those read alone, and are counted as a plain model says."""
    path = make_data(folder, method)
    calibrate_long_reads_cheap(path)
    dataset = gids.open_dataset(path)
    plain = plain_epoch(dataset, batch_size=20)
    read: dict[bool, int] = {}
    for together in (False, True):
        store = machine.open_store(dataset, page_bytes=512, **settings)
        try:
            store.wait_until_loaded()
            with open_loader(
                machine, dataset, store, batch_size=20, window=2, accumulate="1MiB" if together else 0
            ) as loader:
                for got, expected in zip(loader, plain, strict=True):
                    equal_batches(got, expected)
                    for name, counts in got.counts.items():
                        check_tiers(counts, dataset.features[name], store, got.nodes[name])
                metrics = loader.metrics()
            read[together] = metrics.total.pages_read
            asked = store.group.stats()
            assert metrics.total.pages_read == asked.misses
            # The distinct rows of a group are asked for once.
            assert (asked.rows < metrics.total.rows_requested) == together
        finally:
            store.close()
    assert read[True] < read[False]


def check_groups_of_what_is_kept(machine: Machine, folder: Path) -> None:
    """Where all was read before, an epoch does not wait for a whole group to be sampled."""
    path = make_data(folder)
    calibrate_long_reads_cheap(path)
    dataset = gids.open_dataset(path)
    plain = plain_epoch(dataset, batch_size=20)
    store = machine.open_store(dataset, page_bytes=512, cache="64MiB")
    try:
        with open_loader(machine, dataset, store, batch_size=20, window=2, accumulate="1MiB") as loader:
            groups = []
            for _ in range(2):
                loader.set_epoch(0)
                for got, expected in zip(loader, plain, strict=True):
                    equal_batches(got, expected)
                metrics = loader.metrics()
                assert metrics.accumulator is not None
                groups.append(metrics.accumulator.groups)
        # Those that were sampled before the first one had told may still be read together.
        assert groups[0] < len(plain) / 2 < len(plain) - 3 <= groups[1]
        assert store.settled
    finally:
        store.close()


def check_tiers(counts: Any, features: Any, store: GpuFeatureStore, nodes: Any) -> None:
    """Rows of one type by where they came from: exact, as far as they are in memory for good."""
    rows = features.rows_of(np.asarray(torch.as_tensor(nodes).cpu()))
    resident = np.isin(rows, members(store.resident().get(features.node_type)))
    pinned = np.isin(rows, members(store.constant().get(features.node_type))) & ~resident
    assert counts.rows_requested == len(rows)
    assert counts.rows_resident == resident.sum()
    assert counts.rows_constant == (resident | pinned).sum()
    assert counts.rows_cache + counts.rows_joined + counts.rows_storage == len(rows) - counts.rows_constant
    assert counts.bytes_useful == (len(rows) - counts.rows_constant) * features.row_bytes


#: (hotness method, settings of the store); constant rows as a range, as a set, and none.
GROUPED: list[tuple[str, dict[str, Any]]] = [
    ("", {"cache": "1KiB"}),
    ("", {"cache": "5%", "cpu_buffer": "20%", "gpu_buffer": "10%"}),
    ("measured", {"cache": "10%", "cpu_buffer": "20%", "gpu_buffer": "10%"}),
]


def check_a_page_that_fails_in_a_group(machine: Machine, folder: Path) -> None:
    """The mini-batches before the one that needs it arrive; then its error; a loader goes on from there."""
    path = make_data(folder)
    calibrate_long_reads_cheap(path)
    dataset = gids.open_dataset(path)
    # Of a group, page by page, and of the mini-batches that need it; in the end it can be read again.
    rules = [FaultRule(FaultKind.ERROR, probability=0.5, max_injections=2500)]
    store = machine.open_store(
        dataset, cache="1KiB", page_bytes=512, wrap=lambda engine: NativeFaultEngine(engine, rules)
    )
    plain, taken, failed = plain_epoch(dataset, batch_size=20), [], 0
    try:
        with open_loader(machine, dataset, store, batch_size=20, window=2, accumulate="1MiB") as loader:
            while len(taken) < len(plain):
                try:
                    taken.extend(loader)
                except bam.StorageError:
                    failed += 1
                    assert failed < 50
                    loader.load_state_dict(loader.state_dict())
            for got, expected in zip(taken, plain, strict=True):
                equal_batches(got, expected)
    finally:
        store.close()
    assert failed >= 1


def check_memory_is_asked_for_first(machine: Machine, folder: Path) -> None:
    """What cannot fit is refused with the setting to lower, before anything is read."""
    dataset = gids.open_dataset(make_data(folder))
    with pytest.raises(GpuMemoryExceeded, match="Lower 'cache'") as caught:
        machine.open_store(dataset, cache="100TiB")
    assert caught.value.parts["cache"] >= 100 * 2**40
