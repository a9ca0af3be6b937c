"""The GPU sampler's steps, run by threads of the host, against the compiled CPU sampler: the same bits."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import graphs, power_law_graph, seeds_of
from host_kernels import REPOSITORY, HostKernels, host_library
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.errors import ConfigError
from bam.native import nvrtc
from gids.bench.digest import batch_sha256
from gids.errors import DuplicateSeed, GidsError, GraphError, NodeOutOfRange, PackageMissing
from gids.graph.csc import Csc
from gids.graph.graph import Graph
from gids.graph.schema import EdgeType, Schema
from gids.sampling import reference
from gids.sampling.block import SampledBatch
from gids.sampling.cuda.kernels import NATIVE_FOLDER, CudaKernels
from gids.sampling.cuda.sampler import CudaSampler
from gids.sampling.cuda.structs import COutput, CPlan, CRelation
from gids.sampling.cuda.workspace import Capacities, Workspace
from gids.sampling.dgl_import import import_dgl
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch
from gids.sampling.to_dgl import to_dgl
from gids.sampling.to_pyg import edges_by_hop


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return host_library(tmp_path_factory.mktemp("native"))


def assert_equal_batches(found: TensorBatch, expected: SampledBatch) -> None:
    """In every number, and in the order of everything that has one."""
    assert found.node_counts == expected.node_counts
    assert (found.epoch, found.batch, found.resampled) == (expected.epoch, expected.batch, expected.resampled)
    assert list(found.nodes) == list(expected.nodes)
    for name, ids in expected.nodes.items():
        np.testing.assert_array_equal(found.nodes[name].numpy(), ids)
    assert len(found.blocks) == len(expected.blocks)
    for block, own in zip(found.blocks, expected.blocks, strict=True):
        assert (block.num_src, block.num_dst) == (own.num_src, own.num_dst)
        assert list(block.edges) == list(own.edges)
        for edge_type, edges in own.edges.items():
            same = block.edges[edge_type]
            assert same.indptr.dtype == same.indices.dtype == torch.int64
            np.testing.assert_array_equal(same.indptr.numpy(), edges.indptr)
            np.testing.assert_array_equal(same.indices.numpy(), edges.indices)
            assert (same.edge_ids is None) == (edges.edge_ids is None)
            if same.edge_ids is not None and edges.edge_ids is not None:
                np.testing.assert_array_equal(same.edge_ids.numpy(), edges.edge_ids)


@settings(max_examples=60)
@given(st.data())
def test_same_bits_as_the_cpu_sampler(library: ctypes.CDLL, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    seeds = data.draw(seeds_of(graph))
    one_layer = st.integers(-1, 5) | st.fixed_dictionaries(
        dict.fromkeys(graph.schema.edge_types, st.integers(-1, 4))
    )
    sampler = NeighborSampler(
        data.draw(st.lists(one_layer, min_size=1, max_size=3)),
        replace=data.draw(st.booleans()),
        resample=data.draw(st.booleans()),
        return_edge_ids=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 2**64 - 1)),
    )
    numbers = {"epoch": data.draw(st.integers(0, 2**32 - 1)), "batch": data.draw(st.integers(0, 2**32 - 1))}
    on_gpu = CudaSampler(
        sampler, graph, graph_bytes=data.draw(st.sampled_from([None, 0, 300])), kernels=HostKernels(library)
    )
    assert_equal_batches(on_gpu.sample(seeds, **numbers), sampler.sample(graph, seeds, **numbers))


@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize(("blocks", "members"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_any_number_of_blocks_and_threads(
    library: ctypes.CDLL, replacement: bool, resample: bool, blocks: int, members: int
) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler(
        [9, 4], replace=replacement, resample=resample, return_edge_ids=True, seed=2**63 + 5
    )
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library, blocks, members))
    for batch in range(3):
        seeds = {"p": np.arange(batch, 3000, 3), "q": np.arange(7)}
        found = on_gpu.sample(seeds, batch=batch)
        assert found.num_edges > 20_000
        assert_equal_batches(found, sampler.sample(graph, seeds, batch=batch))


@pytest.mark.parametrize("fanout", [63, 64, 65, 100, 700])
@pytest.mark.parametrize("replacement", [False, True])
def test_large_fanouts(library: ctypes.CDLL, fanout: int, replacement: bool) -> None:
    degrees = [0, 1, fanout - 1, fanout, fanout + 1, fanout + 2, 3 * fanout, 2000]
    dst = np.repeat(np.arange(len(degrees)), degrees)
    graph = Graph.from_coo((np.arange(len(dst)), dst), len(dst))
    sampler = NeighborSampler([fanout], replace=replacement, return_edge_ids=True, seed=5)
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library, 2, 2))
    seeds = list(range(len(degrees)))
    assert_equal_batches(on_gpu.sample(seeds), sampler.sample(graph, seeds))


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 2**64 - 1))
def test_dense_choices(library: ctypes.CDLL, fanout: int, more: int, seed: int) -> None:
    """Nearly all neighbours are taken, so that chains of replaced draws are long."""
    degree = fanout + more
    graph = Graph.from_coo(
        (np.tile(np.arange(degree), 30), np.repeat(np.arange(30), degree)), max(30, degree)
    )
    sampler = NeighborSampler([fanout], seed=seed)
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))
    assert_equal_batches(on_gpu.sample(np.arange(30)), sampler.sample(graph, np.arange(30)))


@settings(max_examples=200)
@given(
    st.integers(0, 2**64 - 1),
    st.tuples(*[st.integers(0, 2**32 - 1)] * 4),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**31),
    st.integers(1, 2**32 - 1) | st.integers(2**31, 2**31 + 10),
)
def test_random_numbers_are_those_of_the_reference(
    library: ctypes.CDLL, seed: int, numbers: tuple[int, int, int, int], item: int, draw: int, n: int
) -> None:
    out = (ctypes.c_uint32 * 4)()
    library.draw_words(
        ctypes.c_uint64(seed),
        (ctypes.c_uint32 * 4)(*numbers),
        *(ctypes.c_uint64(item), ctypes.c_uint32(draw), ctypes.c_uint32(n), out),
    )
    key = reference.stream_key(seed, *numbers)
    expected = (*key, reference.word(key, item, draw, 0), reference.below(n, key, item, draw))
    assert tuple(out) == expected


def test_structs_have_the_sizes_of_the_headers(library: ctypes.CDLL) -> None:
    for name, struct in (("Plan", CPlan), ("Relation", CRelation), ("Output", COutput)):
        assert library.size_of(name.encode()) == ctypes.sizeof(struct)


def test_launches_do_not_depend_on_relations_and_the_host_waits_once(library: ctypes.CDLL) -> None:
    graph = power_law_graph()
    kernels = HostKernels(library)
    on_gpu = CudaSampler(NeighborSampler([5, 5]), graph, kernels=kernels)
    for _ in range(3):
        on_gpu.sample({"p": np.arange(300)})
    kernels.launches.clear()
    kernels.waits = 0
    on_gpu.sample({"p": np.arange(300)})
    assert len(kernels.launches) == 3 + 2 * 7 + 1
    assert kernels.waits == 1


def test_buffers_grow_from_one_entry(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny(nodes: np.ndarray) -> Capacities:
        return Capacities(np.minimum(nodes, 1), items=1, edges=1, seeds=1, slot_bits=1)

    monkeypatch.setattr("gids.sampling.cuda.workspace.Capacities", tiny)
    graph = power_law_graph()
    sampler = NeighborSampler([6, 6, 6], return_edge_ids=True)
    kernels = HostKernels(library, 2, 2)
    on_gpu = CudaSampler(sampler, graph, kernels=kernels)
    for seeds in ({"p": np.arange(3000)}, {"q": [5]}, {"p": [], "q": np.arange(2999, -1, -1)}):
        assert_equal_batches(on_gpu.sample(seeds), sampler.sample(graph, seeds))
    assert kernels.launches.count("prepare") > 3 + 3


def test_one_sampler_serves_many_threads(library: ctypes.CDLL) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([5, 5])
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))

    def sample(batch: int) -> TensorBatch:
        return on_gpu.sample({"p": np.arange(batch, batch + 200)}, batch=batch)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(sample, range(24)))
    for batch, each in enumerate(found):
        assert_equal_batches(each, sampler.sample(graph, {"p": np.arange(batch, batch + 200)}, batch=batch))


def errors_of(library: ctypes.CDLL, graph: Graph, seeds: object) -> list[GidsError]:
    """What the CPU and the GPU sampler raise."""
    sampler = NeighborSampler([2, 2])
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))
    errors = []
    for sample in (lambda: sampler.sample(graph, seeds), lambda: on_gpu.sample(seeds)):
        with pytest.raises(GidsError) as caught:
            sample()
        errors.append(caught.value)
    return errors


@pytest.mark.parametrize("seeds", [[1, 2, 3, 2, 1], [4, 9, 1, 9], [0, 10], [0, 3, -1, 3], [7, 2**40]])
def test_seeds_that_cannot_be(library: ctypes.CDLL, seeds: list[int]) -> None:
    graph = Graph.from_coo(([0, 1], [1, 2]), 10)
    by_cpu, by_gpu = errors_of(library, graph, seeds)
    assert isinstance(by_gpu, (DuplicateSeed, NodeOutOfRange))
    assert (type(by_gpu), str(by_gpu)) == (type(by_cpu), str(by_cpu))


def test_more_seeds_than_nodes(library: ctypes.CDLL) -> None:
    graph = Graph.from_coo(([0, 1], [1, 2]), 3)
    by_cpu, by_gpu = errors_of(library, graph, [0, 1, 2, 0] * 1000)
    assert str(by_gpu) == str(by_cpu)


@pytest.mark.parametrize("indptr", [[0, 3, 1, 4], [0, -1, 2, 4], [0, 9, 4, 4]])
def test_damaged_column_pointers(library: ctypes.CDLL, indptr: list[int]) -> None:
    csc = Csc(np.array([0, 1, 3, 4]), np.array([0, 1, 2, 0], np.int32), 3, name="r")
    csc.indptr[:] = indptr
    graph = Graph(Schema({"_N": 3}, [("_N", "_E", "_N")]), {EdgeType("_N", "_E", "_N"): csc})
    by_cpu, by_gpu = errors_of(library, graph, [0])
    if isinstance(by_cpu, GraphError):
        assert str(by_gpu) == str(by_cpu)


@pytest.mark.parametrize("index", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_damaged_sources(library: ctypes.CDLL, index: int, dtype: type) -> None:
    csc = Csc(np.array([0, 1, 3, 4]), np.array([0, 1, index, 0], dtype), 3, name="r")
    graph = Graph(Schema({"_N": 3}, [("_N", "_E", "_N")]), {EdgeType("_N", "_E", "_N"): csc})
    by_cpu, by_gpu = errors_of(library, graph, [0, 1])
    assert isinstance(by_gpu, GraphError)
    assert str(by_gpu) == str(by_cpu)


def test_after_an_error_the_sampler_goes_on(library: ctypes.CDLL) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([4, 4])
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))
    for _ in range(2):
        with pytest.raises(DuplicateSeed):
            on_gpu.sample({"p": [1, 1]})
        assert_equal_batches(on_gpu.sample({"p": [1]}), sampler.sample(graph, {"p": [1]}))


def test_ids_that_leave_few_bits_are_refused(library: ctypes.CDLL) -> None:
    """A hash table's word holds key and local id; with 2^60 nodes 3 bits are left."""
    graph = power_law_graph()
    on_gpu = CudaSampler(NeighborSampler([5]), graph, kernels=HostKernels(library))
    on_gpu._resident = replace(on_gpu._resident, local_bits=5)
    with pytest.raises(GraphError, match="fewer nodes"):
        on_gpu.sample({"p": np.arange(10)})


