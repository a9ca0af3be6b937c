"""Choosing an engine by name."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence

from bam.config import EngineKind, parse_kind
from bam.errors import EngineUnavailable, NativeLibraryMissing, SourceError
from bam.native import available
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import ByteArray, Engine, ReadSpan
from bam.storage.file import DEFAULT_THREADS, FileEngine, NativeFileEngine
from bam.storage.memory import MemoryEngine, NativeMemoryEngine
from bam.storage.uring import UringEngine

logger = logging.getLogger(__name__)

_NO_LIBRARY = "the native library was not built, so the engine in plain Python runs"
_LOAD_BYTES = 16 * 2**20
_MAX_STALLS = 64


def open_engine(
    kind: EngineKind | str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    direct: bool = True,
    threads: int = DEFAULT_THREADS,
) -> Engine:
    """Open files with the engine of that name.

    Parameters
    ----------
    kind : EngineKind or str
        ``auto``: `uring`; where that is refused, `file`, which is logged and stands in the engine's notes.
        ``memory`` reads the files into memory first.
    paths : sequence of path
        Files 0, 1, ...
    direct : bool
        Whether to bypass the page cache where the file system takes that.
    threads : int
        Reading threads of each channel of `file`.

    Returns
    -------
    Engine
        A :class:`bam.storage.native.NativeEngine` wherever the native library is.

    Raises
    ------
    EngineUnavailable
        The engine named cannot run here; says why and what to do.
    SourceError
        A file cannot be read.
    ConfigError
    """
    chosen = parse_kind("engine", kind, EngineKind)
    if chosen is EngineKind.MEMORY:
        return _load(paths)
    if chosen is EngineKind.URING:
        try:
            return UringEngine(paths, direct=direct)
        except NativeLibraryMissing as missing:
            raise NativeLibraryMissing(chosen.value, missing.reason) from None
    if not available():
        return _noted(FileEngine(paths, direct=direct), _NO_LIBRARY)
    if chosen is EngineKind.FILE:
        return NativeFileEngine(paths, direct=direct, threads=threads)
    try:
        return UringEngine(paths, direct=direct)
    except EngineUnavailable as refusal:
        reason = f"engine 'file' runs because 'uring' is not available: {refusal.reason}. {refusal.remedy}"
        return _noted(NativeFileEngine(paths, direct=direct, threads=threads), reason)


def _noted(engine: NativeFileEngine | FileEngine, reason: str) -> Engine:
    """The engine, whose :meth:`Engine.info` also says why it is not another one."""
    logger.warning("%s", reason)
    engine.add_note(reason)
    return engine


def _load(paths: Sequence[str | os.PathLike[str]]) -> Engine:
    """A memory engine that holds what the files hold now."""
    files = FileEngine(paths, direct=False)
    with files:
        buffers = [_read_whole(files, number) for number in range(len(files.files))]
    return NativeMemoryEngine(buffers) if available() else MemoryEngine(buffers)


def _read_whole(files: FileEngine, number: int) -> ByteArray:
    info = files.files[number]
    whole = aligned_buffer(info.bytes)
    position = stalls = 0
    while position < info.bytes:
        length = min(_LOAD_BYTES, info.bytes - position)
        (result,) = files.read([ReadSpan(number, position, length)], [whole[position : position + length]])
        again = result in (-errno.EINTR, -errno.EAGAIN) and stalls < _MAX_STALLS
        if result <= 0 and not again:
            found = os.strerror(-result) if result else f"its end at byte {position}"
            raise SourceError(info.path, f"{info.bytes} bytes", found, -result or errno.ENODATA)
        stalls = stalls + 1 if again else 0
        position += max(0, result)
    if code := files.check_file(number):
        raise SourceError(info.path, "a file that does not change while it is read", os.strerror(code), code)
    return whole
