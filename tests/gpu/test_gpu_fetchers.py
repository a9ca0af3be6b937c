"""What a fetcher counts is foretold, where pages are given up; the same checks run on an emulated GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "gids" / "fetch"))

import gpu_fetchers as checks

from bam.cache.page_cache import PolicyKind
from gids.bench.gpu_model_check import GpuTracePath


@pytest.fixture
def open_path(gpu: Any) -> checks.OpenPath:
    make_gpu = type(gpu)  # another for each trace, as its store closes it

    def opened(policy: PolicyKind, one_warp: bool) -> GpuTracePath:
        return GpuTracePath(make_gpu, torch.device("cuda", gpu.number), policy, one_warp=one_warp)

    return opened


def test_counts_are_as_predicted_and_bytes_are_the_same(open_path: checks.OpenPath) -> None:
    checks.check_random_traces(open_path)


def test_a_difference_is_found(open_path: checks.OpenPath) -> None:
    checks.check_a_difference_is_found(open_path)


def test_many_warps_count_the_same_but_for_the_order(open_path: checks.OpenPath) -> None:
    checks.check_many_warps(open_path)
