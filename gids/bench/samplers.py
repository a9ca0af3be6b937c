"""The samplers that `gids bench sample` compares, each run in a process of its own.

    python -m gids.bench.samplers NAME DIR THREADS

Requests come as lines of JSON on standard input, answers go out as lines of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gids.bench.digest import batch_sha256, joined_sha256
from gids.graph.csc import Int64Array
from gids.graph.graph import Graph
from gids.graph.open_dataset import open_dataset
from gids.sampling.launch import compile_seconds
from gids.sampling.neighbor import NeighborSampler

if TYPE_CHECKING:
    from gids.sampling.cuda.sampler import CudaSampler

Fanouts = Sequence[int]


@dataclass(frozen=True)
class Work:
    """Mini-batches to sample.

    Attributes
    ----------
    fanouts : list of int
        One per layer, the first layer first.
    node_type : str
        Of the seeds: all nodes, in an order that depends on nothing else.
    batch_size, first, steps : int
        Mini-batches `first` to `first + steps` of that order, which is gone through again and again.
    """

    fanouts: list[int]
    node_type: str
    batch_size: int
    first: int
    steps: int

    def seeds(self, graph: Graph) -> list[Int64Array]:
        """Seeds of each mini-batch."""
        order = np.random.default_rng(1).permutation(graph.schema.num_nodes[self.node_type])
        per_epoch = max(1, len(order) // self.batch_size)
        starts = [(self.first + step) % per_epoch * self.batch_size for step in range(self.steps)]
        return [order[start : start + self.batch_size] for start in starts]


class BenchSampler(ABC):
    """Something that samples mini-batches as fast as it can with some threads."""

    def __init__(self, graph: Graph, threads: int) -> None:
        self._graph, self._threads = graph, threads

    @abstractmethod
    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample mini-batches; edges of all their blocks."""

    @abstractmethod
    def counts(self, work: Work, seeds: Int64Array) -> dict[str, int]:
        """Of one mini-batch: edges of each relation in each block, input nodes of each type."""

    def compile_seconds(self) -> float:
        """Seconds until compiled code was ready; 0 where there is none."""
        return 0.0

    def gpu(self) -> str:
        """Name of the GPU it runs on; empty where it runs on the CPU."""
        return ""


class KeyedSampler(BenchSampler):
    """One whose mini-batches follow from seed, epoch and number, so that they can be compared."""

    @abstractmethod
    def digest(self, work: Work, seeds: Sequence[Int64Array]) -> str:
        """Fingerprint of mini-batches; equal when every number in them is."""


class GidsSampler(KeyedSampler):
    """One mini-batch at a time, all threads working on it."""

    def _sampler(self, work: Work) -> NeighborSampler:
        return NeighborSampler(work.fanouts, threads=self._threads)

    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample them."""
        sampler = self._sampler(work)
        batches = (
            sampler.sample(self._graph, {work.node_type: ids}, batch=work.first + step)
            for step, ids in enumerate(seeds)
        )
        return sum(batch.num_edges for batch in batches)

    def counts(self, work: Work, seeds: Int64Array) -> dict[str, int]:
        """Counts of one mini-batch."""
        batch = self._sampler(work).sample(self._graph, {work.node_type: seeds})
        counts = {
            f"{edge_type} {layer}": edges.num_edges
            for layer, block in enumerate(batch.blocks)
            for edge_type, edges in block.edges.items()
        }
        return counts | {name: len(ids) for name, ids in batch.input_nodes.items()}

    def digest(self, work: Work, seeds: Sequence[Int64Array]) -> str:
        """Fingerprint of mini-batches."""
        sampler = self._sampler(work)
        return joined_sha256(
            batch_sha256(sampler.sample(self._graph, {work.node_type: ids}, batch=work.first + step))
            for step, ids in enumerate(seeds)
        )

    def compile_seconds(self) -> float:
        """Seconds of compiling, or of loading what an earlier run compiled."""
        return compile_seconds(parallel=self._threads > 1)


class GidsBlocksSampler(GidsSampler):
    """The same, and each mini-batch converted to DGL's blocks."""

    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample and convert them."""
        from gids.sampling.to_dgl import to_dgl

        sampler = self._sampler(work)
        edges = 0
        for step, ids in enumerate(seeds):
            _, _, blocks = to_dgl(sampler.sample(self._graph, {work.node_type: ids}, batch=work.first + step))
            edges += sum(block.num_edges() for block in blocks)
        return edges


class GidsConcurrentSampler(GidsSampler):
    """As many mini-batches at a time as there are threads, one thread each, as `gids.DataLoader` works."""

    def __init__(self, graph: Graph, threads: int) -> None:
        super().__init__(graph, 1)
        self._pool = ThreadPoolExecutor(threads)

    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample them."""
        sampler = self._sampler(work)

        def sample(step: int) -> int:
            ids = {work.node_type: seeds[step]}
            return sampler.sample(self._graph, ids, batch=work.first + step).num_edges

        return sum(self._pool.map(sample, range(len(seeds))))


