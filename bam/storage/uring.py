"""The engine that reads with io_uring."""

from __future__ import annotations

import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_uint32
from enum import Flag

from bam.storage.native import NativeEngine, create, path_list

#: Set to anything but 0, io_uring counts as refused.
DISABLE_VARIABLE = "BAM_DISABLE_URING"


class UringFeature(Flag):
    """What the engine uses where the kernel has it; values as in uring_engine.cc."""

    REGISTERED_FILES = 1
    REGISTERED_BUFFERS = 2
    TIMED_WAIT = 4
    SINGLE_MMAP = 8
    COOP_TASKRUN = 16


class UringEngine(NativeEngine):
    """Reads files with io_uring: direct, a deep queue, one system call for many reads.

    Parameters
    ----------
    paths : sequence of path
        Files 0, 1, ...; regular files or block devices.
    direct : bool
        Whether to bypass the page cache (O_DIRECT) where the file system takes it.
    without : UringFeature
        Features not to use even where the kernel has them.

    Raises
    ------
    EngineUnavailable
        The system refuses io_uring; says why and what to do.
    SourceError, ConfigError, NativeLibraryMissing
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        direct: bool = True,
        without: UringFeature = UringFeature(0),  # noqa: B008 - an immutable value
    ) -> None:
        listed = path_list(paths)
        types = [POINTER(c_char_p), c_uint32, c_int32, c_uint32]
        handle = create("bam_uring_engine_create", types, listed, len(listed), direct, without.value)
        super().__init__(handle)
