"""Opening one file to read from, in plain Python; the twin of file_table.cc."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from dataclasses import dataclass

from bam.errors import SourceError
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import FileInfo
from bam.storage.fingerprint import Fingerprint

_WANTED = "a regular file or block device that can be read"
_RETRIES = 8
_MOST_LOOKS = 8  # at a file that changes while it is looked at
_MOST_WAIT_NS = 20_000_000  # for the clock of modification times, which ticks every 1 to 10 ms


@dataclass(frozen=True)
class FileState:
    """What `stat` says about the content of a file; a block device has no state that tells anything."""

    bytes: int
    modified_ns: int
    regular: bool

    @classmethod
    def of(cls, descriptor: int) -> FileState:
        """State of an open file."""
        status = os.fstat(descriptor)
        return cls(_size(descriptor, status), status.st_mtime_ns, stat.S_ISREG(status.st_mode))

    @property
    def until_told_apart_ns(self) -> int:
        """Nanoseconds until a change of the file gets another modification time; 0 or less: it does now."""
        # What file systems stamp with.
        return self.modified_ns + 1 - time.clock_gettime_ns(_STAMPING_CLOCK)


_STAMPING_CLOCK = 5  # CLOCK_REALTIME_COARSE of Linux, which Python has no name for


class OpenFile:
    """A file open for reading.

    Parameters
    ----------
    descriptor : int
        Owned by whoever opened the file.
    info : FileInfo
    opened : FileState
        When it was opened.
    fingerprint : Fingerprint
        Taken then.
    note : str
        Why it is not read with O_DIRECT, if it is not though that was wanted.
    """

    def __init__(
        self, descriptor: int, info: FileInfo, opened: FileState, fingerprint: Fingerprint, note: str = ""
    ) -> None:
        self.descriptor, self.info, self.note = descriptor, info, note
        self._opened, self._fingerprint = opened, fingerprint
        self._looking = threading.Lock()
        self._rewritten = False
        self._cut: FileState | None = None  # a state in which it is shorter and its bytes are the old ones

    def check(self, end: int) -> int:
        """Whether the bytes before `end` are what they were: 0, ESTALE (rewritten) or ENODATA (cut)."""
        if self._rewritten:
            return errno.ESTALE
        now = FileState.of(self.descriptor)
        if now.regular and now.bytes < self._opened.bytes:
            return self._check_cut(end)
        return 0 if now.modified_ns == self._opened.modified_ns else errno.ESTALE

    def _check_cut(self, end: int) -> int:
        """The file is shorter: cut, or written anew. Tells which, once for each state it is found in."""
        with self._looking:
            for _ in range(_MOST_LOOKS):
                now = FileState.of(self.descriptor)
                if now.bytes >= self._opened.bytes:
                    break  # and is long again: written to
                if now != self._cut:
                    told_apart = now.until_told_apart_ns <= 0
                    code = self._fingerprint.compare(self.descriptor, now.bytes)
                    self._rewritten |= code == errno.ESTALE
                    if code == errno.ESTALE:
                        break
                    # What is remembered must not be true of a later change as well.
                    if code == errno.EAGAIN or FileState.of(self.descriptor) != now:
                        continue
                    self._cut = now if told_apart else None
                return errno.ENODATA if now.bytes < end else 0
        return errno.ESTALE

    def bytes_now(self) -> int:
        """Size of the file now."""
        status = os.fstat(self.descriptor)
        return _size(self.descriptor, status)


def open_file(path: str, *, direct: bool, samples: int) -> OpenFile:
    """Open `path` read-only and sample so many of its blocks; never waits for the other end of a FIFO.

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
        return _examine(path, descriptor, direct, samples)
    except BaseException:
        os.close(descriptor)
        raise


def _examine(path: str, descriptor: int, direct: bool, samples: int) -> OpenFile:
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
        raise SourceError(path, _WANTED, _kind_name(mode), _kind_errno(mode))
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    opened = _settled_state(descriptor)
    alignment, note = _make_direct(descriptor, opened.bytes, flags) if direct else (0, "")
    unit = max(1, alignment)
    fingerprint = Fingerprint.take(descriptor, opened.bytes if opened.regular else 0, unit, samples)
    info = FileInfo(path, opened.bytes, unit, unit, direct=alignment > 0)
    return OpenFile(descriptor, info, opened, fingerprint, note)


def _settled_state(descriptor: int) -> FileState:
    """State of a file that was opened, such that no later change leaves it as it is.

    Waits, if it was changed a moment ago, until the clock has moved on. A time far in the future is that of
    another machine's clock, and not waited for.
    """
    for _ in range(_MOST_LOOKS):
        state = FileState.of(descriptor)
        left_ns = state.until_told_apart_ns
        if not 0 < left_ns <= _MOST_WAIT_NS:
            break
        time.sleep(left_ns * 1e-9)
    return state


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
