"""The engine that reads an NVMe drive without the kernel. C++: nvme_engine.cc."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bam.errors import ConfigError
from bam.storage.native import NativeEngine, create

if TYPE_CHECKING:
    from bam.storage.nvme.drive import NvmeDrive


class _File(ctypes.Structure):
    _fields_ = [
        ("path", c_char_p),
        ("first_block", c_uint64),
        ("bytes", c_uint64),
        ("nsid", c_uint32),
        ("block_bytes", c_uint32),
    ]


@dataclass(frozen=True)
class DriveFile:
    """A run of logical blocks that an engine shows as a file.

    Attributes
    ----------
    name : str
        In errors.
    nsid : int
    first_block : int
    n_bytes : int
        The last block may be used in part.
    """

    name: str
    nsid: int
    first_block: int
    n_bytes: int


class NvmeEngine(NativeEngine):
    """Reads runs of blocks of an NVMe drive.

    Parameters
    ----------
    drive : NvmeDrive
        Stays open when the engine closes. Once it is closed or gone, reads end with ENODEV.
    files : sequence of DriveFile
        None: each namespace without metadata, whole.

    Raises
    ------
    ConfigError
        A file that is not inside its namespace.
    """

    def __init__(self, drive: NvmeDrive, files: Sequence[DriveFile] | None = None) -> None:
        drive.check_usable()
        if files is None:
            files = [
                DriveFile(f"{drive.name} namespace {one.nsid}", one.nsid, 0, one.n_bytes)
                for one in drive.namespaces
                if one.is_usable
            ]
        listed = (_File * max(1, len(files)))()
        for entry, file in zip(listed, files, strict=False):
            namespace = drive.namespace(file.nsid)
            n_blocks = -(-file.n_bytes // namespace.block_bytes)
            if file.first_block < 0 or file.n_bytes < 0 or file.first_block + n_blocks > namespace.n_blocks:
                raise ConfigError("files", file, f"blocks from 0 to {namespace.n_blocks - 1}")
            entry.path = os.fsencode(file.name)
            entry.first_block, entry.bytes = file.first_block, file.n_bytes
            entry.nsid, entry.block_bytes = file.nsid, namespace.block_bytes
        with drive.path.owner.use() as handle:
            engine = create(
                "bam_drive_engine_create", [c_void_p, c_void_p, c_uint32], handle, listed, len(files)
            )
        super().__init__(engine)
