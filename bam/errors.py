"""Errors of `bam`: typed, with fields, and each message names the next step."""

from __future__ import annotations

import os
from errno import EMFILE, ENFILE, ETIMEDOUT
from typing import Any


class BamError(Exception):
    """Base of every error `bam` raises on purpose. Fields and all, they can be sent to other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.errno, self.strerror, self.filename) if isinstance(self, OSError) else self.args
        return _rebuilt, (type(self), arguments, self.__dict__)


def _rebuilt(kind: type[BamError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> BamError:
    """An unpickled error; its constructor takes fields, which is not what exceptions are pickled as."""
    error = kind.__new__(kind, *arguments)
    if isinstance(error, OSError):
        OSError.__init__(error, *arguments)
    error.__dict__.update(fields)
    return error


class ConfigError(BamError, ValueError):
    """A setting has a value that cannot work.

    Attributes
    ----------
    setting : str
    value : object
    expected : str
    """

    def __init__(self, setting: str, value: object, expected: str) -> None:
        self.setting, self.value, self.expected = setting, value, expected
        super().__init__(f"{setting}={value!r}: expected {expected}")


class SourceError(BamError, ValueError):
    """A file cannot serve as the array it was opened as.

    Attributes
    ----------
    file : str
    expected, found : str
        What was needed and what the file holds.
    errno : int or None
        The system's reason, where there is one.
    """

    def __init__(self, file: str, expected: str, found: str, errno: int | None = None) -> None:
        self.file, self.expected, self.found, self.errno = file, expected, found, errno
        remedy = "; raise the limit (ulimit -n)" if errno in (EMFILE, ENFILE) else ""
        super().__init__(f"{file}: expected {expected}, found {found}{remedy}")


class StorageError(BamError, OSError):
    """Bytes a caller needs could not be read. Other callers and later calls are not affected.

    Attributes
    ----------
    file : str
    offset : int
        Byte offset in the file of the run that failed.
    length : int
        Bytes of that run.
    page_id : int or None
        Page of the store the bytes belong to.
    errno : int
    """

    def __init__(
        self, file: str, offset: int, length: int, errno: int, page_id: int | None = None, note: str = ""
    ) -> None:
        OSError.__init__(self, errno, os.strerror(errno), file)
        self.file, self.offset, self.length, self.page_id, self.note = file, offset, length, page_id, note

    def __str__(self) -> str:
        page = "" if self.page_id is None else f", page {self.page_id}"
        note = f": {self.note}" if self.note else ""
        return (
            f"reading {self.length} bytes at offset {self.offset} of {self.file}{page} failed: "
            f"[errno {self.errno}] {self.strerror}{note}"
        )


class NvmeStatusError(StorageError):
    """An NVMe drive completed a command with another status than success, or did not complete it.

    Attributes
    ----------
    status : int
        Status code type << 8 | status code of the completion.
    status_name : str
        As the NVM Express specification names it.
    """

    def __init__(
        self, drive: str, offset: int, length: int, errno: int, status: int, status_name: str, note: str = ""
    ) -> None:
        text = f"{status_name} (status {status:03X}h)"
        super().__init__(drive, offset, length, errno, note=f"{text}; {note}" if note else text)
        self.status, self.status_name = status, status_name


class TruncatedFileError(StorageError):
    """The file ends before the bytes the caller needs: it was cut after it was opened (errno ENODATA)."""


class FileChangedError(StorageError):
    """The file was rewritten after it was opened, so its bytes are no longer the array's (errno ESTALE)."""


class RowOutOfRange(BamError, IndexError):
    """A row id is not in ``[-n_rows, n_rows)``.

    Attributes
    ----------
    row_id : int
    n_rows : int
    position : int
        Index of the offending id in the caller's list.
    """

    def __init__(self, row_id: int, n_rows: int, position: int = 0) -> None:
        self.row_id, self.n_rows, self.position = row_id, n_rows, position
        super().__init__(f"row id {row_id} (at position {position}) is out of range for {n_rows} rows")


class EngineUnavailable(BamError, RuntimeError):
    """The engine asked for cannot run here.

    Attributes
    ----------
    engine, reason, remedy : str
    """

    def __init__(self, engine: str, reason: str, remedy: str) -> None:
        self.engine, self.reason, self.remedy = engine, reason, remedy
        super().__init__(f"engine {engine!r} is not available: {reason}. {remedy}")


class NativeLibraryMissing(EngineUnavailable):
    """The C++ library was not built when `bam` was installed, or cannot be loaded."""

    def __init__(self, needed_by: str, reason: str = "the native library was not built") -> None:
        super().__init__(
            needed_by,
            reason,
            "Install a C++20 compiler (g++ 11 or newer) and run `pip install --force-reinstall --no-deps .`; "
            "without it use engine='file' or 'memory' and cache kind 'reference'",
        )


class NativeFailure(BamError, RuntimeError):
    """The native library failed in a way it should not; report it.

    Attributes
    ----------
    reason : str
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}; this is a fault of bam, please report it")


class DriveUnavailable(BamError, RuntimeError):
    """An NVMe drive cannot be used by this process.

    Attributes
    ----------
    drive : str
        Its PCI address, or the part of the system that refused.
    reason, remedy : str
    """

    def __init__(self, drive: str, reason: str, remedy: str) -> None:
        self.drive, self.reason, self.remedy = drive, reason, remedy
        super().__init__(f"{drive}: {reason}. {remedy}")


class ClosedError(BamError, ValueError):
    """The array, engine or cache was closed before this call."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} is closed; open it again")


class WaitTimeout(BamError, TimeoutError):
    """Something awaited did not happen in time; nothing is known to be wrong with the data.

    Attributes
    ----------
    awaited : str
    timeout_s : float
    file : str or None
    offset, length : int or None
        Of the read awaited, where it is one: bytes in the file.
    page_id : int or None
        Page of the store the bytes belong to.
    errno : int
        ETIMEDOUT.
    """

    def __init__(
        self,
        awaited: str,
        timeout_s: float,
        remedy: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        length: int | None = None,
        page_id: int | None = None,
    ) -> None:
        self.awaited, self.timeout_s, self.remedy = awaited, timeout_s, remedy
        self.file, self.offset, self.length, self.page_id = file, offset, length, page_id
        OSError.__init__(self, ETIMEDOUT, os.strerror(ETIMEDOUT), file)

    def __str__(self) -> str:
        return f"waited {self.timeout_s:g} s for {self.awaited}. {self.remedy}"


class ForkedError(BamError, RuntimeError):
    """What was made before a fork was used in the child, which has neither its rings nor its threads."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what} was opened before this process was forked; open it again in this process")


class RowIndexTypeError(BamError, TypeError):
    """Something that is not a row id was used as one.

    Attributes
    ----------
    found : str
    """

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(
            f"rows are selected with integers, slices or boolean masks, not {found}; convert the ids first"
        )
