"""One run of file bytes through any engine: an aligned read encloses it, repeated as far as that helps."""

from __future__ import annotations

import errno as errno_codes
import time
from dataclasses import dataclass

from bam.errors import FileChangedError, StorageError, TruncatedFileError
from bam.layout import FileRun
from bam.storage.engine import ByteArray, Engine, FileInfo, ReadSpan

#: Reads in a row that brought nothing before a run is given up.
MAX_STALLS = 64
#: A file system that says EAGAIN is asked again after this long, so 64 times are a fifth of a second.
AGAIN_WAIT_S = 0.003

_ASK_AGAIN = (-errno_codes.EINTR, -errno_codes.EAGAIN)


@dataclass
class RangeCounters:
    """What was read since it was made."""

    reads: int = 0
    bytes_read: int = 0
    retries: int = 0
    failures: int = 0


@dataclass(frozen=True)
class Enclosure:
    """The aligned bytes of a file that enclose a run.

    Attributes
    ----------
    begin, length : int
        Of the file's bytes, multiples of its alignment.
    lead : int
        Bytes of it before the run.
    """

    begin: int
    length: int
    lead: int

    @classmethod
    def of(cls, run: FileRun, file: FileInfo) -> Enclosure:
        """For the alignment that the file needs."""
        unit = file.offset_alignment
        begin = run.file_offset // unit * unit
        lead = run.file_offset - begin
        return cls(begin, -(-(lead + run.length) // unit) * unit, lead)


def read_enclosing(
    engine: Engine,
    run: FileRun,
    buffer: ByteArray,
    counters: RangeCounters,
    *,
    name: str,
    page_id: int | None = None,
    remedy: str = "",
) -> Enclosure:
    """Read a run into `buffer`, with what is around it up to the file's alignment.

    Parameters
    ----------
    engine : Engine
    run : FileRun
    buffer : uint8 array
        As long as the enclosure at least, aligned as the file's memory must be.
    counters : RangeCounters
    name : str
        Of the file, for the error.
    page_id : int, optional
        For the error.
    remedy : str
        What an error says beside what the device says.

    Returns
    -------
    Enclosure
        The run lies in `buffer` from its `lead` on.

    Raises
    ------
    StorageError
        The run could not be read.
    TruncatedFileError, FileChangedError
    """

    def failure(code: int) -> StorageError:
        known = code in (errno_codes.ENODATA, errno_codes.ESTALE)
        note = "" if known else engine.explain(run.file, run.file_offset) or "check the disk"
        return run_failure(name, run, code, f"{note}; {remedy}" if remedy else note, page_id)

    file = engine.files[run.file]
    enclosure = Enclosure.of(run, file)
    unit, begin, needed = file.offset_alignment, enclosure.begin, enclosure.lead + run.length
    got = stalls = 0
    while got < needed:
        # After a short read a direct one goes on at the last whole unit.
        position = got // unit * unit
        span = ReadSpan(run.file, begin + position, enclosure.length - position)
        (result,) = engine.read([span], [buffer[position : enclosure.length]])
        counters.reads += 1
        counters.bytes_read += max(result, 0)
        if result > span.length:
            raise failure(errno_codes.EIO)
        reached = max(got, position + max(result, 0))
        stalls = stalls + 1 if reached == got else 0
        if result < 0 and (result not in _ASK_AGAIN or stalls > MAX_STALLS):
            raise failure(-result)
        if stalls and result >= 0 and begin + needed > engine.bytes_now(run.file):
            raise failure(errno_codes.ENODATA)
        if stalls > MAX_STALLS:
            raise failure(errno_codes.EIO)
        if reached < needed:
            counters.retries += 1
        if result == -errno_codes.EAGAIN:
            time.sleep(AGAIN_WAIT_S)
        got = reached
    # Every byte arrived before this look.
    if changed := engine.check_file(run.file, run.file_offset + run.length):
        raise failure(changed)
    return enclosure


def run_failure(name: str, run: FileRun, code: int, note: str, page_id: int | None = None) -> StorageError:
    """The typed error of a run that could not be read.

    Parameters
    ----------
    name : str
        Of the file.
    run : FileRun
    code : int
        What the system said; ENODATA and ESTALE have errors and notes of their own.
    note : str
        What to do.
    page_id : int, optional
    """
    where = (name, run.file_offset, run.length, code, page_id)
    if code == errno_codes.ENODATA:
        return TruncatedFileError(*where, note="the file ends before these bytes; restore it")
    if code == errno_codes.ESTALE:
        return FileChangedError(*where, note="the file was rewritten since it was opened; open it again")
    return StorageError(*where, note=note)
