"""Checks of what a caller asks a controller for, before any command is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError


@dataclass(frozen=True)
class BlockLimits:
    """What a namespace takes.

    Attributes
    ----------
    n_blocks, block_bytes : int
        Of the namespace.
    most_blocks : int
        Of one command.
    """

    n_blocks: int
    block_bytes: int
    most_blocks: int


def check_block_reads(
    lbas: npt.NDArray[np.int64],
    blocks_per_read: int,
    memory: npt.NDArray[np.uint8],
    limits: BlockLimits,
    *,
    writes: bool = False,
) -> None:
    """Refuse what cannot be read (or written).

    Parameters
    ----------
    lbas : int64 array of shape (n,)
    blocks_per_read : int
    memory : uint8 array of shape (n, blocks_per_read * block_bytes)
        C-contiguous, at an address that is a multiple of 4; writable unless `writes`.

    Raises
    ------
    ConfigError
    """
    if not 1 <= blocks_per_read <= limits.most_blocks:
        raise ConfigError(
            "blocks_per_read", blocks_per_read, f"1 to {limits.most_blocks} (max_transfer_bytes)"
        )
    if lbas.ndim != 1 or lbas.dtype != np.int64:
        raise ConfigError("lbas", f"{lbas.dtype}{lbas.shape}", "a one-dimensional int64 array")
    outside = np.flatnonzero((lbas < 0) | (lbas > limits.n_blocks - blocks_per_read))
    if outside.size:
        expected = f"blocks from 0 to {limits.n_blocks - 1}, all {blocks_per_read} of them"
        raise ConfigError("lbas", int(lbas[outside[0]]), expected)
    shape = (len(lbas), blocks_per_read * limits.block_bytes)
    fits = memory.dtype == np.uint8 and memory.shape == shape and memory.flags.c_contiguous
    if not fits or memory.ctypes.data % 4 or not (memory.flags.writeable or writes):
        expected = f"C-contiguous, writable uint8 of shape {shape}, at an address that is a multiple of 4"
        raise ConfigError("out", f"{memory.dtype}{memory.shape}", expected)
