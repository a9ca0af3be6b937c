"""The samplers by name, as configurations choose them."""

from __future__ import annotations

from enum import Enum

from bam.errors import ConfigError
from gids.sampling.fanouts import Fanouts
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.shared_draws import MAX_KAPPA, DependentSampler, LaborSampler


class SamplerKind(Enum):
    """Which sampler. All but the first change the sample, without bias, to ask for less."""

    NEIGHBOR = "neighbor"
    LABOR = "labor"
    DEPENDENT = "dependent"


def check_kappa(kind: SamplerKind, kappa: int) -> None:
    """Raise ConfigError where a sampler cannot have this `kappa`; 0 is its own default."""
    if not 0 <= kappa <= MAX_KAPPA:
        raise ConfigError("kappa", kappa, f"mini-batches from 1 to {MAX_KAPPA}, or 0: as the sampler has it")
    if kind is SamplerKind.NEIGHBOR and kappa:
        raise ConfigError("kappa", kappa, "0 with sampler 'neighbor', which shares no random numbers")


def make_sampler(
    kind: SamplerKind, fanouts: Fanouts, *, kappa: int = 0, seed: int = 0, threads: int = 1
) -> NeighborSampler:
    """A sampler of that kind.

    Raises
    ------
    ConfigError
    """
    check_kappa(kind, kappa)
    if kind is SamplerKind.NEIGHBOR:
        return NeighborSampler(fanouts, seed=seed, threads=threads)
    if kind is SamplerKind.LABOR:
        return LaborSampler(fanouts, kappa=kappa or 1, seed=seed, threads=threads)
    return DependentSampler(fanouts, kappa=kappa or 16, seed=seed, threads=threads)
