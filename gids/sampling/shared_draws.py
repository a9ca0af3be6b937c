"""Samplers whose mini-batches have more nodes in common. They change the sample, so nothing uses them by
itself.

Both take, of a node's in-edges, the `fanout` whose random numbers are smallest. Each edge is as likely to be
taken as any other, so the mean over the taken ones is an unbiased estimate of the mean over all, as with
:class:`gids.sampling.neighbor.NeighborSampler`; what differs is which samples come together.

- :class:`LaborSampler`: the number belongs to the *source* and is the same for every node, and in every hop,
that
  could take an edge from it. So nodes that share neighbours take the same ones. This is LABOR-0 (Balin and
  Catalyurek: "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in GNNs", NeurIPS 2023) in its form
  with a fixed number of neighbours, sequential Poisson sampling; the plain mean needs no weights then.
- :class:`DependentSampler`: the number belongs to the edge, and consecutive mini-batches share it.

**Dependence.** A number is renewed every `kappa` mini-batches, at a phase of its own: a share 1 / kappa of
them with each mini-batch. Between neighbours all others are the same. So a node that is met again soon mostly
takes the same edges, whose sources are cached. After Balin, LaSalle and Catalyurek: "Cooperative Minibatching
in Graph Neural Networks" (2023), where numbers are blended from one draw to the next; renewing some of them
needs integers only. With `kappa` 1 mini-batches are independent of each other.

**Definition.** With `key = stream_key(seed, epoch, 0, 0, SHARED_STREAM + source type)` (per source, item =
source id) or `key = stream_key(seed, epoch, 0, 0, EDGE_STREAM + relation)` (per edge, item = its position in
the relation's edges) and the words of :mod:`gids.sampling.random`

    phase = word(item, 2^34 - 4, 0) * kappa >> 32,    g = (batch + phase) / kappa, rounded down
    number = word(item, 4 g, 0) * 2^32 + word(item, 4 g + 1, 0)

Of equal numbers the edge that is stored first counts as smaller. Parallel edges share their source's number,
so LABOR takes them together: on a graph with many of them its means are biased towards their sources.
"""

from __future__ import annotations

from dataclasses import dataclass

from gids.sampling.fanouts import Fanouts
from gids.sampling.neighbor import NeighborSampler, checked_setting

MAX_KAPPA = 2**31 - 1


@dataclass(frozen=True)
class SharedDraws:
    """What a random number belongs to, and for how many mini-batches it holds.

    Attributes
    ----------
    by_source : bool
        To a source node; else to an edge.
    kappa : int
    """

    by_source: bool
    kappa: int


class _SharedSampler(NeighborSampler):
    def __init__(
        self,
        fanouts: Fanouts,
        shared: SharedDraws,
        return_edge_ids: bool,
        resample: bool,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(
            fanouts, return_edge_ids=return_edge_ids, resample=resample, seed=seed, threads=threads
        )
        self.shared = shared


class LaborSampler(_SharedSampler):
    """LABOR-0: nodes of a mini-batch that share neighbours take the same ones. Changes the sample.

    Parameters
    ----------
    fanouts, return_edge_ids, resample, seed, threads
        As of :class:`gids.sampling.neighbor.NeighborSampler`.
    kappa : int
        Mini-batches for which a random number holds; 1: each has its own.

    Raises
    ------
    ConfigError
    """

    def __init__(
        self,
        fanouts: Fanouts,
        *,
        kappa: int = 1,
        return_edge_ids: bool = False,
        resample: bool = True,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        shared = SharedDraws(True, checked_setting("kappa", kappa, MAX_KAPPA + 1, smallest=1))
        super().__init__(fanouts, shared, return_edge_ids, resample, seed, threads)


class DependentSampler(_SharedSampler):
    """Neighbour sampling in which a node met again within `kappa` mini-batches mostly takes the same edges.
    Changes the sample.

    Parameters
    ----------
    fanouts, return_edge_ids, resample, seed, threads
        As of :class:`gids.sampling.neighbor.NeighborSampler`.
    kappa : int
        Mini-batches for which a random number holds; the more, the stronger the dependence.

    Raises
    ------
    ConfigError
    """

    def __init__(
        self,
        fanouts: Fanouts,
        *,
        kappa: int = 16,
        return_edge_ids: bool = False,
        resample: bool = True,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        shared = SharedDraws(False, checked_setting("kappa", kappa, MAX_KAPPA + 1, smallest=1))
        super().__init__(fanouts, shared, return_edge_ids, resample, seed, threads)