def test_memory_that_runs_out_is_a_clear_error(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = power_law_graph()
    on_gpu = CudaSampler(NeighborSampler([-1, -1, -1]), graph, kernels=HostKernels(library))

    def out_of_memory(_workspace: Workspace, _status: list[int]) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Workspace, "grow", out_of_memory)
        with pytest.raises(GraphError, match="GPU's memory"):
            on_gpu.sample({"p": np.arange(3000)})
    assert on_gpu.sample({"p": np.arange(3000)}).num_edges > 100_000


@pytest.mark.parametrize("resample", [False, True])
def test_conversions_do_not_see_a_difference(library: ctypes.CDLL, resample: bool) -> None:
    graph = power_law_graph()
    sampler = NeighborSampler([6, 3], resample=resample, return_edge_ids=True)
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))
    found, expected = on_gpu.sample({"p": np.arange(90)}), sampler.sample(graph, {"p": np.arange(90)})
    assert batch_sha256(found.to_host()) == batch_sha256(expected)
    assert TensorBatch.of(found) is found
    assert_equal_batches(TensorBatch.of(expected), expected)
    found.record_stream(None)  # tensors of the CPU need no stream
    by_hop, expected_by_hop = edges_by_hop(found), edges_by_hop(TensorBatch.of(expected))
    for edge_type, edges in expected_by_hop.items():
        assert by_hop[edge_type].counts == edges.counts
        assert torch.equal(by_hop[edge_type].ends, edges.ends)


