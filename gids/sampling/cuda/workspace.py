"""The buffers of one mini-batch under way; larger ones take their place when they turn out too small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gids.errors import GraphError
from gids.graph.csc import Int64Array
from gids.sampling.cuda.kernels import Kernels, PinnedArray
from gids.sampling.cuda.resident import ResidentGraph
from gids.sampling.cuda.structs import MAX_SLOT_BITS, REPORT_WORDS, REQUEST_WORDS, TILE, CPlan, Stop

_GROWTH = 1.5  # mini-batches differ in size; the next ones should fit


@dataclass
class Capacities:
    """Room of the buffers.

    Attributes
    ----------
    items, edges, seeds : int
    nodes : int64 array, shape (node types,)
    slot_bits : int
    """

    nodes: Int64Array
    items: int = 1 << 14
    edges: int = 1 << 16
    seeds: int = 1 << 10
    slot_bits: int = 16


@dataclass(frozen=True)
class Report:
    """What the kernels found.

    Attributes
    ----------
    status : list of int
        As `gids.sampling.launch.failure` takes it.
    node_counts : int64 array, shape (hops + 1, node types)
    item_firsts, edge_firsts : int64 array, shape (hops * edge types + 1,)
    """

    status: list[int]
    node_counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    item_firsts: Int64Array
    edge_firsts: Int64Array


@dataclass
class Workspace:
    """Buffers for mini-batches of one graph and sampler, one at a time.

    Attributes
    ----------
    plan : CPlan
        What kernels take; valid until the next `grow`.
    replay : function, or None
        Queues the kernels of a mini-batch at once, when they have been recorded with this plan.
    last_use : object
        Mark of the last kernel that works on the buffers; None before the first.
    """

    kernels: Kernels
    resident: ResidentGraph
    fanouts: torch.Tensor
    replace: bool
    resample: bool
    plan: CPlan = field(init=False)
    replay: Callable[[], None] | None = field(init=False, default=None)
    last_use: object = field(init=False, default=None)
    _capacities: Capacities = field(init=False)
    _tensors: dict[str, torch.Tensor] = field(init=False, default_factory=dict)
    _request: PinnedArray = field(init=False)

    def __post_init__(self) -> None:
        num_nodes = self.resident.num_nodes.cpu().numpy()
        self._num_nodes = num_nodes
        self._capacities = Capacities(np.minimum(num_nodes, 1 << 14))
        hops, relations = self.fanouts.shape
        self._hops, self._relations, self._types = hops, relations, len(num_nodes)
        flats = hops * relations + 1
        self._sizes = (REPORT_WORDS, (hops + 1) * self._types, flats, flats)
        self._report = self._int64("report", sum(self._sizes))
        self._host_report = self.kernels.pinned(sum(self._sizes), np.int64)
        self.places = self.kernels.pinned(3 * hops * relations, np.int64)
        self._int64("keys", hops * relations)
        for name, entries in (("item_tiles", relations + 1), ("edge_tiles", relations + 1)):
            self._int64(name, entries)
        self._int64("new_bases", relations)
        self._allocate()

    def begin(self, request: Int64Array, num_seeds: int) -> None:
        """Write down what the next kernels are to sample.

        Parameters
        ----------
        request : int64 array
            As `gids::RequestWord` says.
        num_seeds : int64
        """
        seeds_of_types = request[REQUEST_WORDS : REQUEST_WORDS + self._types]
        room = self._capacities
        if (
            num_seeds > min(room.seeds, room.edges, 1 << room.slot_bits - 1)
            or (seeds_of_types > room.nodes).any()
        ):
            self.kernels.wait()  # the mini-batch before may still be on its way out of the buffers
            room.seeds = max(room.seeds, _grown(num_seeds))
            room.edges = max(room.edges, num_seeds)
            room.slot_bits = max(room.slot_bits, num_seeds.bit_length() + 1)
            # More seeds than nodes are an error that kernels find; they need a place all the same.
            room.nodes = np.maximum(room.nodes, seeds_of_types)
            self._allocate()
        self._request.array[: len(request)] = request

    def read_report(self) -> Report:
        """Wait for the kernels queued so far; the one time that the host does."""
        target = torch.from_numpy(self._host_report.array)
        target.copy_(self._report, non_blocking=True)
        self.kernels.wait()
        words = self._host_report.array
        status, counts, items, edges = np.split(words, np.cumsum(self._sizes)[:-1])
        return Report(
            status[:4].tolist(),
            counts.reshape(self._hops + 1, self._types).copy(),
            items.copy(),
            edges.copy(),
        )

    def grow(self, status: list[int]) -> None:
        """Make the buffer larger that a status says was too small.

        Raises
        ------
        GraphError
            There is none larger.
        """
        code, index, needed, _ = status
        room = self._capacities
        if code == Stop.MORE_ITEMS:
            room.items = _grown(needed)
        elif code == Stop.MORE_EDGES:
            room.edges = _grown(needed)
        elif code == Stop.MORE_NODES:
            room.nodes[index] = min(_grown(needed), int(self._num_nodes[index]))
        else:
            room.slot_bits = max(room.slot_bits + 1, _grown(2 * needed).bit_length())
            if room.slot_bits > MAX_SLOT_BITS:
                raise GraphError(
                    "mini-batch", "fewer nodes; use fewer seeds or smaller fanouts", f"{needed:,}"
                )
        self._allocate()

    def _allocate(self) -> None:
        """Buffers of the capacities' sizes; those that have theirs stay."""
        room = self._capacities
        bases = np.concatenate(([0], np.cumsum(room.nodes)))
        self._tensors["node_bases"] = torch.from_numpy(bases).to(self.kernels.device)
        for name, entries in (
            ("slots", 1 << room.slot_bits),
            ("nodes", int(bases[-1])),
            ("item_starts", room.items),
            ("indptr", room.items),
            ("positions", room.edges),
            ("tile_sums", max(room.items, room.edges) // TILE + self._relations + 1),
        ):
            self._int64(name, entries)
        for name, entries in (
            ("item_degrees", room.items),
            ("drawn", room.edges),
            ("edge_slots", room.edges),
        ):
            self._buffer(name, entries, torch.int32)
        request_words = REQUEST_WORDS + self._types + room.seeds
        if not hasattr(self, "_request") or len(self._request.array) < request_words:
            self._request = self.kernels.pinned(request_words, np.int64)
        self.plan, self.replay = self._make_plan(), None

    def _int64(self, name: str, entries: int) -> torch.Tensor:
        return self._buffer(name, entries, torch.int64)

    def _buffer(self, name: str, entries: int, dtype: torch.dtype) -> torch.Tensor:
        known = self._tensors.get(name)
        if known is None or len(known) < entries:
            self._tensors.pop(name, None)  # free it first: both together may not fit
            self._tensors[name] = torch.empty(max(1, entries), dtype=dtype, device=self.kernels.device)
        return self._tensors[name]

    def _make_plan(self) -> CPlan:
        resident, room = self.resident, self._capacities
        fields: dict[str, Any] = {name: each.data_ptr() for name, each in self._tensors.items()}
        report, starts = self._report.data_ptr(), np.cumsum((0, *self._sizes)) * self._report.itemsize
        tables = ("report", "node_counts", "item_firsts", "edge_firsts")
        fields |= {name: report + int(start) for name, start in zip(tables, starts, strict=False)}
        return CPlan(
            relations=resident.relations.data_ptr(),
            num_nodes=resident.num_nodes.data_ptr(),
            first_keys=resident.first_keys.data_ptr(),
            fanouts=self.fanouts.data_ptr(),
            request=self._request.address,
            num_relations=self._relations,
            num_types=self._types,
            num_hops=self._hops,
            replace=self.replace,
            resample=self.resample,
            slot_bits=room.slot_bits,
            local_bits=resident.local_bits,
            item_capacity=room.items,
            edge_capacity=room.edges,
            **fields,
        )


def _grown(needed: int) -> int:
    return int(_GROWTH * needed) + 1
