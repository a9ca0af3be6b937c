"""Training loops of PyG's heterogeneous kinds; they are those of `experiments/ecosystem/pyg_loops.py`."""

from __future__ import annotations

import runpy
import statistics
from pathlib import Path
from typing import Any

import pytest

pyg = pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'gids-bam[pyg]'")

from gids.pyg import NeighborLoader  # noqa: E402

SCRIPT = Path(__file__).parents[3] / "experiments" / "ecosystem" / "pyg_loops.py"
KINDS = ("to_hetero", "HeteroConv", "HGTConv")
SEEDS = range(3)


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def data(loops: dict[str, Any], shared_data: Path | None) -> Any:
    if shared_data is None:
        pytest.skip("the shared data folder is not there")
    return loops["acm_data"](shared_data / "heco-acm")


@pytest.mark.parametrize("kind", KINDS)
def test_through_our_loader(loops: dict[str, Any], data: Any, kind: str) -> None:
    assert loops["train"](kind, NeighborLoader, data, 0) > 0.75


@pytest.mark.parametrize("kind", KINDS)
def test_pygs_own_loader_gives_the_same_accuracy(loops: dict[str, Any], data: Any, kind: str) -> None:
    if not loops["HAS_PYGS_SAMPLER"]:
        pytest.skip("PyG's NeighborLoader needs pyg-lib or torch-sparse")
    ours, theirs = (
        statistics.mean(loops["train"](kind, each, data, seed) for seed in SEEDS)
        for each in (NeighborLoader, pyg.loader.NeighborLoader)
    )
    assert abs(ours - theirs) < loops["NOISE"]
