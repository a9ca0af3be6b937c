"""Imports PyG, or says what to install."""

from __future__ import annotations

from typing import Any

from gids.errors import PackageMissing


def import_pyg(needed_for: str) -> Any:
    """The module `torch_geometric`.

    Raises
    ------
    PackageMissing
    """
    try:
        import torch_geometric
    except ImportError as error:
        raise PackageMissing("torch_geometric", needed_for, "pip install 'gids-bam[pyg]'") from error
    return torch_geometric
