"""A block's edges as tensors, with the nodes that have no edge of the relation left out.

A relation touches few of a block's nodes, and a convolution's cost grows with all nodes it is given. So each
convolution sees the touched ones only, numbered anew: with 44 relations that is most of the work saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gids.graph.schema import EdgeType
from gids.sampling.block import Block, BlockEdges
from gids.sampling.tensor_batch import AnyBlock, LoadedBlock, TensorBlock, TensorEdges


@dataclass(frozen=True, eq=False)
class CompactEdges:
    """Edges of one relation between the nodes that have any, grouped by destination.

    Attributes
    ----------
    sources, destinations : int64 tensors
        Local ids, in the block, of the nodes that have edges; rising.
    indptr : int64 tensor, shape (len(destinations) + 1,)
    indices : int64 tensor, shape (n_edges,)
        Positions in `sources`.
    """

    sources: torch.Tensor
    destinations: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor

    def edge_index(self) -> torch.Tensor:
        """Position in `sources` and in `destinations` of the ends of each edge: PyG's form, (2, n_edges)."""
        counts = torch.diff(self.indptr)
        places = torch.arange(len(counts), device=counts.device)
        return torch.stack([self.indices, torch.repeat_interleave(places, counts)])


def compact(edges: BlockEdges, num_src: int, device: torch.device | str = "cpu") -> CompactEdges:
    """Leave out nodes without edges; the edges keep their order.

    Parameters
    ----------
    edges : BlockEdges
    num_src : int
        Source nodes of the block.
    device : device
    """
    degrees = np.diff(edges.indptr)
    destinations = np.flatnonzero(degrees)
    indptr = np.concatenate([edges.indptr[:1], edges.indptr[destinations + 1]])
    touched = np.zeros(num_src, np.bool_)
    touched[edges.indices] = True
    sources = np.flatnonzero(touched)
    place = np.empty(num_src, np.int64)
    place[sources] = np.arange(len(sources))
    arrays: tuple[npt.NDArray[np.int64], ...] = (sources, destinations, indptr, place[edges.indices])
    return CompactEdges(*(torch.from_numpy(array).to(device) for array in arrays))


def compact_all(block: AnyBlock, device: torch.device | str) -> dict[EdgeType, CompactEdges]:
    """Of every relation that has edges, on `device`.

    Blocks on a GPU are compacted there. Their sizes must be read back, and waiting for them on the stream
    that trains would let it run dry; so blocks that are known to be there are compacted on another stream.
    """
    if isinstance(block, Block):
        return {
            edge_type: compact(edges, block.num_src[edge_type.src], device)
            for edge_type, edges in block.edges.items()
            if edges.num_edges
        }
    edges = {edge_type: own for edge_type, own in block.edges.items() if own.num_edges}
    if not edges:
        return {}
    if isinstance(block, LoadedBlock) and next(iter(edges.values())).indices.is_cuda:
        return _beside_training(block, edges)
    return _compact_tensors(block, edges)


def _compact_tensors(
    block: TensorBlock, edges: Mapping[EdgeType, TensorEdges]
) -> dict[EdgeType, CompactEdges]:
    """All relations together: one list of source nodes behind the other, and one of destinations."""
    device = next(iter(edges.values())).indices.device
    src_firsts = [0, *accumulate(block.num_src[edge_type.src] for edge_type in edges)]
    dst_firsts = [0, *accumulate(block.num_dst[edge_type.dst] for edge_type in edges)]
    ends = torch.cat([own.indices + first for own, first in zip(edges.values(), src_firsts, strict=False)])
    touched = torch.zeros(src_firsts[-1], dtype=torch.int64, device=device).index_fill_(0, ends, 1)
    has_edges = torch.cat([torch.diff(own.indptr) > 0 for own in edges.values()]).long()
    src_places, dst_places = torch.cumsum(touched, 0), torch.cumsum(has_edges, 0)
    # Slices and not an index from the host, which would be one more copy to wait for.
    lasts = [src_places[end - 1 : end] for end in src_firsts[1:]]
    lasts += [dst_places[end - 1 : end] for end in dst_firsts[1:]]
    counts = torch.cat(lasts).tolist()  # waits for the device, once
    src_counts, dst_counts = [0, *counts[: len(edges)]], [0, *counts[len(edges) :]]
    sources = _members(touched, src_places, src_counts[-1])
    destinations = _members(has_edges, dst_places, dst_counts[-1])
    indices, position = src_places[ends] - 1, 0
    found = {}
    for number, (edge_type, own) in enumerate(edges.items()):
        begin, end = src_counts[number], src_counts[number + 1]
        reached = destinations[dst_counts[number] : dst_counts[number + 1]] - dst_firsts[number]
        found[edge_type] = CompactEdges(
            sources[begin:end] - src_firsts[number],
            reached,
            torch.cat([own.indptr[:1], own.indptr[reached + 1]]),
            indices[position : position + own.num_edges] - begin,
        )
        position += own.num_edges
    return found


def _members(marks: torch.Tensor, places: torch.Tensor, count: int) -> torch.Tensor:
    """Positions of the marks that are 1, rising; what `nonzero` gives, without waiting for the device."""
    found = torch.empty(count + 1, dtype=torch.int64, device=marks.device)
    where = torch.where(marks > 0, places - 1, count)
    found.scatter_(0, where, torch.arange(len(marks), device=marks.device))
    return found[:count]


def _beside_training(
    block: TensorBlock, edges: Mapping[EdgeType, TensorEdges]
) -> dict[EdgeType, CompactEdges]:
    """On a stream of its own; the current one waits for the result."""
    device = next(iter(edges.values())).indices.device
    training, beside = torch.cuda.current_stream(device), _stream_beside(device)
    with torch.cuda.stream(beside):
        found = _compact_tensors(block, edges)
        done = beside.record_event()
    training.wait_event(done)
    for part in found.values():
        for tensor in (part.sources, part.destinations, part.indptr, part.indices):
            tensor.record_stream(training)
    return found


@cache
def _stream_beside(device: torch.device) -> torch.cuda.Stream:
    streams: Any = torch.cuda
    made: torch.cuda.Stream = streams.Stream(device)
    return made
