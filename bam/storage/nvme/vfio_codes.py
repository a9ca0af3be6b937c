"""ioctl numbers and argument bytes of VFIO (linux/vfio.h) and iommufd (linux/iommufd.h)."""

from __future__ import annotations

import struct
from enum import IntEnum


class Vfio(IntEnum):
    """``_IO(';', 100 + n)``."""

    GET_API_VERSION = 0x3B64
    CHECK_EXTENSION = 0x3B65
    SET_IOMMU = 0x3B66
    GROUP_GET_STATUS = 0x3B67
    GROUP_SET_CONTAINER = 0x3B68
    GROUP_GET_DEVICE_FD = 0x3B6A
    DEVICE_GET_REGION_INFO = 0x3B6C
    DEVICE_SET_IRQS = 0x3B6E
    IOMMU_GET_INFO = 0x3B70
    DEVICE_BIND_IOMMUFD = 0x3B76
    DEVICE_ATTACH_IOMMUFD_PT = 0x3B77


class Iommufd(IntEnum):
    """``_IO(';', 0x80 + n)``."""

    IOAS_ALLOC = 0x3B81
    IOAS_IOVA_RANGES = 0x3B84


API_VERSION = 0
TYPE1_IOMMU = 1
TYPE1V2_IOMMU = 3
GROUP_VIABLE = 1
BAR0_REGION, CONFIG_REGION = 0, 7
REGION_MMAP = 4
#: The device reports an error that cannot be corrected; the kernel asks for the device back.
ERROR_INTERRUPT, REQUEST_INTERRUPT = 3, 4

_IRQ_DATA_NONE, _IRQ_DATA_EVENTFD, _IRQ_ACTION_TRIGGER = 1, 4, 32
_INFO_CAPABILITIES = 2
_CAPABILITY_IOVA_RANGE = 1

GROUP_STATUS = struct.Struct("<II")
REGION_INFO = struct.Struct("<IIIIQQ")
_IOMMU_INFO = struct.Struct("<IIQI4x")
_CAPABILITY = struct.Struct("<HHI")
_BIND = struct.Struct("<IIiI")
_ATTACH = struct.Struct("<III")
_IOAS_ALLOC = struct.Struct("<III")
_IOVA_RANGES = struct.Struct("<IIIIQQ")


def group_status() -> bytearray:
    """Argument of GROUP_GET_STATUS; the kernel fills in the flags."""
    return bytearray(GROUP_STATUS.pack(GROUP_STATUS.size, 0))


def region_info(region: int) -> bytearray:
    """Argument of DEVICE_GET_REGION_INFO; the kernel fills in flags, size and offset."""
    return bytearray(REGION_INFO.pack(REGION_INFO.size, 0, region, 0, 0, 0))


def set_eventfd(interrupt: int, eventfd: int) -> bytes:
    """Argument of DEVICE_SET_IRQS: signal `eventfd` when `interrupt` occurs."""
    flags = _IRQ_DATA_EVENTFD | _IRQ_ACTION_TRIGGER
    return struct.pack("<IIIIIi", 24, flags, interrupt, 0, 1, eventfd)


def iommu_info(n_bytes: int = _IOMMU_INFO.size) -> bytearray:
    """Argument of IOMMU_GET_INFO with room for `n_bytes`, the structure itself and its capabilities."""
    return bytearray(_IOMMU_INFO.pack(n_bytes, 0, 0, 0)) + bytes(n_bytes - _IOMMU_INFO.size)


def needed_bytes(info: bytes | bytearray) -> int:
    """Room that the kernel says :func:`iommu_info` needs."""
    (wanted,) = struct.unpack_from("<I", info)
    return max(_IOMMU_INFO.size, int(wanted))


def iova_ranges(info: bytes | bytearray) -> list[tuple[int, int]]:
    """First and last address of each range in what IOMMU_GET_INFO filled in; none if it has no list."""
    _, flags, _, at = _IOMMU_INFO.unpack_from(info)
    while flags & _INFO_CAPABILITIES and at:
        identifier, _, following = _CAPABILITY.unpack_from(info, at)
        if identifier == _CAPABILITY_IOVA_RANGE:
            (count,) = struct.unpack_from("<I", info, at + _CAPABILITY.size)
            first = at + _CAPABILITY.size + 8
            return [struct.unpack_from("<QQ", info, first + 16 * i) for i in range(count)]
        at = following
    return []


def bind_iommufd(iommufd: int) -> bytearray:
    """Argument of DEVICE_BIND_IOMMUFD."""
    return bytearray(_BIND.pack(_BIND.size, 0, iommufd, 0))


def attach_ioas(ioas: int) -> bytearray:
    """Argument of DEVICE_ATTACH_IOMMUFD_PT."""
    return bytearray(_ATTACH.pack(_ATTACH.size, 0, ioas))


def ioas_alloc() -> bytearray:
    """Argument of IOAS_ALLOC; :func:`allocated_ioas` reads the answer."""
    return bytearray(_IOAS_ALLOC.pack(_IOAS_ALLOC.size, 0, 0))


def allocated_ioas(argument: bytes | bytearray) -> int:
    """The identifier that IOAS_ALLOC filled in."""
    found: int = _IOAS_ALLOC.unpack(argument)[2]
    return found


def ioas_iova_ranges(ioas: int, capacity: int, address: int) -> bytearray:
    """Argument of IOAS_IOVA_RANGES: up to `capacity` ranges of two 64-bit numbers go to `address`."""
    return bytearray(_IOVA_RANGES.pack(_IOVA_RANGES.size, ioas, capacity, 0, address, 0))


def range_count(argument: bytes | bytearray) -> int:
    """Number of ranges that IOAS_IOVA_RANGES filled in."""
    found: int = _IOVA_RANGES.unpack(argument)[2]
    return found
