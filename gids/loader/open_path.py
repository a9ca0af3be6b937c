"""Which way a loader reads, and what it takes for it: sampler, features, labels."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

import bam
from bam.config import parse_kind
from bam.errors import ConfigError
from gids.errors import UnknownNodeType
from gids.fetch.accumulator import MAX_BATCHES, accumulate_bytes
from gids.fetch.cuda.grouping import GROUPS
from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features, row_sources
from gids.fetch.cuda.store import GpuFeatureStore
from gids.fetch.cuda.tables import RowSource
from gids.fetch.feature_store import FeatureStore
from gids.fetch.foresight import parse_foresight
from gids.fetch.open import FeatureSettings
from gids.fetch.table import FeatureTable
from gids.fetch.window_size import parse_window
from gids.graph.dataset import Dataset
from gids.graph.graph import Graph
from gids.loader.arguments import Rows, open_rows
from gids.loader.read_path import GpuPath, HostPath, ReadPath, ReadPathKind
from gids.sampling.cuda.sampler import CudaSampler, why_on_host
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.seeds import SeedBatches

logger = logging.getLogger(__name__)

#: Of ``accumulate="auto"`` on a GPU: this part of its free memory, at most so many bytes.
_AUTO_PART = 16
_AUTO_BYTES = 8 * 2**30
#: Features of mini-batches in the GPU's memory beside those that wait: being read, handed out, trained on.
_MORE_BATCHES = 4
#: Of a row, while the distinct rows of a group are found and until it has been handed out.
_UNION_BYTES = 112


#: A mini-batch of 64 Ki pages is one part: fewer launches, and reads of whole mini-batches under way. Queues
#: have room for the pages of both parts, twice: a kernel that waits for room keeps the GPU from other work.
READ_PATH = bam.GpuSettings(staging="512MiB", flights=2, read_depth=512, queue_slots=8192)


@dataclass(frozen=True, eq=False)
class PathRequest:
    """What :class:`gids.DataLoader` was asked for, as far as the way of reading depends on it; see there."""

    graph: Graph
    sampler: NeighborSampler | CudaSampler
    given: Mapping[str, Rows] | FeatureStore | GpuFeatureStore | Dataset | None
    labels: Mapping[str, npt.NDArray[Any]]
    seeds: SeedBatches
    device: torch.device
    kind: str
    dtype: torch.dtype | None
    settings: FeatureSettings
    gpu_buffer: int | str | float
    graph_bytes: int | str | None
    gpu: bam.GpuSettings | None
    accumulate: int | str
    peak_share: float
    prefetch: int
    foresight: int | str
    window: int | str


@dataclass(frozen=True, eq=False)
class OpenedPath:
    """Features and the way of reading them."""

    features: FeatureStore | GpuFeatureStore
    path: ReadPath


def open_path(request: PathRequest) -> OpenedPath:
    """Open features and choose the way of reading them.

    Raises
    ------
    ConfigError, UnknownNodeType, GpuMemoryExceeded
    bam.errors.StorageError, bam.errors.EngineUnavailable
    """
    kind = parse_kind("read_path", request.kind, ReadPathKind)
    accumulate_bytes(request.accumulate)  # raises, before any work
    if isinstance(request.given, GpuFeatureStore):
        if kind is ReadPathKind.HOST or request.device.type != request.given.device.type:
            asked = f"{request.device}, read_path {request.kind!r}"
            raise ConfigError("device", asked, f"{request.given.device} and 'gpu': the features are there")
        return _shared_gpu(request, request.given)
    if kind is ReadPathKind.GPU and request.device.type != "cuda":
        raise ConfigError(
            "read_path", request.kind, f"'host' or 'auto' on {request.device}, or device='cuda'"
        )
    if kind is not ReadPathKind.HOST and request.device.type == "cuda":
        opened = _opened_for_host(request.given)
        if not opened:
            return _open_gpu(request)
        if kind is ReadPathKind.GPU:
            raise ConfigError("features", opened, "a data set, or arrays or CPU tensors in memory")
        logger.warning("features are read on the host and copied to %s: they are %s", request.device, opened)
    return _open_host(request)


def _opened_for_host(given: object) -> str:
    """What features are that only the host can read; empty when there are none of that kind."""
    if isinstance(given, FeatureStore):
        return "a FeatureStore"
    if isinstance(given, Mapping):
        for name, rows in given.items():
            if isinstance(rows, (bam.VirtualArray, FeatureTable)):
                return f"a {type(rows).__name__} for {name!r}"
    return ""


def _open_host(request: PathRequest) -> OpenedPath:
    sampler, given = request.sampler, request.given
    if isinstance(sampler, CudaSampler):
        raise ConfigError("sampler", "a CudaSampler", "a NeighborSampler for a loader that reads on the host")
    for name in ("gpu_buffer", "graph_bytes", "gpu"):
        if getattr(request, name):
            raise ConfigError(name, getattr(request, name), "nothing for a loader that reads on the host")
    assert not isinstance(given, GpuFeatureStore)
    features = open_rows(given, request.graph.schema, request.settings)
    path = HostPath(
        request.graph,
        sampler,
        features,
        request.labels,
        request.device,
        request.dtype,
        accumulate_bytes(request.accumulate),
        request.peak_share,
        parse_foresight(request.foresight, features.cache_lines),
    )
    return OpenedPath(features, path)


def _open_gpu(request: PathRequest) -> OpenedPath:
    index = request.device.index
    device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
    rows: Any = request.given  # a data set, or arrays and CPU tensors: nothing else comes here
    sources = row_sources(rows)
    for name, source in sources.items():
        if name not in request.graph.schema.num_nodes:
            raise UnknownNodeType(name, request.graph.schema.num_nodes)
        n_nodes = request.graph.schema.num_nodes[name]
        if source.n_rows != n_nodes:
            raise ConfigError(f"features[{name!r}]", f"{source.n_rows} rows", f"{n_nodes}, one for each node")
    sampler = _gpu_sampler(request, device)
    row_bytes = {name: source.row_bytes for name, source in sources.items()}
    batch = _batch_bytes(request, row_bytes)
    settings = GpuFeatureSettings(
        request.settings,
        request.gpu_buffer,
        request.gpu or READ_PATH,
        _held_bytes(request, batch, sources),
    )
    features = open_gpu_features(rows, settings, device)
    try:
        return OpenedPath(features, _gpu_path(request, sampler, features))
    except BaseException:
        features.close()
        raise


def _shared_gpu(request: PathRequest, features: GpuFeatureStore) -> OpenedPath:
    for name, table in features.tables.items():
        n_nodes = request.graph.schema.num_nodes.get(name)
        if n_nodes is None:
            raise UnknownNodeType(name, request.graph.schema.num_nodes)
        if table.n_rows != n_nodes:
            raise ConfigError(f"features[{name!r}]", f"{table.n_rows} rows", f"{n_nodes}, one for each node")
    return OpenedPath(features, _gpu_path(request, _gpu_sampler(request, features.device), features))


def gpu_accumulate_bytes(value: int | str, free_bytes: int) -> int:
    """Bytes that the setting `accumulate` stands for on a GPU with so much free memory.

    Raises
    ------
    ConfigError
    """
    return min(free_bytes // _AUTO_PART, _AUTO_BYTES) if value == "auto" else accumulate_bytes(value)


def _gpu_path(
    request: PathRequest, sampler: NeighborSampler | CudaSampler, features: GpuFeatureStore
) -> GpuPath:
    budget = gpu_accumulate_bytes(request.accumulate, features.group.store.gpu.free_bytes())
    return GpuPath(
        request.graph,
        sampler,
        features,
        request.labels,
        request.dtype,
        budget,
        request.peak_share,
        parse_foresight(request.foresight, features.cache_bytes // features.page_bytes),
    )


def _gpu_sampler(request: PathRequest, device: torch.device) -> NeighborSampler | CudaSampler:
    sampler = request.sampler
    if isinstance(sampler, CudaSampler):
        if sampler.graph is not request.graph:
            raise ConfigError("sampler", "a CudaSampler of another graph", "one of the loader's graph")
        return sampler
    if why := why_on_host(sampler):
        logger.warning("%s samples on the host: %s", type(sampler).__name__, why)
        return sampler
    return CudaSampler(sampler, request.graph, device=device, graph_bytes=request.graph_bytes)


def _held_bytes(request: PathRequest, batch: _BatchBytes, sources: Mapping[str, RowSource]) -> int:
    """The GPU's memory that mini-batches take: features of those under way, ids of those looked ahead for."""
    # "auto" takes twice a sixteenth of what is free: less than what is left for others (see budget.py).
    budget = 0 if request.accumulate == "auto" else accumulate_bytes(request.accumulate)
    held = batch.features * (request.prefetch + _MORE_BATCHES)
    # Whether mini-batches are read together depends on what `gids calibrate` left.
    held = held + GROUPS * budget if request.settings.contiguous else max(held, budget)
    window = parse_window(request.window, 0)
    n_ahead = _MORE_BATCHES + min(window.max_batches, len(request.seeds))
    stored = {name for name, source in sources.items() if source.rows is None}
    if stored:
        page_bytes = request.settings.page_bytes
        n_pages = sum(-(-sources[name].n_rows * sources[name].row_bytes // page_bytes) for name in stored)
        depth = parse_foresight(request.foresight, n_pages)
        n_ahead += depth.max_batches
        if depth.max_pages is not None and batch.n_nodes:
            # A mini-batch asks for at least a page for as many rows as one holds.
            least = max(1, batch.n_nodes * min(sources[name].row_bytes for name in stored) // page_bytes)
            n_ahead = min(n_ahead, _MORE_BATCHES + window.max_batches + depth.max_pages // least)
    if stored and request.settings.contiguous and batch.features:
        # Of each group: its mini-batches, and how their rows were found to be the same.
        together = min(MAX_BATCHES, len(request.seeds), budget // batch.features)
        n_ahead += (GROUPS + 1) * together
        held += _UNION_BYTES * batch.n_nodes * together
    return held + batch.ids * min(n_ahead, len(request.seeds) + 1)


@dataclass(frozen=True)
class _BatchBytes:
    """The GPU's memory that a mini-batch takes: its features, and its ids and edges."""

    features: int
    ids: int
    n_nodes: int


def _batch_bytes(request: PathRequest, row_bytes: Mapping[str, int]) -> _BatchBytes:
    """Measured on the first one."""
    if len(request.seeds) == 0:
        return _BatchBytes(0, 0, 0)
    first = request.seeds.batch(0, 0)
    sampler = request.sampler.sampler if isinstance(request.sampler, CudaSampler) else request.sampler
    batch = sampler.sample(request.graph, first.nodes, epoch=0, batch=first.number)
    rows = sum(len(ids) * row_bytes.get(name, 0) for name, ids in batch.nodes.items())
    # Node ids, rows, pages, places; a pointer and a source of each edge, at most.
    ids = 5 * sum(len(ids) for ids in batch.nodes.values()) + 2 * batch.num_edges
    return _BatchBytes(rows, 8 * ids, sum(len(ids) for ids in batch.nodes.values()))
