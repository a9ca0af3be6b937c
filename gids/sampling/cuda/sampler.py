"""`CudaSampler`: mini-batches made on a GPU.

The host queues all kernels of a mini-batch: three, and seven for each hop, however many relations there are;
once sizes are known they are one CUDA graph. It waits once for the sizes, allocates the arrays and queues one
more kernel that fills them. Kernels find sizes where the ones before left them. Buffers have the sizes that
earlier mini-batches needed; when one is too small, the mini-batch is made again with a larger one, which
happens in the first few only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np
import torch

from bam.errors import ConfigError
from gids.errors import GraphError
from gids.graph.csc import Int64Array
from gids.graph.graph import Graph
from gids.sampling.cuda.kernels import CudaKernels, Kernels, Launch
from gids.sampling.cuda.resident import shared_graph
from gids.sampling.cuda.structs import COutput, CPlan, Stop
from gids.sampling.cuda.views import Places, blocks_of
from gids.sampling.cuda.workspace import Report, Workspace
from gids.sampling.fanouts import fanout_matrix
from gids.sampling.launch import Seeds, failure, flat_seeds
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.tensor_batch import TensorBatch, split

_BEFORE_HOPS = ("prepare", "insert_seeds", "start")
_OF_A_HOP = ("count", "plan_edges", "place", "resolve", "flag", "plan_nodes", "number")


class CudaSampler:
    """Does what a `NeighborSampler` describes on a GPU, with the same result in every bit.

    Any number of threads may call one sampler; each mini-batch under way has buffers of its own.

    Parameters
    ----------
    sampler : NeighborSampler
        Fanouts and settings; its `threads` do not matter.
    graph : Graph
        Copied here once; samplers of one graph share the copy.
    device : torch.device or str
    graph_bytes : int or str, optional
        Memory of the GPU that the graph may take, such as ``"20GiB"``; what does not fit is copied to pinned
        host memory and read there in place. Default: three quarters of what is free.
    kernels : Kernels, optional
        Where the steps run; by default on `device`.

    Attributes
    ----------
    sampler : NeighborSampler
    graph : Graph
    device_bytes, pinned_bytes : int
        Of the graph: what lies on the GPU, and what is read over the bus.

    Raises
    ------
    ConfigError
        There is no such GPU, `graph_bytes` is no size, or the sampler shares draws.
    UnknownEdgeType
        The fanouts do not fit the graph.
    bam.errors.EngineUnavailable
        CuPy, NVRTC or its headers are missing.
    """

    def __init__(
        self,
        sampler: NeighborSampler,
        graph: Graph,
        *,
        device: torch.device | str = "cuda",
        graph_bytes: int | str | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        if why := why_on_host(sampler):
            expected = f"a NeighborSampler; this one samples on the host: {why}"
            raise ConfigError("sampler", type(sampler).__name__, expected)
        matrix = fanout_matrix(sampler.layers, graph.schema)
        self.sampler = self._sampler = sampler
        self.graph = self._graph = graph
        self._kernels = CudaKernels(device) if kernels is None else kernels
        self.device = self._kernels.device
        with self._kernels.current():
            self._resident = shared_graph(self._kernels, graph, graph_bytes, sampler.return_edge_ids)
            self._fanouts = torch.from_numpy(matrix).to(self.device)
            self._kernels.wait()  # mini-batches may be made on other streams
        self.device_bytes, self.pinned_bytes = self._resident.device_bytes, self._resident.pinned_bytes
        self._idle: list[Workspace] = []
        self._lock = threading.Lock()

    def sample(self, seeds: Seeds, *, epoch: int = 0, batch: int = 0) -> TensorBatch:
        """Sample one mini-batch on torch's current stream.

        Parameters
        ----------
        seeds : mapping of str to integers, or integers
            As `NeighborSampler.sample` takes them, in host memory.
        epoch, batch : int
            Likewise.

        Raises
        ------
        UnknownNodeType, NodeOutOfRange, DuplicateSeed, GraphError
            As `NeighborSampler.sample`.
        """
        numbers = np.array([self._sampler.seed, *self._sampler.checked_numbers(epoch, batch)], np.uint64)
        ids, counts = flat_seeds(seeds, self._graph.schema)
        request = np.concatenate((numbers.view(np.int64), counts, ids))
        with self._workspace() as workspace:
            report = self._run(workspace, request, len(ids))
            return self._unpacked(workspace, report, epoch, batch)

    @contextmanager
    def _workspace(self) -> Iterator[Workspace]:
        with self._lock:
            workspace = self._idle.pop() if self._idle else None
        with self._kernels.current():
            if workspace is None:
                workspace = Workspace(
                    self._kernels,
                    self._resident,
                    self._fanouts,
                    self._sampler.replace,
                    self._sampler.resample,
                )
            if workspace.last_use is not None:
                self._kernels.follow(workspace.last_use)
            yield workspace
            workspace.last_use = self._kernels.record()
        with self._lock:  # not after an error: then its buffers may be missing
            self._idle.append(workspace)

    def _run(self, workspace: Workspace, request: Int64Array, num_seeds: int) -> Report:
        while True:
            workspace.begin(request, num_seeds)
            if workspace.replay is None:
                for name, arguments in self._launches(workspace.plan):
                    self._kernels.launch(name, *arguments)
            else:
                workspace.replay()
            report = workspace.read_report()
            code = report.status[0]
            if code == Stop.OK:
                if workspace.replay is None:
                    workspace.replay = self._kernels.recorded(self._launches(workspace.plan))
                return report
            if code < Stop.MORE_ITEMS:
                raise failure(report.status, self._graph)
            try:
                workspace.grow(report.status)
            except torch.OutOfMemoryError as error:
                needed = f"{report.status[2]:,} {Stop(code).name.removeprefix('MORE_').lower()}"
                raise GraphError(
                    "mini-batch", "what fits in the GPU's memory; use fewer seeds or smaller fanouts", needed
                ) from error

    def _launches(self, plan: CPlan) -> list[Launch]:
        hops = range(len(self._sampler.layers))
        return [
            *((name, (plan,)) for name in _BEFORE_HOPS),
            *((name, (plan, hop)) for hop in hops for name in _OF_A_HOP),
        ]

    def _unpacked(self, workspace: Workspace, report: Report, epoch: int, batch: int) -> TensorBatch:
        relations = len(self._graph.schema.edge_types)
        places = Places.of(report.item_firsts, report.edge_firsts, relations, self._sampler.resample)
        workspace.places.array[:] = places.table
        nodes, indptr, sources = (
            torch.empty(entries, dtype=torch.int64, device=self.device)
            for entries in (int(report.node_counts[-1].sum()), places.num_pointers, places.num_edges)
        )
        edge_ids = torch.empty_like(sources) if self._sampler.return_edge_ids else None
        first, step = workspace.places.address, 8 * (len(places.table) // 3)
        output = COutput(
            nodes.data_ptr(),
            indptr.data_ptr(),
            sources.data_ptr(),
            None if edge_ids is None else edge_ids.data_ptr(),
            *(first + number * step for number in range(3)),
        )
        self._kernels.launch("pack", workspace.plan, output)
        names = self._graph.schema.node_types
        counts = report.node_counts.tolist()
        node_counts = tuple(dict(zip(names, row, strict=True)) for row in counts)
        blocks = blocks_of(self._graph.schema, node_counts, places, indptr, sources, edge_ids)
        by_type = MappingProxyType(dict(zip(names, split(nodes, counts[-1]), strict=True)))
        return TensorBatch(
            self._graph.schema, by_type, node_counts, blocks, epoch, batch, self._sampler.resample
        )


def why_on_host(sampler: NeighborSampler) -> str:
    """Why a sampler's mini-batches are not made on a GPU; empty when they can be."""
    if sampler.shared is not None:
        return "its mini-batches share draws"
    if type(sampler).sample is not NeighborSampler.sample:
        return "it has a way of its own to sample"
    return ""