class GidsCudaSampler(KeyedSampler):
    """On a GPU, one mini-batch at a time; the clock stops when the GPU has finished the last."""

    def __init__(self, graph: Graph, threads: int) -> None:
        super().__init__(graph, threads)
        self._samplers: dict[tuple[int, ...], CudaSampler] = {}

    def gpu(self) -> str:
        """Name of the current GPU."""
        import torch

        return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else ""

    def _sampler(self, work: Work) -> CudaSampler:
        from gids.sampling.cuda.sampler import CudaSampler

        fanouts = tuple(work.fanouts)
        if fanouts not in self._samplers:
            self._samplers[fanouts] = CudaSampler(NeighborSampler(work.fanouts), self._graph)
        return self._samplers[fanouts]

    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample them."""
        import torch

        sampler = self._sampler(work)
        edges = 0
        for step, ids in enumerate(seeds):
            edges += sampler.sample({work.node_type: ids}, batch=work.first + step).num_edges
        torch.cuda.synchronize(sampler.device)
        return edges

    def counts(self, work: Work, seeds: Int64Array) -> dict[str, int]:
        """Counts of one mini-batch."""
        batch = self._sampler(work).sample({work.node_type: seeds})
        counts = {
            f"{edge_type} {layer}": edges.num_edges
            for layer, block in enumerate(batch.blocks)
            for edge_type, edges in block.edges.items()
        }
        return counts | {name: len(ids) for name, ids in batch.input_nodes.items()}

    def digest(self, work: Work, seeds: Sequence[Int64Array]) -> str:
        """Fingerprint of mini-batches."""
        sampler = self._sampler(work)
        return joined_sha256(
            batch_sha256(sampler.sample({work.node_type: ids}, batch=work.first + step).to_host())
            for step, ids in enumerate(seeds)
        )


class DglSampler(BenchSampler):
    """DGL's `NeighborSampler` on its own graph of the same edges."""

    def __init__(self, graph: Graph, threads: int) -> None:
        import torch

        from gids.adapters.dgl_graph import dgl_graph_of
        from gids.sampling.dgl_import import import_dgl

        super().__init__(graph, threads)
        self._dgl, self._torch = import_dgl(), torch
        torch.set_num_threads(threads)
        self._dgl_graph = dgl_graph_of(graph)

    def _blocks(self, work: Work, seeds: Sequence[Int64Array]) -> Any:
        sampler = self._dgl.dataloading.NeighborSampler(work.fanouts)
        for ids in seeds:
            nodes = {work.node_type: self._torch.from_numpy(ids)}
            yield sampler.sample_blocks(self._dgl_graph, nodes)

    def edges(self, work: Work, seeds: Sequence[Int64Array]) -> int:
        """Sample them."""
        return sum(sum(block.num_edges() for block in blocks) for _, _, blocks in self._blocks(work, seeds))

    def counts(self, work: Work, seeds: Int64Array) -> dict[str, int]:
        """Counts of one mini-batch."""
        input_nodes, _, blocks = next(self._blocks(work, [seeds]))
        counts = {
            f"{edge_type} {layer}": block.num_edges(tuple(edge_type))
            for layer, block in enumerate(blocks)
            for edge_type in self._graph.schema.edge_types
        }
        return counts | {name: len(ids) for name, ids in input_nodes.items()}


SAMPLERS: dict[str, Callable[[Graph, int], BenchSampler]] = {
    "gids": GidsSampler,
    "gids-concurrent": GidsConcurrentSampler,
    "gids-to-dgl": GidsBlocksSampler,
    "gids-cuda": GidsCudaSampler,
    "dgl": DglSampler,
}


@dataclass(frozen=True)
class Ready:
    """What a process says before the first request."""

    num_nodes: dict[str, int]
    num_edges: int
    compile_s: float
    gpu: str


def serve(name: str, path: str, threads: int) -> None:
    """Answer requests until there are no more."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not look like an answer
    graph = open_dataset(path).graph
    sampler = SAMPLERS[name](graph, threads)
    ready = Ready(dict(graph.schema.num_nodes), graph.num_edges, sampler.compile_seconds(), sampler.gpu())
    print(json.dumps(asdict(ready)), file=out, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        work = Work(**request["work"])
        seeds = work.seeds(graph)
        begin = time.perf_counter()
        answer = _answer(sampler, request["what"], work, seeds)
        seconds = time.perf_counter() - begin
        print(json.dumps({"answer": answer, "seconds": seconds}), file=out, flush=True)


def _answer(sampler: BenchSampler, what: str, work: Work, seeds: Sequence[Int64Array]) -> Any:
    if what == "digest" and isinstance(sampler, KeyedSampler):
        return sampler.digest(work, seeds)
    return sampler.counts(work, seeds[0]) if what == "counts" else sampler.edges(work, seeds)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
