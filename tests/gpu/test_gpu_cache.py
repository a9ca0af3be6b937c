"""The page cache on a real GPU decides as the plain one does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bam.cache.page_cache import Outcome
from bam.config import PolicyKind
from bam.native import nvrtc

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bam" / "cache"))


@pytest.mark.parametrize("policy", list(PolicyKind), ids=lambda policy: policy.value)
@pytest.mark.parametrize(("n_lines", "n_pages"), [(1, 5), (32, 120), (101, 400)])
def test_steps_equal_the_plain_caches(gpu: Any, policy: PolicyKind, n_lines: int, n_pages: int) -> None:
    from device_cache import check_lockstep

    gpu.add_kernels(nvrtc.KERNEL_FOLDER / "checks.cu")
    outcomes = check_lockstep(gpu, policy, n_lines, n_pages, 1000)
    assert {Outcome.HIT, Outcome.CLAIMED} <= outcomes


def test_several_arrays_in_one_store(gpu: Any, tmp_path: Path) -> None:
    from device_groups import check_group

    assert check_group(gpu, tmp_path).rows == 6 * 170


@pytest.mark.parametrize("policy", list(PolicyKind), ids=lambda policy: policy.value)
def test_gathers_count_as_foretold(gpu: Any, policy: PolicyKind) -> None:
    from gather_models import check_gathers

    for seed in range(1, 4):
        assert "pages_bypassed" in check_gathers(type(gpu), policy, seed)


def test_a_large_gather_counts_as_foretold(gpu: Any) -> None:
    from gather_models import check_a_large_gather

    check_a_large_gather(type(gpu))
