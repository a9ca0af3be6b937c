"""Files of ``torch.save``, opened without running anything that is in them.

They are pickles. ``weights_only`` loads tensors and plain containers, here numpy arrays and the classes
that the caller names as well; anything else is refused. Tensors are mapped, not read, in files of the usual
zip kind.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bam.array.description import open_regular
from gids.errors import DatasetError, PackageMissing

_NUMPY_KINDS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


def load_torch(path: Path, classes: Sequence[Any] = ()) -> Any:
    """What the file holds.

    Parameters
    ----------
    path : Path
    classes : sequence of class
        That may be made besides tensors, containers and numpy arrays.

    Raises
    ------
    DatasetError
        It is no such file, is damaged, or holds something else.
    bam.errors.SourceError
    PackageMissing
        torch is too old for that.
    """
    import torch

    if not hasattr(torch.serialization, "get_unsafe_globals_in_checkpoint"):
        # Older ones cannot be told which classes a file may name.
        raise PackageMissing("torch 2.6 or newer", "opening files of torch.save", "pip install -U torch")
    with open_regular(str(path)):
        pass
    try:
        with torch.serialization.safe_globals([*_numpy_globals(), *classes]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:
        # Damaged files make torch's unpickler raise nearly anything.
        text = str(error).split("\n", 1)[0].split(". ", 1)[0][:200]  # what follows is torch's unsafe advice
        refused = [word for word in str(error).split() if "GLOBAL" in word]
        cause = _refused_name(str(error)) if refused else f"{type(error).__name__}: {text}"
        raise DatasetError(
            str(path), "tensors, numpy arrays and plain containers of torch.save", cause
        ) from error


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A tensor on the CPU or a numpy array as numpy's; None for anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return None
        found: np.ndarray[Any, Any] = (
            value.detach().cpu().float().numpy()
            if value.dtype == torch.bfloat16
            else value.detach().cpu().numpy()
        )
        return found
    return value if isinstance(value, np.ndarray) else None


def _numpy_globals() -> list[Any]:
    try:
        from numpy._core import multiarray
    except ImportError:  # numpy 1
        from numpy.core import multiarray  # type: ignore[no-redef]
    rebuild = multiarray._reconstruct
    # Files name it as the numpy that wrote them did.
    named = [(rebuild, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    return [*named, np.ndarray, np.dtype, *(type(np.dtype(kind)) for kind in _NUMPY_KINDS)]


def _refused_name(text: str) -> str:
    at = text.find("GLOBAL ")
    name = text[at + len("GLOBAL ") :].split(" ", 1)[0] if at >= 0 else "?"
    return f"an object of {name}, which loading would have to run; load it yourself and save what is in it"
