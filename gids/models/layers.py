"""Input projections and relation layers: the parts all models are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from bam.errors import ConfigError
from gids.graph.schema import EdgeType
from gids.models.config import Combine
from gids.models.edges import compact_all
from gids.sampling.tensor_batch import AnyBlock

MakeConvolution = Callable[[int, int], nn.Module]
"""(dim_in, dim_out) -> a convolution as in :mod:`gids.models.convolutions`."""


class InputProjection(nn.Module):
    """Features of every node type to vectors of one length, once for each node.

    A node type without features has one learned vector for all its nodes; they become different by what
    their neighbours say.

    Parameters
    ----------
    node_types : iterable of str
    feature_dims : mapping of str to int
        Node types with features.
    dim_out : int
    dropout : float
        Share of feature elements that are dropped.
    """

    def __init__(
        self, node_types: Iterable[str], feature_dims: Mapping[str, int], dim_out: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self._node_types = tuple(node_types)
        self._dims = dict(feature_dims)
        self.linear = nn.ModuleList(
            nn.Linear(self._dims[name], dim_out) if name in self._dims else _Constant(dim_out)
            for name in self._node_types
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        features: Mapping[str, Tensor],
        counts: Mapping[str, int],
        scales: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Vectors of `counts[name]` nodes of each type, float32.

        Raises
        ------
        ConfigError
            Features are missing or have another shape.
        """
        vectors = {}
        for name, linear in zip(self._node_types, self.linear, strict=True):
            if counts[name] == 0:
                continue
            if name not in self._dims:
                vectors[name] = linear(counts[name])
                continue
            rows = features.get(name)
            if rows is None or rows.shape != (counts[name], self._dims[name]):
                found = "none" if rows is None else tuple(rows.shape)
                raise ConfigError(f"features[{name!r}]", found, f"shape {(counts[name], self._dims[name])}")
            rows = rows.to(torch.float32)
            if scales and name in scales:
                rows = rows * scales[name]
            vectors[name] = linear(self.dropout(rows))
        return vectors


class _Constant(nn.Module):
    """One learned vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(dim))
        nn.init.normal_(self.vector, std=dim**-0.5)

    def forward(self, count: int) -> Tensor:
        return self.vector.expand(count, -1)


class RelationLayer(nn.Module):
    """One layer: what every relation says to a node, combined, plus a map of the node's own vector.

    The same as PyG's ``HeteroConv`` over all nodes, but for relations in which a node has no edge: those say
    nothing to it here.

    Parameters
    ----------
    node_types : sequence of str
    edge_types : sequence of EdgeType
    dim_in, dim_out : int
    make_convolution : callable
    combine : Combine
    skip : bool
        Map the node's own vector, with weights of its type.
    """

    def __init__(
        self,
        node_types: Sequence[str],
        edge_types: Sequence[EdgeType],
        dim_in: int,
        dim_out: int,
        make_convolution: MakeConvolution,
        combine: Combine = Combine.SUM,
        skip: bool = True,
    ) -> None:
        super().__init__()
        self._place = {edge_type: place for place, edge_type in enumerate(edge_types)}
        self._node_place = {name: place for place, name in enumerate(node_types)}
        self._combine, self._dim_out = combine, dim_out
        self.convolutions = nn.ModuleList(make_convolution(dim_in, dim_out) for _ in edge_types)
        self.own = nn.ModuleList(nn.Linear(dim_in, dim_out) for _ in node_types) if skip else None
        self.bias = None if skip else nn.Parameter(torch.zeros(len(node_types), dim_out))

    def forward(self, block: AnyBlock, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Vectors of the destination nodes of every type that has some."""
        own = {
            name: self._start(name, vectors[name][:count]) for name, count in block.num_dst.items() if count
        }
        parts = compact_all(block, next(iter(vectors.values())).device)
        sources = _gathered(vectors, {each: (each.src, part.sources) for each, part in parts.items()})
        wants_own = {each: part for each, part in parts.items() if self._convolution(each).uses_destinations}
        destinations = _gathered(
            vectors, {each: (each.dst, part.destinations) for each, part in wants_own.items()}
        )
        said: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for each, part in parts.items():
            message = self._convolution(each)(sources[each], destinations.get(each), part)
            said.setdefault(each.dst, []).append((part.destinations, message))
        return {name: self._combined(vector, said.get(name)) for name, vector in own.items()}

    def _convolution(self, edge_type: EdgeType) -> nn.Module:
        return self.convolutions[self._place[edge_type]]

    def _combined(self, own: Tensor, said: list[tuple[Tensor, Tensor]] | None) -> Tensor:
        """`own` of some nodes plus what was said to them, each time with the places of the nodes meant."""
        if not said:
            return own
        places, messages = (torch.cat(each) for each in zip(*said, strict=True))
        if self._combine is Combine.MEAN:
            speakers = torch.bincount(places, minlength=len(own))
            messages = messages / speakers[places, None]
        return own.index_add(0, places, messages)

    def _start(self, name: str, vectors: Tensor) -> Tensor:
        place = self._node_place[name]
        if self.own is not None:
            own: Tensor = self.own[place](vectors)
            return own
        assert self.bias is not None
        return self.bias[place].expand(len(vectors), -1)


def _gathered(
    vectors: Mapping[str, Tensor], wanted: Mapping[EdgeType, tuple[str, Tensor]]
) -> dict[EdgeType, Tensor]:
    """Rows of `vectors` for each relation: (node type, places).

    One gather for each node type: its gradient is then written once, where one gather a relation would clear
    and add a matrix of all nodes for each.
    """
    gathered: dict[EdgeType, Tensor] = {}
    for name in {name: None for name, _ in wanted.values()}:
        places = {each: ids for each, (of, ids) in wanted.items() if of == name}
        rows = vectors[name].index_select(0, torch.cat(list(places.values())))
        gathered.update(zip(places, torch.split(rows, [len(ids) for ids in places.values()]), strict=True))
    return gathered
