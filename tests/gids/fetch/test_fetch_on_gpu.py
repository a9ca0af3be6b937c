"""What a fetcher on a GPU counts is foretold, where pages are given up (tests/gpu: the same on a real one).

    GIDS_MODEL_EXAMPLES=1000 python -m pytest tests/gids/fetch/test_fetch_on_gpu.py

draws more traces. The emulated GPU's threads take turns in an order that is drawn anew for each trace, so
what is foretold follows from the program and not from who came first.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bam" / "cache" / "device"))

import gpu_fetchers as checks
from emulated_gpu import EmulatedGpu, few_threads

from bam.cache.page_cache import PolicyKind
from bam.native import available
from gids.bench.gpu_model_check import GpuTracePath

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")
SEEDS = itertools.count(1)


def open_path(policy: PolicyKind, one_warp: bool) -> GpuTracePath:
    def make_gpu() -> EmulatedGpu:
        return few_threads(EmulatedGpu(next(SEEDS)))

    return GpuTracePath(make_gpu, torch.device("cpu"), policy, one_warp=one_warp)


def test_counts_are_as_predicted_and_bytes_are_the_same() -> None:
    checks.check_random_traces(open_path)


def test_pages_are_given_up() -> None:
    checks.check_pages_are_given_up(open_path)


def test_a_difference_is_found() -> None:
    checks.check_a_difference_is_found(open_path)


def test_many_warps_count_the_same_but_for_the_order() -> None:
    checks.check_many_warps(open_path)
