"""The sampler on a GPU gives the CPU sampler's mini-batches, bit for bit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from gids.errors import DuplicateSeed, GidsError
from gids.graph.graph import Graph
from gids.sampling.block import SampledBatch
from gids.sampling.cuda.kernels import CudaKernels
from gids.sampling.cuda.sampler import CudaSampler
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use on this machine"),
]

EDGE_TYPES = (("p", "cites", "p"), ("q", "writes", "p"), ("p", "by", "q"), ("q", "in", "r"), ("r", "of", "q"))


@pytest.fixture(scope="module")
def kernels() -> CudaKernels:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    return CudaKernels()


def power_law_graph(num_edges: int = 200_000, seed: int = 3) -> Graph:
    """Three node types; degrees from 0 to thousands, parallel edges and loops."""
    random = np.random.default_rng(seed)
    num_nodes = {"p": 20_000, "q": 9_000, "r": 50}

    def ends(name: str) -> np.ndarray:
        return (num_nodes[name] * random.random(num_edges) ** 3).astype(np.int64)

    return Graph.from_coo({each: (ends(each[0]), ends(each[2])) for each in EDGE_TYPES}, num_nodes)


def assert_equal_batches(found: TensorBatch, expected: SampledBatch) -> None:
    assert all(ids.is_cuda for ids in found.nodes.values())
    on_host = found.to_host()
    assert on_host.node_counts == expected.node_counts
    for name, ids in expected.nodes.items():
        np.testing.assert_array_equal(on_host.nodes[name], ids)
    for block, own in zip(on_host.blocks, expected.blocks, strict=True):
        assert (block.num_src, block.num_dst) == (own.num_src, own.num_dst)
        for edge_type, edges in own.edges.items():
            np.testing.assert_array_equal(block.edges[edge_type].indptr, edges.indptr)
            np.testing.assert_array_equal(block.edges[edge_type].indices, edges.indices)
            if edges.edge_ids is not None:
                np.testing.assert_array_equal(block.edges[edge_type].edge_ids, edges.edge_ids)


@pytest.mark.parametrize("graph_bytes", [None, 0, "2MB"])
@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("replacement", [False, True])
def test_same_bits(
    kernels: CudaKernels, replacement: bool, resample: bool, graph_bytes: int | str | None
) -> None:
    graph = power_law_graph()
    random = np.random.default_rng(0)
    for fanouts in (
        [15, 10, 5],
        [-1, 3],
        [2, {each: number - 1 for number, each in enumerate(EDGE_TYPES)}],
        100,
    ):
        sampler = NeighborSampler(
            fanouts, replace=replacement, resample=resample, return_edge_ids=True, seed=2**64 - 3
        )
        on_gpu = CudaSampler(sampler, graph, graph_bytes=graph_bytes, kernels=kernels)
        assert (on_gpu.pinned_bytes > 0) == (graph_bytes is not None)
        for batch in range(6):
            seeds = {
                name: random.choice(count, int(random.integers(1, min(count, 700))), replace=False)
                for name, count in graph.schema.num_nodes.items()
            }
            found = on_gpu.sample(seeds, epoch=2, batch=batch)
            assert_equal_batches(found, sampler.sample(graph, seeds, epoch=2, batch=batch))


def test_same_bits_on_any_stream_and_thread(kernels: CudaKernels) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([10, 5])
    on_gpu = CudaSampler(sampler, graph, kernels=kernels)

    def sample(batch: int) -> TensorBatch:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = on_gpu.sample({"p": np.arange(batch, batch + 400)}, batch=batch)
            found.record_stream(torch.cuda.default_stream())
            torch.cuda.current_stream().synchronize()
        return found

    with ThreadPoolExecutor(4) as pool:
        for batch, found in enumerate(pool.map(sample, range(64))):
            seeds = {"p": np.arange(batch, batch + 400)}
            assert_equal_batches(found, sampler.sample(graph, seeds, batch=batch))


def test_the_same_errors(kernels: CudaKernels) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([3, 3])
    on_gpu = CudaSampler(sampler, graph, kernels=kernels)
    for seeds in ({"p": [4, 5, 4]}, {"q": [1, 9_000]}, {"r": [-1]}):
        with pytest.raises(GidsError) as by_cpu:
            sampler.sample(graph, seeds)
        with pytest.raises(type(by_cpu.value), match=str(by_cpu.value)[:20]):
            on_gpu.sample(seeds)
    assert_equal_batches(on_gpu.sample({"p": [4, 5]}), sampler.sample(graph, {"p": [4, 5]}))


def test_a_seed_given_twice_far_apart(kernels: CudaKernels) -> None:
    graph = power_law_graph()
    on_gpu = CudaSampler(NeighborSampler([1]), graph, kernels=kernels)
    with pytest.raises(DuplicateSeed) as caught:
        on_gpu.sample({"p": [*range(15_000), 77, 3]})
    assert (caught.value.node_id, caught.value.position) == (77, 15_000)


def test_a_batch_of_the_cpu_moves_to_the_gpu(kernels: CudaKernels) -> None:
    graph = power_law_graph()
    expected = NeighborSampler([10, 5], return_edge_ids=True).sample(graph, {"p": np.arange(300)})
    assert_equal_batches(TensorBatch.of(expected).to(kernels.device), expected)


def test_to_pyg_on_the_gpu(kernels: CudaKernels) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    from gids.sampling.to_pyg import to_pyg

    graph = power_law_graph()
    for resample in (False, True):
        sampler = NeighborSampler([10, 5], resample=resample, return_edge_ids=True)
        found = to_pyg(CudaSampler(sampler, graph, kernels=kernels).sample({"p": np.arange(300)}))
        expected = to_pyg(sampler.sample(graph, {"p": np.arange(300)}))
        for edge_type in graph.schema.edge_types:
            one, other = found[tuple(edge_type)], expected[tuple(edge_type)]
            assert one.edge_index.is_cuda
            assert torch.equal(one.edge_index.cpu(), other.edge_index)
            assert torch.equal(one.e_id.cpu(), other.e_id)
            assert one.num_sampled_edges == other.num_sampled_edges
        for name in graph.schema.node_types:
            assert torch.equal(found[name].n_id.cpu(), expected[name].n_id)
            assert found[name].num_sampled_nodes == expected[name].num_sampled_nodes
