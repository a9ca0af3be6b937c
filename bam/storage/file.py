"""Engines that read with pread: they work wherever files do."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_uint32

from bam.errors import ClosedError, ConfigError
from bam.storage.engine import ByteArray, EngineInfo, ReadSpan
from bam.storage.fingerprint import samples_per_file
from bam.storage.native import NativeEngine, create, path_list
from bam.storage.open_file import OpenFile, open_file
from bam.storage.python_engine import PythonEngine

#: Reading threads of each channel of :class:`NativeFileEngine`, unless told otherwise.
DEFAULT_THREADS = 8


class FileEngine(PythonEngine):
    """Reads files with `os.preadv`, one span after the other; needs no compiler.

    Parameters
    ----------
    paths : sequence of path
        Files 0, 1, ...; regular files or block devices.
    direct : bool
        Whether to bypass the page cache (O_DIRECT) where the file system takes it.

    Raises
    ------
    SourceError
        A file that cannot be read: says which and why.
    ConfigError
        No paths.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], *, direct: bool = True) -> None:
        path_list(paths)
        samples = samples_per_file(len(paths))
        self._open: list[OpenFile] = []
        try:
            for path in paths:
                self._open.append(open_file(os.fspath(path), direct=direct, samples=samples))
        except BaseException:
            self._release()
            raise
        super().__init__("file", [file.info for file in self._open])

    def info(self) -> EngineInfo:
        if self._closed:
            raise ClosedError("engine 'file'")
        noted = [f"{file.info.path}: {file.note}" for file in self._open if file.note]
        count = f"{len(noted)} of {len(self._open)} files are read through the page cache, not with O_DIRECT"
        own_notes = (f"{count}; {noted[0]}",) if noted else ()
        direct = all(file.info.direct for file in self._open)
        return EngineInfo("file", "python", direct=direct, notes=own_notes + self._notes)

    def check_file(self, file: int, end: int = 0) -> int:
        with self._in_use():
            try:
                return self._open[file].check(end)
            except OSError as error:
                return error.errno or errno.EIO

    def bytes_now(self, file: int) -> int:
        with self._in_use():
            return self._open[file].bytes_now()

    def _read_span(self, span: ReadSpan, buffer: ByteArray) -> int:
        if span.file >= len(self._open):
            return -errno.EBADF
        try:
            return os.preadv(self._open[span.file].descriptor, [buffer.data], span.offset)
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _release(self) -> None:
        for file in self._open:
            os.close(file.descriptor)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


class NativeFileEngine(NativeEngine):
    """Reads files with pread from a few C++ threads a channel, so that many reads are in flight.

    Parameters
    ----------
    paths, direct
        As of :class:`FileEngine`.
    threads : int
        Reading threads of each channel, 1 to 1024.

    Raises
    ------
    SourceError, ConfigError, NativeLibraryMissing
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        *,
        direct: bool = True,
        threads: int = DEFAULT_THREADS,
    ) -> None:
        if not 1 <= threads <= 1024:
            raise ConfigError("threads", threads, "1 to 1024")
        listed = path_list(paths)
        types = [POINTER(c_char_p), c_uint32, c_int32, c_uint32]
        super().__init__(create("bam_file_engine_create", types, listed, len(listed), direct, threads))
