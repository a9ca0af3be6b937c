"""Samplers by name, as configurations choose them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bam.errors import ConfigError
from gids.bench.sources import BatchPlan
from gids.config import run_config
from gids.models.config import SamplingConfig
from gids.sampling.neighbor import NeighborSampler
from gids.sampling.sampler_kind import SamplerKind, make_sampler
from gids.sampling.shared_draws import DependentSampler, LaborSampler, SharedDraws


@pytest.mark.parametrize(
    ("kind", "kappa", "expected", "shared"),
    [
        (SamplerKind.NEIGHBOR, 0, NeighborSampler, None),
        (SamplerKind.LABOR, 0, LaborSampler, SharedDraws(True, 1)),
        (SamplerKind.LABOR, 8, LaborSampler, SharedDraws(True, 8)),
        (SamplerKind.DEPENDENT, 0, DependentSampler, SharedDraws(False, 16)),
        (SamplerKind.DEPENDENT, 64, DependentSampler, SharedDraws(False, 64)),
    ],
)
def test_each_by_name(
    kind: SamplerKind, kappa: int, expected: type[NeighborSampler], shared: SharedDraws | None
) -> None:
    config = run_config(
        {"data": {"folder": "f", "task": "t"}, "sampling": {"sampler": kind.value, "kappa": kappa}}
    )
    assert (config.sampling.sampler, config.sampling.kappa) == (kind, kappa)
    plan = BatchPlan({"a": np.arange(3)}, (4, 3), 2, seed=5, kind=kind, kappa=kappa)
    for sampler in (make_sampler(kind, [4, 3], kappa=kappa, seed=5), plan.sampler()):
        assert type(sampler) is expected
        assert (sampler.shared, sampler.seed) == (shared, 5)


def test_strengths_that_cannot_be() -> None:
    for wrong in (
        {"kappa": 3},
        {"kappa": -1, "sampler": SamplerKind.LABOR},
        {"kappa": 2**40, "sampler": SamplerKind.DEPENDENT},
    ):
        with pytest.raises(ConfigError, match="kappa"):
            replace(SamplingConfig(), **wrong)
