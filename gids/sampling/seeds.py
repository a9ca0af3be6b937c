"""Which seeds a mini-batch has: shuffled epochs, batches, parts for ranks; each a function of its number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from gids.errors import DuplicateSeed, NodeOutOfRange, UnknownNodeType
from gids.graph.csc import Int64Array
from gids.graph.schema import Schema


@dataclass(frozen=True, eq=False)
class SeedBatch:
    """Seeds of one mini-batch.

    Attributes
    ----------
    number : int
        Of the mini-batch in its epoch, over all ranks: what the sampler is keyed with.
    nodes : mapping of str to int64 array
        Node types without seeds in this mini-batch are left out.
    """

    number: int
    nodes: Mapping[str, Int64Array]


class SeedBatches:
    """Deals an epoch's seeds to mini-batches and ranks.

    The epoch's order is the given one or, shuffled, a permutation that depends on (seed, epoch) alone; seeds
    of several types are shuffled as one list. Rank `r` of `w` has the places r, r + w, r + 2w ..., so each
    seed goes to exactly one rank, and ranks differ by at most one seed. Without `drop_last` they may then
    differ by one mini-batch, too (use `drop_last`, or `torch.distributed.algorithms.Join`); with it they
    never do.

    Parameters
    ----------
    indices : mapping of str to integers, or integers
        Seeds of each type; boolean masks stand for the nodes they mark.
    schema : Schema
    batch_size : int
    shuffle, drop_last : bool
    seed : int
    rank, world_size : int

    Raises
    ------
    ConfigError, UnknownNodeType, NodeOutOfRange
    DuplicateSeed
        A node is there twice: each comes once an epoch.
    """

    def __init__(
        self,
        indices: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        schema: Schema,
        *,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ConfigError("rank", rank, f"a rank from 0 to {world_size - 1}")
        if isinstance(batch_size, bool) or int(batch_size) != batch_size or batch_size < 1:
            raise ConfigError("batch_size", batch_size, "a whole number from 1 on")
        if not 0 <= seed < 2**64:
            raise ConfigError("seed", seed, "a number from 0 to 2**64 - 1")
        self._seeds = _checked_seeds(indices, schema)
        self._ends = np.cumsum([len(ids) for ids in self._seeds.values()], dtype=np.int64)
        self._n = int(self._ends[-1]) if len(self._ends) else 0
        self._batch_size, self._shuffle, self._drop_last = int(batch_size), bool(shuffle), bool(drop_last)
        self._seed, self._rank, self._world_size = int(seed), rank, world_size
        self._digest = _digest(self._seeds)

    def __len__(self) -> int:
        """Mini-batches of an epoch, for this rank."""
        if self._drop_last:
            return self._n // self._world_size // self._batch_size
        return -(-self._of_rank() // self._batch_size)

    def batch(self, epoch: int, number: int) -> SeedBatch:
        """Seeds of this rank's mini-batch `number`, counted from 0."""
        if not 0 <= number < len(self):
            raise ConfigError("batch", number, f"a number below {len(self)}")
        count = min(self._batch_size, self._of_rank() - number * self._batch_size)
        first = number * self._batch_size * self._world_size + self._rank
        if self._shuffle:
            from gids.sampling.shuffle_kernel import shuffled_places

            places = shuffled_places(
                first, self._world_size, count, self._n, np.uint64(self._seed), np.uint64(epoch)
            )
        else:
            places = first + np.arange(count, dtype=np.int64) * self._world_size
        return SeedBatch(number * self._world_size + self._rank, self._nodes_at(places))

    def settings(self) -> dict[str, Any]:
        """What an epoch's mini-batches depend on, in plain JSON types."""
        return {
            "sha256": self._digest,
            "batch_size": self._batch_size,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "seed": self._seed,
            "rank": self._rank,
            "world_size": self._world_size,
        }

    def _of_rank(self) -> int:
        return max(0, -(-(self._n - self._rank) // self._world_size))

    def _nodes_at(self, places: Int64Array) -> dict[str, Int64Array]:
        types = np.searchsorted(self._ends, places, side="right")
        nodes = {}
        for number, (name, ids) in enumerate(self._seeds.items()):
            mine = places[types == number]
            if len(mine):
                nodes[name] = ids[mine - (self._ends[number] - len(ids))]
        return nodes


def _checked_seeds(
    indices: Mapping[str, npt.ArrayLike] | npt.ArrayLike, schema: Schema
) -> dict[str, Int64Array]:
    if not isinstance(indices, Mapping):
        if len(schema.num_nodes) != 1:
            known = ", ".join(schema.num_nodes)
            raise ConfigError("indices", type(indices).__name__, f"a mapping from node types ({known})")
        indices = {schema.node_types[0]: indices}
    checked = {}
    for name in sorted(indices):
        if name not in schema.num_nodes:
            raise UnknownNodeType(name, schema.num_nodes)
        checked[name] = _checked_ids(name, np.asarray(indices[name]), schema.num_nodes[name])
    return checked


def _checked_ids(name: str, ids: npt.NDArray[Any], num_nodes: int) -> Int64Array:
    if ids.dtype == np.bool_ and ids.shape == (num_nodes,):
        return np.flatnonzero(ids).astype(np.int64)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ConfigError(f"indices[{name!r}]", f"{ids.dtype} of shape {ids.shape}", "a list of node ids")
    wrong = (ids < 0) | (ids >= num_nodes)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise NodeOutOfRange(name, int(ids[position]), num_nodes, position)
    checked = np.array(ids, np.int64)
    if not (checked[1:] > checked[:-1]).all():
        _refuse_duplicates(name, checked, num_nodes)
    return checked


def _refuse_duplicates(name: str, ids: Int64Array, num_nodes: int) -> None:
    seen = np.zeros(num_nodes, np.bool_)
    seen[ids] = True
    if np.count_nonzero(seen) == len(ids):
        return
    _, first = np.unique(ids, return_index=True)
    position = int(np.setdiff1d(np.arange(len(ids)), first)[0])
    raise DuplicateSeed(name, int(ids[position]), position)


def _digest(seeds: Mapping[str, Int64Array]) -> str:
    digest = hashlib.sha256()
    for name, ids in seeds.items():
        digest.update(f"{name}:{len(ids)}:".encode())
        digest.update(ids.data)
    return digest.hexdigest()
