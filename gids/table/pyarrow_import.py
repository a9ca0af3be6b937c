"""Imports pyarrow, or says what to install."""

from __future__ import annotations

from typing import Any

from gids.errors import PackageMissing


def import_pyarrow() -> Any:
    """The module `pyarrow`, with `ipc` and `compute`.

    Raises
    ------
    PackageMissing
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.ipc
    except ImportError as error:
        raise PackageMissing("pyarrow", "reading tables", "pip install 'gids-bam[arrow]'") from error
    return pyarrow
