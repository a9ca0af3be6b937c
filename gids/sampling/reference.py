"""Sampling in plain Python: slow, short, and the definition that compiled code is tested against.

Random numbers follow the text of `gids.sampling.random`, mini-batches that of `gids.sampling.neighbor`, and
shuffling that of `gids.sampling.shuffle_kernel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gids.graph.graph import Graph
from gids.graph.schema import EdgeType
from gids.sampling.shared_draws import SharedDraws

Words = tuple[int, int, int, int]
Key = tuple[int, int]

_LOW = 2**32 - 1


def philox(counter: Words, key: Key) -> Words:
    """Philox4x32-10."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


def stream_key(seed: int, epoch: int, batch: int, hop: int, relation: int) -> Key:
    """Key of everything drawn for one relation in one hop of one mini-batch."""
    return philox((epoch, batch, hop, relation), (seed & _LOW, seed >> 32))[:2]


def word(key: Key, item: int, draw: int, attempt: int) -> int:
    """32 random bits."""
    return philox((item & _LOW, item >> 32, draw >> 2, attempt), key)[draw & 3]


def below(n: int, key: Key, item: int, draw: int) -> int:
    """A number from 0 to n - 1, all equally likely."""
    attempt = 0
    while True:
        product = word(key, item, draw, attempt) * n
        if product & _LOW >= (2**32 - n) % n:
            return product >> 32
        attempt += 1


def shuffled_place(place: int, n: int, seed: int, epoch: int) -> int:
    """Where an epoch's permutation of `range(n)` sends a place."""
    key = stream_key(seed, epoch, 0, 0, 0xFFFF0000)
    half_bits = 1
    while 4**half_bits < n:
        half_bits += 1
    mask = 2**half_bits - 1
    while True:
        left, right = place >> half_bits, place & mask
        for number in range(6):
            left, right = right, left ^ (philox((right, number, 0, 0), key)[0] & mask)
        place = (left << half_bits) | right
        if place < n:
            return place


def choose(degree: int, fanout: int, replace: bool, key: Key, node: int) -> list[int]:
    """Positions, among a node's in-edges, of those it takes."""
    if fanout == 0 or degree == 0:
        return []
    if fanout == -1 or (degree <= fanout and not replace):
        return list(range(degree))
    chosen: list[int] = []
    for draw in range(fanout):
        if replace:
            chosen.append(below(degree, key, node, draw))
        else:
            last = degree - fanout + draw
            candidate = below(last + 1, key, node, draw)
            chosen.append(last if candidate in chosen else candidate)
    return chosen


@dataclass
class ReferenceEdges:
    """Edges of one type in a block, one list per destination node."""

    sources: list[list[int]] = field(default_factory=list)
    edge_ids: list[list[int]] = field(default_factory=list)


@dataclass
class ReferenceBatch:
    """Nodes of each type, and for each hop (the one at the seeds first) its edges and the node counts after
    it."""

    nodes: dict[str, list[int]]
    hops: list[dict[EdgeType, ReferenceEdges]]
    node_counts: list[dict[str, int]]


def sample(
    graph: Graph,
    seeds: Mapping[str, Iterable[int]],
    fanouts: Sequence[Mapping[EdgeType, int]],
    *,
    replace: bool = False,
    resample: bool = True,
    shared: SharedDraws | None = None,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
) -> ReferenceBatch:
    """One mini-batch; `fanouts[0]` is for the hop at the seeds."""
    nodes = {name: [int(node) for node in seeds.get(name, ())] for name in graph.schema.node_types}
    node_counts = [{name: len(ids) for name, ids in nodes.items()}]
    hops: list[dict[EdgeType, ReferenceEdges]] = []
    for hop, layer in enumerate(fanouts):
        edges: dict[EdgeType, ReferenceEdges] = {}
        for relation, edge_type in enumerate(graph.schema.edge_types):
            key = stream_key(seed, epoch, batch, hop, relation)
            edges[edge_type] = ReferenceEdges()
            for local, node in enumerate(nodes[edge_type.dst][: node_counts[-1][edge_type.dst]]):
                is_old = hop > 0 and local < node_counts[-2][edge_type.dst]
                if is_old and not resample:
                    edges[edge_type].sources.append(hops[-1][edge_type].sources[local])
                    edges[edge_type].edge_ids.append(hops[-1][edge_type].edge_ids[local])
                else:
                    fanout = layer[edge_type]
                    if shared is None:
                        chosen = choose(
                            int(np.diff(graph[edge_type].indptr[node : node + 2])[0]),
                            fanout,
                            replace,
                            key,
                            node,
                        )
                    else:
                        numbers = _shared_numbers(graph, edge_type, node, shared, seed, epoch, batch)
                        chosen = choose_smallest(numbers, fanout)
                    _expand(graph, edge_type, node, chosen, edges[edge_type])
        for edge_type, reached in edges.items():
            known = nodes[edge_type.src]
            for node in (node for sources in reached.sources for node in sources):
                if node not in known:
                    known.append(node)
        hops.append(edges)
        node_counts.append({name: len(ids) for name, ids in nodes.items()})
    for edges in hops:
        for edge_type, reached in edges.items():
            known = nodes[edge_type.src]
            reached.sources = [[known.index(node) for node in sources] for sources in reached.sources]
    return ReferenceBatch(nodes, hops, node_counts)


def _expand(graph: Graph, edge_type: EdgeType, node: int, chosen: list[int], edges: ReferenceEdges) -> None:
    csc = graph[edge_type]
    positions = [int(csc.indptr[node]) + each for each in chosen]
    edges.sources.append([int(csc.indices[position]) for position in positions])
    ids = positions if csc.edge_ids is None else csc.edge_ids[positions].tolist()
    edges.edge_ids.append(ids)


def choose_smallest(numbers: list[int], fanout: int) -> list[int]:
    """Positions of the `fanout` smallest numbers, rising; of equals the first."""
    if fanout == -1 or fanout >= len(numbers):
        return list(range(len(numbers)))
    return sorted(sorted(range(len(numbers)), key=lambda at: (numbers[at], at))[:fanout])


def shared_number(item: int, batch: int, kappa: int, key: Key) -> int:
    """The number of a source or an edge, as `gids.sampling.shared_draws` defines it."""
    phase = word(key, item, 2**34 - 4, 0) * kappa >> 32
    renewed = (batch + phase) // kappa
    return word(key, item, 4 * renewed, 0) << 32 | word(key, item, 4 * renewed + 1, 0)


def _shared_numbers(
    graph: Graph, edge_type: EdgeType, node: int, shared: SharedDraws, seed: int, epoch: int, batch: int
) -> list[int]:
    csc, schema = graph[edge_type], graph.schema
    edges = range(int(csc.indptr[node]), int(csc.indptr[node + 1]))
    if shared.by_source:
        stream = 0xFFFE0000 + schema.node_type_index(edge_type.src)
        items = [int(csc.indices[position]) for position in edges]
    else:
        stream = 0xFFFD0000 + schema.edge_types.index(edge_type)
        items = list(edges)
    key = stream_key(seed, epoch, 0, 0, stream)
    return [shared_number(item, batch, shared.kappa, key) for item in items]
