"""Imports PyYAML, or says what to install."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from gids.errors import DatasetError, PackageMissing

_MOST_BYTES = 2**20


def read_yaml(path: Path) -> Any:
    """Plain values of a YAML file.

    Raises
    ------
    DatasetError, PackageMissing
    """
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise PackageMissing("yaml", "reading metadata.yaml", "pip install 'gids-bam[graphbolt]'") from error
    try:
        text = path.read_bytes()
        if len(text) > _MOST_BYTES:
            raise DatasetError(str(path), f"at most {_MOST_BYTES} bytes", f"{len(text)}")
        return yaml.safe_load(text)
    except (yaml.YAMLError, OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(str(path), "YAML", str(error).replace("\n", " ")[:200]) from error
