"""Conversions of a mini-batch: its features, labels and blocks together, on one device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gids.errors import PackageMissing
from gids.graph.graph import Graph
from gids.loader.loader import DataLoader
from gids.loader.minibatch import MiniBatch
from gids.sampling.dgl_import import import_dgl
from gids.sampling.neighbor import NeighborSampler

FEATURES = np.arange(120, dtype=np.float32).reshape(40, 3)
LABELS = np.arange(40)


@pytest.fixture
def batch() -> MiniBatch:
    random = np.random.default_rng(1)
    graph = Graph.from_coo((random.integers(0, 40, 300), random.integers(0, 40, 300)), 40)
    loader = DataLoader(
        graph,
        np.arange(10),
        NeighborSampler([4, 3], return_edge_ids=True),
        batch_size=10,
        features={"_N": FEATURES},
        labels={"_N": LABELS},
    )
    with loader:
        [made] = loader
    return made


def test_pyg_data_has_rows_and_labels_of_its_nodes(batch: MiniBatch) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    data = batch.to_pyg()
    np.testing.assert_array_equal(data.x.numpy(), FEATURES[data.n_id.numpy()])
    assert data.y.tolist() == LABELS[:10].tolist()
    assert data.edge_index.max() < len(data.n_id)


def test_dgl_blocks_have_rows_and_labels_of_their_nodes(batch: MiniBatch) -> None:
    try:
        import_dgl()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    input_nodes, output_nodes, blocks = batch.to_dgl()
    np.testing.assert_array_equal(blocks[0].srcdata["feat"].numpy(), FEATURES[input_nodes.numpy()])
    assert blocks[-1].dstdata["label"].tolist() == output_nodes.tolist() == list(range(10))


def test_blocks_follow_the_features_to_their_device(batch: MiniBatch) -> None:
    moved = batch.to("meta")._tensors()  # a device every build of torch has
    assert {each.device for each in moved._tensors()} == {torch.device("meta")}
    assert {each.device.type for each in batch._tensors()._tensors()} == {"cpu"}
