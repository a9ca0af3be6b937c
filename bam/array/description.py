"""What an array is and where its bytes lie: enough to open it, and to open the same one again elsewhere."""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bam.errors import FileChangedError, SourceError, StorageError
from bam.layout import Layout
from bam.storage.engine import Engine
from bam.storage.nvme.drive_run import DriveRun

#: numpy addresses no array that is longer.
MAX_ARRAY_BYTES = 2**63 - 1


@dataclass(frozen=True)
class FileIdentity:
    """Which file it was, and which state of it: a file rewritten in place has another modification time."""

    path: str
    device: int
    inode: int
    bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> FileIdentity:
        return cls(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raise unless the path still leads to this very file.

        Raises
        ------
        FileChangedError
            It is another file, or was rewritten.
        StorageError
            It cannot be reached any more.
        """
        try:
            now = FileIdentity.of(self.path, os.stat(self.path))
        except OSError as error:
            raise StorageError(self.path, 0, 0, error.errno or errno.EIO, note="restore the file") from error
        if now != self:
            note = "the file was replaced or rewritten since the array was opened; open the array anew"
            raise FileChangedError(self.path, 0, 0, errno.ESTALE, note=note)


@dataclass(frozen=True)
class ArrayDescription:
    """An array of rows and the place of its bytes.

    Attributes
    ----------
    shape : tuple of int
        At least one dimension; the first counts rows.
    stored_dtype : numpy.dtype
        As in the files; may be of the other byte order.
    layout : Layout
    files : tuple of FileIdentity
        By file number of the layout; empty for arrays in memory.
    memory : tuple of uint8 arrays
        By file number of the layout; empty for arrays in files. Kept alive by this object.
    opener : callable, optional
        Opens the engine whose files the layout names, for arrays that are neither in files nor in memory.
    run : DriveRun, optional
        Where the bytes lie on an NVMe drive, if one holds them all: a GPU then reads it by itself.
    """

    shape: tuple[int, ...]
    stored_dtype: np.dtype[np.generic]
    layout: Layout
    files: tuple[FileIdentity, ...] = ()
    memory: tuple[npt.NDArray[np.uint8], ...] = ()
    opener: Callable[[], Engine] | None = None
    run: DriveRun | None = None

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """dtype of the rows handed out: the stored one in this machine's byte order."""
        native: np.dtype[np.generic] = self.stored_dtype.newbyteorder("=")
        return native

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        return self.stored_dtype.itemsize * math.prod(self.row_shape)

    def check_files(self) -> None:
        """Raise unless every file is the one that was described; see :meth:`FileIdentity.check`."""
        for file in self.files:
            file.check()


@contextmanager
def open_regular(path: str) -> Iterator[tuple[int, FileIdentity]]:
    """Descriptor and identity of a regular file, for the time of the `with` block.

    Raises
    ------
    SourceError
        It is something else, or cannot be opened (`errno` says why).
    """
    try:
        # O_NONBLOCK: opening a FIFO would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(path, "a readable file", error.strerror or "an error", error.errno) from error
    except ValueError as error:
        raise SourceError(path, "a path", str(error), errno.EINVAL) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise SourceError(path, "a regular file", "a directory; list its files instead", errno.EISDIR)
        if not stat.S_ISREG(status.st_mode):
            code = errno.ESPIPE if stat.S_ISFIFO(status.st_mode) else errno.EINVAL
            raise SourceError(path, "a regular file", "a FIFO or device", code)
        yield descriptor, FileIdentity.of(path, status)
    except OSError as error:
        raise SourceError(path, "a readable file", error.strerror or "an error", error.errno) from error
    finally:
        os.close(descriptor)


def check_dtype(where: str, dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """`dtype` as numpy's, if rows of it can be read from files.

    Raises
    ------
    SourceError
    """
    expected = "a dtype of fixed size without Python objects"
    if dtype is None:  # which numpy would take for float64
        raise SourceError(where, expected, "None")
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError, KeyError) as error:
        raise SourceError(where, expected, repr(dtype)) from error
    if found.hasobject:
        remedy = f"dtype {found}, whose items are pickled Python objects; save it with a numeric dtype"
        raise SourceError(where, expected, remedy)
    if found.itemsize == 0 or found.subdtype is not None:
        raise SourceError(where, expected, f"dtype {found}")
    return found


def check_shape(where: str, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> int:
    """Bytes of an array of this shape and dtype.

    Raises
    ------
    SourceError
        No dimensions, a negative one, or more bytes than can be addressed.
    """
    if not shape:
        remedy = "a single value (shape ()); reshape it to (1,)"
        raise SourceError(where, "at least one dimension, the rows", remedy)
    if any(length < 0 for length in shape):
        raise SourceError(where, "a shape without negative lengths", f"shape {shape}")
    # Lengths beside a zero count as well: numpy cannot represent such arrays either.
    if len(shape) > 32 or dtype.itemsize * math.prod(max(length, 1) for length in shape) > MAX_ARRAY_BYTES:
        raise SourceError(where, "an array of at most 32 dimensions and 2**63 - 1 bytes", f"shape {shape}")
    return dtype.itemsize * math.prod(shape)
