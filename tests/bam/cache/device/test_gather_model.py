"""Gathers on a GPU count what their plain model foretells, where pages are given up, whoever's turn it is."""

from __future__ import annotations

import pytest
from cache_support import POLICIES, policy_name
from emulated_gpu import EmulatedGpu, few_threads
from gather_models import check_a_large_gather, check_gathers

from bam.cache.page_cache import PolicyKind
from bam.native import available

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


@pytest.mark.parametrize("policy", POLICIES, ids=policy_name)
def test_gathers_count_as_foretold(policy: PolicyKind) -> None:
    seen: set[str] = set()
    for seed in (1, 2):
        seen |= check_gathers(lambda turns=seed: few_threads(EmulatedGpu(turns)), policy, seed)
    pages = {"pages_hit", "pages_joined", "pages_claimed", "pages_bypassed"}
    assert seen == pages | {"rows_hit", "rows_joined", "rows_read"}


def test_a_large_gather_counts_as_foretold() -> None:
    check_a_large_gather(lambda: few_threads(EmulatedGpu()))
