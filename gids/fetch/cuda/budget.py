"""Whether everything a loader is about to hold on a GPU fits, found out before any of it is made."""

from __future__ import annotations

from collections.abc import Mapping

from gids.errors import GpuMemoryExceeded

#: Of the free memory, for what others allocate meanwhile: this share, and at least so many bytes.
RESERVED_SHARE = 0.1
RESERVED_BYTES = 512 * 2**20


def usable_bytes(free_bytes: int) -> int:
    """Memory that a loader may take of what is free; the model needs the rest, and takes what is left."""
    return max(0, free_bytes - max(int(RESERVED_SHARE * free_bytes), RESERVED_BYTES))


def check_budget(parts: Mapping[str, int], free_bytes: int) -> None:
    """Raise where the parts do not fit together.

    Parameters
    ----------
    parts : mapping of str to int
        Bytes by the setting that they follow from.
    free_bytes : int
        Of the GPU.

    Raises
    ------
    GpuMemoryExceeded
        Names the largest part that a setting decides.
    """
    usable = usable_bytes(free_bytes)
    if sum(parts.values()) > usable:
        raise GpuMemoryExceeded(parts, usable)
