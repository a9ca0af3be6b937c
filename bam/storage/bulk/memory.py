"""Memory that bulk reads go to: the host's here; a GPU's in bam.cache.device.bulk_memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.errors import ConfigError
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import ByteArray


class BulkMemory(ABC):
    """The destination of a bulk read; used by several threads at a time, each for another part.

    Attributes
    ----------
    n_bytes : int
    gpu : str
        PCI address of the GPU whose memory it is; empty: the host's.
    """

    n_bytes: int
    gpu: str = ""

    def enter_thread(self) -> None:  # noqa: B027 - the host's memory needs nothing
        """Called in each thread that reads to it, before its first read."""

    @property
    @abstractmethod
    def host(self) -> ByteArray | None:
        """All of it, where the host can write to it; else None, and :meth:`put` is the way."""

    @abstractmethod
    def part(self, begin: int, length: int) -> Any:
        """Some of it as an array that kvikio takes; no copy."""

    @abstractmethod
    def staging(self, n_bytes: int) -> ByteArray:
        """New host memory, aligned to a page, from which :meth:`put` is fast; the caller's."""

    @abstractmethod
    def put(self, begin: int, data: ByteArray) -> None:
        """Copy host memory to it; returns when that is done, so `data` may change."""


class HostMemory(BulkMemory):
    """Memory of the host, pinned or not.

    Parameters
    ----------
    array : numpy array
        C-contiguous and writable, of any dtype; the caller's. Aligned as the file is, it is read into without
        a copy; :func:`in_step` makes such memory.

    Raises
    ------
    ConfigError
    """

    def __init__(self, array: npt.NDArray[Any]) -> None:
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ConfigError("out", f"strides {array.strides}", "a C-contiguous array that can be written")
        self._bytes: ByteArray = array.reshape(-1).view(np.uint8)
        self.n_bytes = array.nbytes

    @property
    def host(self) -> ByteArray | None:
        return self._bytes

    def part(self, begin: int, length: int) -> ByteArray:
        return self._bytes[begin : begin + length]

    def staging(self, n_bytes: int) -> ByteArray:
        return aligned_buffer(n_bytes)

    def put(self, begin: int, data: ByteArray) -> None:
        self._bytes[begin : begin + len(data)] = data


def skipped_bytes(file_offset: int, unit: int = 4096) -> int:
    """How far behind a multiple of `unit` memory must begin for direct reads to go straight to it.

    0 where the items of an array would then not be aligned, and bytes are copied instead.
    """
    skipped = file_offset % unit
    return skipped if skipped % 64 == 0 else 0


def in_step(n_bytes: int, file_offset: int) -> ByteArray:
    """New memory at an address that is in step with its bytes' place in a file: no copy is needed.

    Of numpy, which asks for huge pages, so that rows are found faster in it afterwards.
    """
    whole = np.empty(n_bytes + 2 * 4096, np.uint8)
    first = -whole.ctypes.data % 4096 + skipped_bytes(file_offset)
    return whole[first : first + n_bytes]
