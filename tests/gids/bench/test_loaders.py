"""Every loader delivers the rows that the plain path reads, and says what it waited for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bam.errors import ConfigError
from gids.bench.data import open_data, prepare_data
from gids.bench.dgl_source import DglSource
from gids.bench.digest import batch_sha256, features_sha256
from gids.bench.loaders import LOADERS, LoadedBatch, LoaderData, Work
from gids.bench.loaders.ahead import one_ahead
from gids.bench.recorded import record
from gids.bench.sources import BatchPlan, BatchSource, SampledSource
from gids.config import RunConfig
from gids.config.sections import LOADER_NAMES
from gids.fetch.open import FeatureSettings, open_features
from gids.graph.feature_types import FeatureDtype
from gids.sampling.block import SampledBatch

PLAN = BatchPlan({"paper": np.arange(100, 300)}, (4, 3), 64, seed=2)


def test_configurations_know_every_loader() -> None:
    assert tuple(LOADERS) == LOADER_NAMES


def _check(batch: LoadedBatch, data: LoaderData) -> None:
    for name, features in data.dataset.features.items():
        expected = features.take(batch.sampled.nodes[name])
        np.testing.assert_array_equal(batch.features[name].numpy(), expected)
    seeds = batch.sampled.output_nodes["paper"]
    np.testing.assert_array_equal(batch.labels["paper"].numpy(), data.task.labels[seeds])
    assert min(batch.sample_s, batch.feature_wait_s, batch.adapt_s) >= 0


@pytest.mark.parametrize("name", LOADERS)
def test_the_same_batches_and_rows_through_every_loader(
    name: str, data: LoaderData, config: RunConfig, tmp_path: Path
) -> None:
    source = SampledSource(data.dataset.graph, PLAN)
    sampled = list(source.batches(0))
    recorded = record(tmp_path, data.dataset.graph.schema, sampled)
    expected = [batch_sha256(batch) for batch in sampled]
    with LOADERS[name](data, config) as loader:
        loader.warm_up(Work(replace(PLAN, batch_size=2, seeds={"paper": np.arange(4)})))
        for work in (Work(PLAN, recorded), Work(PLAN, same_batches=True)):
            deliveries = loader.deliver(work)
            assert len(deliveries) == 4
            delivered = list(deliveries.epoch(0))
            assert [batch_sha256(batch.sampled) for batch in delivered] == expected
            for batch in delivered:
                _check(batch, data)
            assert deliveries.resumes
            rest = [batch_sha256(batch.sampled) for batch in deliveries.epoch(0, first=3)]
            assert rest == expected[3:]
            assert list(deliveries.epoch(0, first=4)) == []
            deliveries.close()
        rows = sum(batch.features[each].shape[0] for batch in delivered for each in batch.features)
        if delivered[0].counts is not None:
            counts = [each for batch in delivered for each in batch.counts.values()]
            assert sum(each.rows_requested for each in counts) == rows
        assert loader.describe()["loader"]


def test_only_the_loaders_that_can_know_say_where_rows_came_from(data: LoaderData, config: RunConfig) -> None:
    knows = {}
    for name, kind in LOADERS.items():
        with kind(data, config) as loader:
            deliveries = loader.deliver(Work(PLAN, same_batches=True))
            knows[name] = next(deliveries.epoch(0)).counts is not None
            deliveries.close()
    assert [name for name, known in knows.items() if known] == ["gids", "in-memory", "on-device"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_stores_of_other_dtypes(dtype: str, config: RunConfig, root: Path, tmp_path: Path) -> None:
    settings = replace(config.data, store=f"store-{dtype}", dtype=FeatureDtype(dtype))
    prepare_data(settings, root)
    opened = open_data(settings, root, tmp_path)
    data = replace(opened, mapped_features=opened.dataset.features)
    digests = set()
    for kind in set(LOADERS.values()):
        with kind(data, config) as loader:
            deliveries = loader.deliver(Work(PLAN, same_batches=True))
            batch = next(deliveries.epoch(0))
            digests.add(features_sha256(batch.features))
            assert sorted(batch.scales) == (sorted(data.dataset.features) if dtype == "int8" else [])
            deliveries.close()
    assert len(digests) == 1


def _edges_of(batch: SampledBatch, layer: int) -> dict[str, Counter[tuple[int, int]]]:
    block, found = batch.blocks[layer], {}
    for edge_type, edges in block.edges.items():
        src = batch.nodes[edge_type.src][edges.indices]
        dst = batch.nodes[edge_type.dst][edges.destinations()]
        found[str(edge_type)] = Counter(zip(src.tolist(), dst.tolist(), strict=True))
    return found


def test_dgl_batches_are_sampled_from_the_graph(data: LoaderData) -> None:
    graph = data.dataset.graph
    source = DglSource(graph, PLAN)
    batches = list(source.batches(0))
    assert len(batches) == len(source) == 4
    seeds = np.concatenate([batch.output_nodes["paper"] for batch in batches])
    assert sorted(seeds.tolist()) == list(range(100, 300))
    for batch in batches:
        for layer, fanout in enumerate(PLAN.fanouts):
            for name, edges in _edges_of(batch, layer).items():
                per_destination = Counter(dst for _, dst in edges.elements())
                for (src, dst), count in edges.items():
                    assert np.count_nonzero(graph[name].in_edges(dst) == src) >= count
                for dst, count in per_destination.items():
                    assert count == min(fanout, len(graph[name].in_edges(dst)))
        assert batch.blocks[0].num_dst == batch.blocks[1].num_src
        for ids in batch.nodes.values():
            assert len(np.unique(ids)) == len(ids)
    assert source.adapt_s > 0


def test_dgl_batches_depend_on_the_epoch_and_leave_torch_alone(data: LoaderData) -> None:
    source = DglSource(data.dataset.graph, PLAN)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    orders = [next(source.batches(epoch)).output_nodes["paper"].tolist() for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ConfigError, match="--same-batches"):
        next(source.batches(0, first=1))


def test_dgl_with_full_neighbourhoods_equals_ours(data: LoaderData) -> None:
    plan = replace(PLAN, fanouts=(-1, -1), shuffle=False)
    ours = next(SampledSource(data.dataset.graph, plan).batches(0))
    theirs = next(DglSource(data.dataset.graph, plan).batches(0))
    for layer in range(2):
        assert _edges_of(ours, layer) == _edges_of(theirs, layer)


class _Failing(BatchSource):
    def __init__(self, inner: BatchSource) -> None:
        self._inner = inner

    def __len__(self) -> int:
        return 4

    def settings(self) -> dict[str, object]:
        return {}

    def batches(self, epoch: int, first: int = 0) -> Iterator[SampledBatch]:
        yield next(self._inner.batches(epoch))
        raise RuntimeError("the source broke")


def test_one_ahead_passes_errors_on_and_ends_its_thread(data: LoaderData, config: RunConfig) -> None:
    threads = threading.active_count()
    with LOADERS["in-memory"](data, config) as loader:
        deliveries = loader.deliver(Work(PLAN))
        deliveries._source = _Failing(SampledSource(data.dataset.graph, PLAN))
        ahead = one_ahead(lambda: deliveries.epoch(0))
        _check(next(ahead), data)
        with pytest.raises(RuntimeError, match="the source broke"):
            next(ahead)
        left = one_ahead(lambda: loader.deliver(Work(PLAN)).epoch(0))
        next(left)
        left.close()
    assert threading.active_count() == threads


def test_only_a_cache_with_room_for_every_page_keeps_all(data: LoaderData) -> None:
    features = data.dataset.features.values()
    needed = sum(-(-each.n_rows * each.row_bytes // 4096) * 4096 for each in features)
    for cache_bytes, expected in ((needed, True), (needed - 4096, False)):
        store = open_features(data.dataset, FeatureSettings(cache=cache_bytes))
        assert store.keeps_all is expected
        store.close()
