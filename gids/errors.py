"""Errors of `gids`: typed, with fields, and each message names the next step."""

from __future__ import annotations

from bam.errors import BamError


class GidsError(BamError):
    """Base of every error `gids` raises on purpose."""


class UnfinishedWorkError(GidsError, RuntimeError):
    """A folder holds work that cannot be continued by this call.

    Attributes
    ----------
    folder, reason, remedy : str
    """

    def __init__(self, folder: str, reason: str, remedy: str) -> None:
        self.folder, self.reason, self.remedy = folder, reason, remedy
        super().__init__(f"{folder}: {reason}. {remedy}")


class DiskFullError(GidsError, OSError):
    """There is not enough room for what is to be written. What was written stays and is not written again.

    Attributes
    ----------
    file : str
    needed_bytes, free_bytes : int
    errno : int or None
        The system's reason; None when the room was found too small before any work.
    """

    def __init__(self, file: str, needed_bytes: int, free_bytes: int, errno: int | None = None) -> None:
        self.file, self.needed_bytes, self.free_bytes = file, needed_bytes, free_bytes
        super().__init__(
            f"{file}: {needed_bytes:,} more bytes are needed, {free_bytes:,} are free. "
            "Make room (or raise the quota or file size limit) and run the same command again; it goes on from here"
        )
        self.errno = errno


class DatasetError(GidsError, ValueError):
    """A data set folder is not what it should be.

    Attributes
    ----------
    file : str
    expected, found : str
    """

    def __init__(self, file: str, expected: str, found: str) -> None:
        self.file, self.expected, self.found = file, expected, found
        super().__init__(f"{file}: expected {expected}, found {found}")


class ChecksumError(DatasetError):
    """Bytes of a store are not those that were written.

    Attributes
    ----------
    offset, length : int
        The chunk, in bytes of the file.
    """

    def __init__(self, file: str, offset: int, length: int, expected: int, found: int) -> None:
        self.offset, self.length = offset, length
        super().__init__(
            file, f"checksum {expected:08x} of bytes {offset} to {offset + length}", f"{found:08x}"
        )
