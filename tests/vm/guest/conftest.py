"""Tests for the guests of `make test-nvme`, where QEMU's drives are; elsewhere they are skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
FOLDERS = (TESTS / "bam" / "storage", TESTS / "bam" / "cache" / "device", Path(__file__).resolve().parent)
sys.path[:0] = [str(folder) for folder in FOLDERS]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).resolve().parent
    for item in items:
        if here in item.path.parents and os.environ.get("BAM_TEST_GUEST") != item.path.parent.name:
            item.add_marker(pytest.mark.skip(reason="needs the guest of `make test-nvme`"))
