"""Feature rows through memory maps and in memory, as tensors."""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from bam.array.npy_header import has_magic
from bam.errors import ConfigError
from gids.bench.loaders.base import read_only_tensor
from gids.bench.loaders.copy import RowCopy
from gids.graph.dataset import Features
from gids.graph.feature_types import FeatureDtype

Rows = npt.NDArray[np.int64]


def open_mapped(features: Features) -> npt.NDArray[Any]:
    """All rows as users of DGL and PyG open them: `np.load(mmap_mode="r")`, or `np.memmap` without header.

    Raises
    ------
    ConfigError
        The rows do not lie in one file.
    """
    path, offset = _place(features)
    with open(path, "rb") as file:
        has_header = has_magic(file.fileno())
    if has_header:
        loaded: npt.NDArray[Any] = np.load(path, mmap_mode="r")
        return loaded
    return np.memmap(path, features.dtype.stored, "r", offset, (features.n_rows, features.dim))


def open_random_mapped(features: Features) -> npt.NDArray[Any]:
    """All rows, mapped with MADV_RANDOM: the kernel then reads the pages touched and no others."""
    path, offset = _place(features)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    flat = np.frombuffer(mapped, features.dtype.stored, features.n_rows * features.dim, offset)
    return flat.reshape(features.n_rows, features.dim)


def read_all(features: Features) -> torch.Tensor:
    """All rows in memory, read once from the start of the file to its end."""
    path, offset = _place(features)
    rows = np.fromfile(path, features.dtype.stored, features.n_rows * features.dim, offset=offset)
    return as_tensor(rows.reshape(features.n_rows, features.dim), features.dtype)


def as_tensor(rows: npt.NDArray[Any], dtype: FeatureDtype) -> torch.Tensor:
    """A tensor over the same memory, which is only read."""
    tensor = read_only_tensor(rows)
    return tensor.view(torch.bfloat16) if dtype is FeatureDtype.BFLOAT16 else tensor


class ThreadedTake:
    """Copies rows of a memory map with many threads, so that many page faults wait at once.

    Parameters
    ----------
    threads : int
    memory : RowCopy
        Gives the memory that rows are copied to.
    """

    def __init__(self, threads: int, memory: RowCopy) -> None:
        self._threads, self._memory = threads, memory
        self._executor = ThreadPoolExecutor(threads, "touch")

    def take(self, mapped: npt.NDArray[Any], rows: Rows, dtype: FeatureDtype) -> torch.Tensor:
        """``mapped[rows]``; row numbers must be in range."""
        stored = as_tensor(mapped[:0], dtype).dtype
        out = self._memory.empty(len(rows), mapped.shape[1:], stored)
        target = out.view(torch.uint16).numpy() if dtype is FeatureDtype.BFLOAT16 else out.numpy()
        step = max(1, -(-len(rows) // (4 * self._threads)))

        def copy(first: int) -> None:
            # In any other mode numpy copies to `out` by way of a temporary array.
            part = slice(first, first + step)
            np.take(mapped, rows[part], axis=0, out=target[part], mode="clip")

        for done in [self._executor.submit(copy, first) for first in range(0, len(rows), step)]:
            done.result()
        return out

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown()


def _place(features: Features) -> tuple[str, int]:
    extents = features.description.layout.extents
    if len(features.description.files) != 1 or len(extents) != 1:
        expected = "rows that lie in one file, which is what memory maps can serve"
        raise ConfigError(f"features of {features.node_type!r}", f"{len(extents)} parts", expected)
    return features.description.files[0].path, extents[0].file_offset
