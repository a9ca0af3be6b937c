"""Fanouts as a user writes them, checked and turned into one number per hop and edge type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bam.errors import ConfigError
from gids.graph.schema import EdgeTypeLike, Schema

LayerFanout = int | Mapping[EdgeTypeLike, int]
Fanouts = LayerFanout | Sequence[LayerFanout] | Mapping[EdgeTypeLike, Sequence[int]]

ALL = -1
"""Fanout that takes every neighbour."""

_LARGEST = 2**31 - 1
_FORMS = "an int, or for each layer an int or a dict of ints per edge type, or a dict of lists per edge type"


def layers_of(fanouts: Fanouts) -> tuple[LayerFanout, ...]:
    """One entry per layer, first layer first.

    Raises
    ------
    ConfigError
        There is no layer, a fanout is no int from -1 to 2^31 - 1, or lists of edge types differ in length.
    """
    if isinstance(fanouts, Mapping):
        layers = _layers_of_mapping(fanouts)
    else:
        layers = tuple(fanouts) if isinstance(fanouts, Sequence) else (fanouts,)
    if not layers:
        raise ConfigError("fanouts", fanouts, "at least one layer")
    for layer in layers:
        for fanout in layer.values() if isinstance(layer, Mapping) else (layer,):
            if isinstance(fanout, bool) or not isinstance(fanout, int | np.integer):
                raise ConfigError("fanouts", fanouts, _FORMS)
            if not ALL <= fanout <= _LARGEST:
                raise ConfigError("fanouts", fanouts, f"each from {ALL} (all neighbours) to {_LARGEST}")
    return layers


def _layers_of_mapping(
    fanouts: Mapping[EdgeTypeLike, int] | Mapping[EdgeTypeLike, Sequence[int]],
) -> tuple[LayerFanout, ...]:
    lists = {name: (each if isinstance(each, Sequence) else [each]) for name, each in fanouts.items()}
    lengths = {len(each) for each in lists.values()}
    if len(lengths) != 1:
        raise ConfigError("fanouts", fanouts, "the same number of layers for each edge type")
    return tuple({name: each[layer] for name, each in lists.items()} for layer in range(lengths.pop()))


def fanout_matrix(
    layers: Sequence[LayerFanout], schema: Schema
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Fanouts as int64 of shape (hops, edge types): hop 0 is at the seeds, so it is the last layer.

    Raises
    ------
    UnknownEdgeType
        A dict names an edge type the schema does not have.
    ConfigError
        A dict leaves an edge type out, or names one twice.
    """
    matrix = np.empty((len(layers), len(schema.edge_types)), np.int64)
    for hop, layer in enumerate(reversed(layers)):
        if not isinstance(layer, Mapping):
            matrix[hop] = layer
            continue
        named = {schema.edge_type(edge_type): fanout for edge_type, fanout in layer.items()}
        left_out = [str(edge_type) for edge_type in schema.edge_types if edge_type not in named]
        if left_out or len(named) != len(layer):
            raise ConfigError(
                "fanouts", dict(layer), f"each edge type once (0: none of its edges); left out: {left_out}"
            )
        matrix[hop] = [named[edge_type] for edge_type in schema.edge_types]
    return matrix
