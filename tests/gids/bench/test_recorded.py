"""Mini-batches on disk are those that were sampled; fingerprints see every change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gids.bench.digest import batch_sha256, features_sha256
from gids.bench.loaders import LoaderData
from gids.bench.recorded import INDEX_NAME, open_recorded, record
from gids.bench.sources import BatchPlan, RecordedSource, SampledSource
from gids.errors import DatasetError
from gids.sampling.block import SampledBatch


@pytest.fixture(scope="module")
def sampled(data: LoaderData) -> list[SampledBatch]:
    plan = BatchPlan({"paper": np.arange(200)}, (4, 3, 2), 64, seed=5)
    return list(SampledSource(data.dataset.graph, plan).batches(1))


def test_recorded_batches_come_back(sampled: list[SampledBatch], data: LoaderData, tmp_path: Path) -> None:
    record(tmp_path, data.dataset.graph.schema, sampled)
    recorded = open_recorded(tmp_path)
    assert len(recorded) == len(sampled) == 4
    for number, batch in enumerate(sampled):
        back = recorded[number]
        assert (back.epoch, back.batch, back.resampled) == (1, number, batch.resampled)
        assert back.node_counts == tuple(map(dict, batch.node_counts))
        assert back.schema == batch.schema
        for block, original in zip(back.blocks, batch.blocks, strict=True):
            assert (block.num_src, block.num_dst) == (dict(original.num_src), dict(original.num_dst))
        assert batch_sha256(back) == batch_sha256(batch)
    source = RecordedSource(recorded)
    assert [batch.batch for batch in source.batches(7, first=2)] == [2, 3]
    with pytest.raises(IndexError, match="mini-batch 4 of 4"):
        recorded[4]


def test_ids_that_need_64_bits(sampled: list[SampledBatch], tmp_path: Path) -> None:
    far = {name: ids + 2**33 for name, ids in sampled[0].nodes.items()}
    record(tmp_path, sampled[0].schema, [replace(sampled[0], nodes=far)])
    np.testing.assert_array_equal(open_recorded(tmp_path)[0].nodes["author"], far["author"])


def test_a_recording_that_was_cut_short_does_not_open(
    sampled: list[SampledBatch], data: LoaderData, tmp_path: Path
) -> None:
    def failing() -> object:
        yield sampled[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(tmp_path, data.dataset.graph.schema, failing())
    with pytest.raises(DatasetError, match="a finished recording"):
        open_recorded(tmp_path)
    (tmp_path / INDEX_NAME).write_text('{"version": 99}')
    with pytest.raises(DatasetError, match="version 1"):
        open_recorded(tmp_path)


def test_every_change_of_a_batch_changes_its_fingerprint(sampled: list[SampledBatch]) -> None:
    batch = sampled[0]
    known = {batch_sha256(each) for each in sampled}
    assert len(known) == len(sampled)
    nodes = {**batch.nodes, "fos": batch.nodes["fos"][::-1].copy()}
    assert batch_sha256(replace(batch, nodes=nodes)) not in known
    block = batch.blocks[0]
    name, edges = max(block.edges.items(), key=lambda item: item[1].num_edges)
    indices = edges.indices.copy()
    indices[-1] = 0 if indices[-1] else 1
    changed = replace(block, edges={**block.edges, name: replace(edges, indices=indices)})
    assert batch_sha256(replace(batch, blocks=(changed, *batch.blocks[1:]))) not in known
    assert batch_sha256(replace(batch, epoch=9)) in known  # the same mini-batch by another name


def test_every_change_of_features_changes_their_fingerprint() -> None:
    rows = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    known = features_sha256({"a": rows})
    assert features_sha256({"a": rows.clone(), "empty": torch.empty(0, 2)}) == known
    assert features_sha256({"a": rows.t().contiguous().t()}) == known
    others = [
        {"b": rows},
        {"a": rows.reshape(4, 3)},
        {"a": rows.to(torch.float64)},
        {"a": rows.flip(0)},
        {"a": torch.where(rows == 7, 7.0000005, rows)},
        {"a": rows, "b": rows},
    ]
    assert len({known, *map(features_sha256, others)}) == 1 + len(others)
    assert features_sha256({"a": rows.to(torch.bfloat16)}) != known
