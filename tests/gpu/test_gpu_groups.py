"""Arrays that share a store, on a GPU; the same checks run on the emulated one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from device_groups import check_constant_rows, check_next_uses


def test_constant_rows_of_a_group(gpu: Any, tmp_path: Path) -> None:
    check_constant_rows(gpu, tmp_path)


def test_next_uses_of_a_group(gpu: Any, tmp_path: Path) -> None:
    check_next_uses(gpu, tmp_path)
