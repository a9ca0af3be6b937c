"""Opening one file to read from, in plain Python; the twin of file_table.cc."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from dataclasses import dataclass

from bam.errors import SourceError
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import FileInfo

_WANTED = "a regular file or block device that can be read"
_RETRIES = 8


@dataclass(frozen=True)
class OpenFile:
    """A file open for reading.

    Attributes
    ----------
    descriptor : int
        Owned by whoever opened the file.
    info : FileInfo
    modified_ns : int
        Modification time when it was opened.
    note : str
        Why it is not read with O_DIRECT, if it is not though that was wanted.
    """

    descriptor: int
    info: FileInfo
    modified_ns: int
    note: str = ""

    def check(self) -> int:
        """0, or ESTALE when the file was rewritten: its modification time changed and it is not smaller."""
        status = os.fstat(self.descriptor)
        cut = stat.S_ISREG(status.st_mode) and status.st_size < self.info.bytes
        return 0 if cut or status.st_mtime_ns == self.modified_ns else errno.ESTALE

    def bytes_now(self) -> int:
        """Size of the file now."""
        status = os.fstat(self.descriptor)
        return _size(self.descriptor, status)


def open_file(path: str, *, direct: bool) -> OpenFile:
    """Open `path` read-only; never waits for the other end of a FIFO.

    Raises
    ------
    SourceError
        Missing, not permitted, a directory, a FIFO, a socket or another device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    try:
        return _examine(path, descriptor, direct)
    except BaseException:
        os.close(descriptor)
        raise


def _examine(path: str, descriptor: int, direct: bool) -> OpenFile:
    status = os.fstat(descriptor)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        raise SourceError(path, _WANTED, _kind_name(status.st_mode), _kind_errno(status.st_mode))
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    n_bytes = _size(descriptor, status)
    alignment, note = _make_direct(descriptor, n_bytes, flags) if direct else (0, "")
    info = FileInfo(path, n_bytes, max(1, alignment), max(1, alignment), direct=alignment > 0)
    return OpenFile(descriptor, info, status.st_mtime_ns, note)


def _size(descriptor: int, status: os.stat_result) -> int:
    """Size of a regular file or block device, whose `st_size` is 0."""
    return status.st_size if stat.S_ISREG(status.st_mode) else os.lseek(descriptor, 0, os.SEEK_END)


def _make_direct(descriptor: int, n_bytes: int, flags: int) -> tuple[int, str]:
    """Set O_DIRECT; the alignment it needs, or 0 and the reason why it does not work."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
    except OSError as error:
        return 0, f"the file system does not take O_DIRECT ({error.strerror})"
    # A file too short to tell gets the larger unit, which every file system takes.
    for unit in (512, 4096) if n_bytes >= 1024 else (4096,):
        if _can_read(descriptor, n_bytes, unit):
            return unit, ""
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return 0, "direct reads of 512 and of 4096 bytes fail"


def _can_read(descriptor: int, n_bytes: int, unit: int) -> bool:
    """Whether direct reads work at offsets and addresses that are odd multiples of `unit`."""
    memory = aligned_buffer(3 * unit, 4096)[unit : 2 * unit]
    offset = unit if n_bytes >= 2 * unit else 0
    for _ in range(_RETRIES):
        try:
            os.preadv(descriptor, [memory.data], offset)
        except BlockingIOError:
            continue
        except OSError as error:
            # a failing disk is not a question of alignment
            return error.errno not in (errno.EINVAL, errno.EOPNOTSUPP)
        return True
    return False


def _refused(path: str, error: OSError | ValueError) -> SourceError:
    if isinstance(error, ValueError):
        return SourceError(path, _WANTED, str(error), errno.EINVAL)
    found = os.strerror(error.errno or 0)
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        found = _kind_name(mode)
    return SourceError(path, _WANTED, found, error.errno)


def _kind_name(mode: int) -> str:
    names = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
    }
    return names.get(stat.S_IFMT(mode), "something else")


def _kind_errno(mode: int) -> int:
    return {stat.S_IFDIR: errno.EISDIR, stat.S_IFIFO: errno.ESPIPE}.get(stat.S_IFMT(mode), errno.EINVAL)
