"""Bytes of a namespace, read and written in any whole number of blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError, SourceError
from bam.storage.buffers import aligned_buffer
from bam.storage.nvme.data_path import Opcode
from bam.storage.nvme.drive import NvmeDrive


class RawNamespace:
    """A namespace as bytes; offsets and lengths are multiples of its blocks.

    Parameters
    ----------
    drive : NvmeDrive
        The caller's.
    nsid : int
    """

    def __init__(self, drive: NvmeDrive, nsid: int = 1) -> None:
        self.drive, self.identity = drive, drive.namespace(nsid)
        self.name = f"{drive.name} namespace {nsid}"

    @property
    def n_bytes(self) -> int:
        return self.identity.n_bytes

    def read(self, offset: int, n_bytes: int) -> bytes:
        """`n_bytes` from `offset` on."""
        buffer = aligned_buffer(n_bytes)
        self._move(Opcode.READ, offset, buffer)
        return buffer.tobytes()

    def write(self, offset: int, data: bytes | npt.NDArray[np.uint8]) -> None:
        """Write `data` at `offset`."""
        content = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data)
        self._move(Opcode.WRITE, offset, content)

    def flush(self) -> None:
        """What was written before survives a loss of power when this returns."""
        self.drive.flush(self.identity.nsid)

    def _move(self, opcode: Opcode, offset: int, memory: npt.NDArray[np.uint8]) -> None:
        block = self.identity.block_bytes
        if offset % block or memory.nbytes % block:
            raise ConfigError("offset", (offset, memory.nbytes), f"multiples of {block} bytes")
        if offset + memory.nbytes > self.n_bytes:
            found = f"{self.n_bytes} bytes"
            raise SourceError(self.name, f"at least {offset + memory.nbytes} bytes", found)
        each = self.drive.max_transfer_bytes // block * block
        whole = memory.nbytes // each
        if whole:
            lbas = (offset + np.arange(whole, dtype=np.int64) * each) // block
            self.drive.transfer(
                self.identity.nsid, opcode, lbas, each // block, memory[: whole * each].reshape(whole, each)
            )
        if rest := memory.nbytes - whole * each:
            lba = np.array([(offset + whole * each) // block], np.int64)
            self.drive.transfer(self.identity.nsid, opcode, lba, rest // block, memory[whole * each :][None])
