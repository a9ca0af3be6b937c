"""Bytes that lie on a drive one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from bam.storage.nvme.drive import NvmeDrive


@dataclass(frozen=True)
class DriveRun:
    """Bytes that lie on a drive from the beginning of a block on.

    Attributes
    ----------
    drive : NvmeDrive
        With `reserved_queue_pairs`, which a GPU gets.
    nsid : int
    first_byte : int
        A multiple of the namespace's blocks.
    """

    drive: NvmeDrive
    nsid: int
    first_byte: int