@pytest.mark.parametrize("ids", [False, True])
def test_a_batch_moves_to_another_device_as_a_whole(ids: bool) -> None:
    graph = power_law_graph()
    expected = NeighborSampler([4, 2], return_edge_ids=ids).sample(graph, {"p": np.arange(50)})
    batch = TensorBatch.of(expected)
    assert batch.to("cpu") is batch
    moved = batch.to("meta")  # a device every build of torch has; it keeps shapes
    assert {each.device.type for each in moved._tensors()} == {"meta"}
    assert [each.shape for each in moved._tensors()] == [each.shape for each in batch._tensors()]
    assert moved.node_counts == batch.node_counts


def test_dgl_blocks_are_the_same(library: ctypes.CDLL) -> None:
    try:
        dgl = import_dgl()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    graph = power_law_graph()
    sampler = NeighborSampler([6, 3], return_edge_ids=True)
    on_gpu = CudaSampler(sampler, graph, kernels=HostKernels(library))
    found = to_dgl(on_gpu.sample({"p": np.arange(90)}))
    expected = to_dgl(sampler.sample(graph, {"p": np.arange(90)}))
    for block, own in zip(found[2], expected[2], strict=True):
        for edge_type in block.canonical_etypes:
            for one, other in zip(block.edges(etype=edge_type), own.edges(etype=edge_type), strict=True):
                assert torch.equal(one, other)
            assert torch.equal(block.edges[edge_type].data[dgl.EID], own.edges[edge_type].data[dgl.EID])
        for name in graph.schema.node_types:
            assert torch.equal(block.srcnodes[name].data[dgl.NID], own.srcnodes[name].data[dgl.NID])


def test_a_machine_without_a_gpu_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ConfigError, match="GPU"):
        CudaKernels()


@pytest.mark.skipif(not nvrtc.available(), reason="no NVRTC on this machine")
def test_kernels_compile_at_run_time() -> None:
    cubin = nvrtc.compiled(
        (NATIVE_FOLDER / "sampler.cu").read_text(), "sampler.cu", "sm_90", include=[NATIVE_FOLDER]
    )
    assert b"plan_nodes" in cubin


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_kernels_compile_for_the_gpu(tmp_path: Path) -> None:
    fatbin = tmp_path / "sampler.fatbin"
    # C++20 because platform.h also gives the host its std::atomic_ref.
    command = ["nvcc", "-std=c++20", "-Werror=all-warnings", "-fatbin", "--threads=2", "-o", str(fatbin)]
    for arch in (80, 90, 100, 120):
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-I", str(REPOSITORY / "bam/native/include"), "-I", str(NATIVE_FOLDER)]
    compiled = subprocess.run(
        [*command, str(NATIVE_FOLDER / "sampler.cu")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert compiled.returncode == 0, compiled.stderr
    assert fatbin.stat().st_size > 0
