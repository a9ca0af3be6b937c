"""Imports DGL where its GraphBolt library does not match the installed torch."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from gids.errors import PackageMissing


def import_dgl() -> Any:
    """The module `dgl`.

    Raises
    ------
    PackageMissing
    """
    os.environ.setdefault("DGLBACKEND", "pytorch")
    spec = find_spec("dgl")
    if spec is None or spec.origin is None:
        raise PackageMissing("dgl", "DGL's loader", "pip install 'gids-bam[dgl]' (Python 3.12 or older)")
    import torch

    version = torch.__version__.partition("+")[0]
    library = Path(spec.origin).parent / "graphbolt" / f"libgraphbolt_pytorch_{version}.so"
    if not library.exists() and "dgl.graphbolt" not in sys.modules:
        sys.modules["dgl.graphbolt"] = ModuleType("dgl.graphbolt")
    import dgl

    return dgl
