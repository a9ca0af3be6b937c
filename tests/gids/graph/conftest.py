"""Small IGBH folders as fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest
from igbh_folders import write_igbh

from gids.graph.synth import synthesize


@pytest.fixture
def igbh(tmp_path: Path) -> Path:
    """A random folder of this test's own."""
    return write_igbh(tmp_path / "igbh")


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic folder of 2,000 papers, shared; do not change it."""
    return synthesize(tmp_path_factory.mktemp("data") / "synthetic", 0.02, seed=3, dim=16)
