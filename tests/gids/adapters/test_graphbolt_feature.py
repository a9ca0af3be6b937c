"""`gids.graphbolt.Feature` against GraphBolt's own interface, which is plain Python in DGL's wheel."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import bam
from bam.errors import ConfigError, RowOutOfRange
from gids.errors import PackageMissing, UnknownNodeType
from gids.sampling.dgl_import import import_dgl

MODULES = ("gids.graphbolt", "gids.adapters.graphbolt_feature")


def interface() -> ModuleType:
    """GraphBolt's `feature_store`, without the library that needs another torch."""
    path = Path(import_dgl().__file__).parent / "graphbolt" / "feature_store.py"
    spec = importlib.util.spec_from_file_location("graphbolt_feature_store", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def feature_class(monkeypatch: pytest.MonkeyPatch) -> Any:
    try:
        graphbolt = interface()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    monkeypatch.setitem(sys.modules, "dgl.graphbolt", graphbolt)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import gids.graphbolt

    yield gids.graphbolt.Feature
    assert issubclass(gids.graphbolt.Feature, graphbolt.Feature)


def test_rows_of_a_file_are_a_graphbolt_feature(feature_class: Any, tmp_path: Path) -> None:
    rows = np.random.default_rng(1).standard_normal((50, 4), dtype=np.float32)
    np.save(tmp_path / "rows.npy", rows)
    with bam.open_array(tmp_path / "rows.npy", cache="16KiB") as array:
        feature = feature_class(array)
        assert feature.size() == torch.Size([4])
        np.testing.assert_array_equal(feature.read(), rows)
        np.testing.assert_array_equal(
            feature.read(torch.tensor([3, 0, 3], dtype=torch.int32)), rows[[3, 0, 3]]
        )
        assert feature.metadata()["table"] == "stored"
        with pytest.raises(RowOutOfRange):
            feature.read(torch.tensor([50]))
        with pytest.raises(ConfigError, match="read-only"):
            feature.update(torch.zeros(1, 4), torch.tensor([0]))


def test_a_store_names_the_node_type(feature_class: Any) -> None:
    from gids.fetch.feature_store import FeatureStore
    from gids.fetch.table import as_table

    store = FeatureStore({"paper": as_table("paper", np.arange(6.0).reshape(3, 2))})
    assert feature_class(store, "paper", torch.float32).read().dtype == torch.float32
    with pytest.raises(UnknownNodeType, match="paper"):
        feature_class(store, "papers")


def test_without_graphbolt_the_import_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        import_dgl()
    except PackageMissing as missing:
        pytest.skip(str(missing))
    monkeypatch.setitem(sys.modules, "dgl.graphbolt", ModuleType("dgl.graphbolt"))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(PackageMissing, match=r"torch 2\.2\.1"):
        import gids.graphbolt  # noqa: F401
