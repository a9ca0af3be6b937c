"""A graph where kernels can read it: in the GPU's memory as far as it fits, else in pinned host memory."""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bam.config import parse_bytes
from gids.graph.graph import Graph
from gids.sampling.cuda.kernels import Kernels
from gids.sampling.cuda.structs import CRelation

logger = logging.getLogger(__name__)

_COPY_ENTRIES = (
    8 * 2**20
)  # copied in one step, so that a memory-mapped graph is not read into memory as a whole


@dataclass(eq=False)
class ResidentGraph:
    """Addresses of a graph's arrays, and what keeps them alive.

    Attributes
    ----------
    graph : Graph
    relations : tensor
        `gids::Relation` of each edge type.
    num_nodes, first_keys : tensor
        int64 of shape (node types,).
    local_bits : int
        Bits of a hash table's entry that the largest key leaves.
    device_bytes, pinned_bytes : int
        What lies on the GPU, and what is read over the bus.
    """

    graph: Graph
    relations: torch.Tensor
    num_nodes: torch.Tensor
    first_keys: torch.Tensor
    local_bits: int
    device_bytes: int
    pinned_bytes: int
    _owners: list[Any] = field(repr=False)


_placed: weakref.WeakKeyDictionary[Graph, weakref.WeakValueDictionary[Any, ResidentGraph]]
_placed = weakref.WeakKeyDictionary()


def shared_graph(
    kernels: Kernels, graph: Graph, graph_bytes: int | str | None, with_edge_ids: bool
) -> ResidentGraph:
    """As :func:`place_graph`; the copy that another sampler of the same graph holds, if there is one."""
    copies = _placed.setdefault(graph, weakref.WeakValueDictionary())
    key = (type(kernels), str(kernels.device), graph_bytes, with_edge_ids)
    found = copies.get(key)
    if found is None:
        found = copies[key] = place_graph(kernels, graph, graph_bytes, with_edge_ids)
    return found


def place_graph(
    kernels: Kernels, graph: Graph, graph_bytes: int | str | None, with_edge_ids: bool
) -> ResidentGraph:
    """Copy a graph's arrays to where kernels read them.

    Column pointers go first, as every item reads two of them; then sources, smaller relations first; edge ids
    last, and only if they are wanted.

    Parameters
    ----------
    kernels : Kernels
    graph : Graph
    graph_bytes : int, str or None
        Memory of the GPU that the graph may take, such as ``"20GiB"``. None: three quarters of what is free.
    with_edge_ids : bool
    """
    budget = kernels.free_bytes() // 4 * 3 if graph_bytes is None else parse_bytes(graph_bytes, "graph_bytes")
    placer = _Placer(kernels, budget)
    cscs = list(graph.relations.values())
    rows = [CRelation() for _ in cscs]
    for row, csc in zip(rows, cscs, strict=True):
        row.indptr = placer.address(csc.indptr)
    for row, csc in sorted(zip(rows, cscs, strict=True), key=lambda each: each[1].indices.nbytes):
        row.indices, row.index_bytes = placer.address(csc.indices), csc.indices.itemsize
    for row, (edge_type, csc) in zip(rows, graph.relations.items(), strict=True):
        if with_edge_ids and csc.edge_ids is not None:
            row.edge_ids = placer.address(csc.edge_ids)
        row.num_edges = csc.num_edges
        row.src_type = graph.schema.node_type_index(edge_type.src)
        row.dst_type = graph.schema.node_type_index(edge_type.dst)
    num_nodes = np.array(list(graph.schema.num_nodes.values()), np.int64)
    first_keys = np.concatenate(([0], np.cumsum(num_nodes)[:-1]))
    if placer.pinned_bytes:
        logger.info(
            "graph: %d bytes on the GPU, %d bytes in pinned host memory",
            placer.device_bytes,
            placer.pinned_bytes,
        )
    table = np.frombuffer(bytes((CRelation * len(rows))(*rows)), np.uint8)
    relations, counts, keys = (
        torch.from_numpy(array.copy()).to(kernels.device) for array in (table, num_nodes, first_keys)
    )
    return ResidentGraph(
        graph,
        relations,
        counts,
        keys,
        63 - int(num_nodes.sum()).bit_length(),
        placer.device_bytes,
        placer.pinned_bytes,
        placer.owners,
    )


class _Placer:
    def __init__(self, kernels: Kernels, budget_bytes: int) -> None:
        self._kernels, self._budget_bytes = kernels, budget_bytes
        self.owners: list[Any] = []
        self.device_bytes = self.pinned_bytes = 0

    def address(self, array: npt.NDArray[Any]) -> int:
        """Of a copy of the array."""
        if self.device_bytes + array.nbytes > self._budget_bytes:
            pinned = self._kernels.pinned(len(array), array.dtype)
            pinned.array[:] = array
            self.owners.append(pinned)
            self.pinned_bytes += array.nbytes
            return pinned.address
        dtype = torch.int32 if array.itemsize == 4 else torch.int64
        # One entry at least, because an empty tensor has no address.
        tensor = torch.empty(max(1, len(array)), dtype=dtype, device=self._kernels.device)
        for first in range(0, len(array), _COPY_ENTRIES):
            part = torch.from_numpy(np.array(array[first : first + _COPY_ENTRIES]))
            tensor[first : first + len(part)].copy_(part)
        self.owners.append(tensor)
        self.device_bytes += array.nbytes
        return tensor.data_ptr()
