"""Memory that a drive may use. C++: dma_space.h."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int32, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from bam.errors import DriveUnavailable
from bam.native import function
from bam.storage.handle import NativeHandle


class DmaKind(Enum):
    """How mappings are made; values as in dma_space.h."""

    IDENTITY = 0
    VFIO_TYPE1 = 1
    IOMMUFD = 2


class _Range(ctypes.Structure):
    _fields_ = [("first", c_uint64), ("last", c_uint64)]


@dataclass(frozen=True)
class DmaMemory:
    """Zeroed memory: `address` for this process, `iova` for the drive. Freed with its space."""

    address: int
    iova: int
    n_bytes: int

    def view(self) -> npt.NDArray[np.uint8]:
        """Its bytes; valid until the space is closed."""
        memory = (ctypes.c_uint8 * self.n_bytes).from_address(self.address)
        return np.ctypeslib.as_array(memory)


class DmaSpace:
    """Addresses that a drive may use.

    Parameters
    ----------
    kind : DmaKind
    descriptor : int
        Container (type 1) or /dev/iommu; duplicated.
    ranges : sequence of (int, int)
        First and last address of each range that may be used, ascending.
    ioas : int
        Of iommufd.
    """

    def __init__(
        self, kind: DmaKind, descriptor: int = -1, ranges: Sequence[tuple[int, int]] = (), ioas: int = 0
    ) -> None:
        types = [c_uint32, c_int32, c_uint32, c_void_p, c_uint32]
        listed = (_Range * max(1, len(ranges)))(*(_Range(first, last) for first, last in ranges))
        address = function("bam_dma_create", c_void_p, types)(
            kind.value, descriptor, ioas, listed, len(ranges)
        )
        self._handle = NativeHandle(address, "bam_dma_destroy", "DMA space")

    @property
    def handle(self) -> int:
        """Address of the C++ object's reference."""
        with self._handle.use() as handle:
            return handle

    def allocate(self, n_bytes: int) -> DmaMemory:
        """Memory of whole pages.

        Raises
        ------
        DriveUnavailable
            The limit for locked memory, or no addresses left; says which.
        """
        iova, error = c_uint64(), c_int32()
        types = [c_void_p, c_uint64, POINTER(c_uint64), POINTER(c_int32)]
        with self._handle.use() as handle:
            call = function("bam_dma_allocate", c_void_p, types)
            address = call(handle, n_bytes, byref(iova), byref(error))
        if not address:
            raise _refused(n_bytes, error.value)
        return DmaMemory(address, iova.value, n_bytes)

    def close(self) -> None:
        """End the mappings, once everything made from the space is gone. Calling it again does nothing."""
        self._handle.close()


def _refused(n_bytes: int, code: int) -> DriveUnavailable:
    what = f"{n_bytes} bytes could not be mapped for the drive: {os.strerror(code)}"
    if code == errno.ENOMEM:
        remedy = (
            "Memory that a drive uses is locked: raise the limit (ulimit -l, or LimitMEMLOCK= of the "
            "service), or take fewer queue pairs, a smaller depth or a smaller max_transfer_bytes"
        )
    else:
        remedy = "Take fewer queue pairs, a smaller depth or a smaller max_transfer_bytes"
    return DriveUnavailable("memory", what, remedy)
