"""Tests that need a GPU: marked `gpu`, and skipped where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bam.errors import EngineUnavailable
from bam.native import available

# The same checks run on the emulated GPU there.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bam" / "cache" / "device"))
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)


def gpu_or_skip() -> object:
    """A new :class:`CupyGpu`; with BAM_GPU_REQUIRED set, no GPU is a failure and not a reason to skip."""
    if not available():
        pytest.skip("the native library was not built")
    from bam.cache.device.cupy_gpu import CupyGpu

    try:
        return CupyGpu()
    except EngineUnavailable as error:
        if os.environ.get("BAM_GPU_REQUIRED"):
            raise
        pytest.skip(f"no GPU: {error}")


@pytest.fixture
def gpu() -> object:
    """A GPU of the test's own, or a visible skip."""
    return gpu_or_skip()
