"""A wrapper that joins engines of one file each to one file."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_uint32, c_uint64, c_void_p

from bam.errors import ConfigError
from bam.storage.native import NativeEngine, create


class StripedEngine(NativeEngine):
    """Shows one file, whose units of `stripe_bytes` lie in the inner engines in turn, as on striped disks.

    Parameters
    ----------
    inner : sequence of NativeEngine
        Each with one file: a file or disk of its own. They stay open when this one closes.
    stripe_bytes : int
        A multiple of the alignment that every inner engine's reads need.
    logical_bytes : int
        Size of the file to show. None: all that the inner engines hold, which must then be dealt exactly.

    Raises
    ------
    ConfigError
    SourceError
        An inner file is too short, or of the wrong length.
    """

    def __init__(
        self, inner: Sequence[NativeEngine], stripe_bytes: int, *, logical_bytes: int | None = None
    ) -> None:
        if not inner:
            raise ConfigError("inner", inner, "at least one engine")
        if stripe_bytes < 1:
            raise ConfigError("stripe_bytes", stripe_bytes, "a positive number of bytes")
        if logical_bytes is not None and logical_bytes < 1:
            raise ConfigError("logical_bytes", logical_bytes, "a positive number of bytes, or None")
        handles = (c_void_p * len(inner))(*[engine.handle for engine in inner])
        types = [c_void_p, c_uint32, c_uint64, c_uint64]
        arguments = (handles, len(inner), stripe_bytes, logical_bytes or 0)
        super().__init__(create("bam_striped_engine_create", types, *arguments), inner)
