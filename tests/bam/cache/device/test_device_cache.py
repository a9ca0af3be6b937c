"""The GPU's page cache decides as the plain Python one does: outcome, line and all state, step by step."""

from __future__ import annotations

import pytest
from cache_support import POLICIES, policy_name
from device_cache import check_lockstep
from emulated_gpu import EmulatedGpu

from bam.cache.page_cache import Outcome, PolicyKind


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
@pytest.mark.parametrize(("n_lines", "n_pages"), [(1, 5), (4, 12), (32, 120), (101, 400)])
def test_steps_equal_the_plain_caches(policy: PolicyKind, n_lines: int, n_pages: int) -> None:
    outcomes = check_lockstep(EmulatedGpu(), policy, n_lines, n_pages, 500)
    assert {Outcome.HIT, Outcome.CLAIMED} <= outcomes
