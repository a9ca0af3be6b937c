"""A PCI function in the hands of this process, by way of VFIO: its registers, and memory it may use."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bam.errors import DriveUnavailable
from bam.storage.nvme import vfio_codes as codes
from bam.storage.nvme.dma import DmaKind, DmaSpace
from bam.storage.nvme.pci import VFIO_DRIVER, PciFunction

_COMMAND_REGISTER = 4
_MEMORY_AND_BUS_MASTER = 0b110
_MAX_RANGES = 64


class VfioDevice:
    """An open PCI function.

    It is opened through iommufd where the kernel offers the device that way, else through its IOMMU group and
    a container with the type 1 IOMMU.

    Parameters
    ----------
    function : PciFunction
        Bound to vfio-pci.

    Raises
    ------
    DriveUnavailable
        Says what is in the way: the IOMMU is off, another driver has it, its group is shared, no permission,
        somebody else has it open.
    """

    def __init__(self, function: PciFunction) -> None:
        self.function = function
        check_ready(function)
        with ExitStack() as opened:
            cdev = _iommufd_device(function)
            self._device, self.space = (
                _open_by_group(function, opened) if cdev is None else _open_by_iommufd(function, cdev, opened)
            )
            opened.callback(self.space.close)
            self._bar: mmap.mmap | None = None
            self._events: list[int] = []
            self._opened = opened.pop_all()
        self.interface = "type1" if cdev is None else "iommufd"

    def map_registers(self, n_bytes: int) -> int:
        """Address of the first `n_bytes` of BAR 0, until :meth:`unmap_registers`."""
        flags, size, offset = self._region(codes.BAR0_REGION)
        if not flags & codes.REGION_MMAP or n_bytes > size:
            what = f"BAR 0 ({size} bytes) cannot be mapped for {n_bytes} bytes"
            raise DriveUnavailable(self.function.address, what, "Take fewer queue pairs")
        self.unmap_registers()
        length = -(-n_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._bar = mmap.mmap(self._device, length, offset=offset)
        return int(np.frombuffer(self._bar, np.uint8).ctypes.data)

    def unmap_registers(self) -> None:
        """Nobody may use the address any more."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def enable_bus_master(self) -> None:
        """Let it answer to memory accesses and make its own (PCI command register)."""
        _, _, offset = self._region(codes.CONFIG_REGION)
        (command,) = struct.unpack("<H", os.pread(self._device, 2, offset + _COMMAND_REGISTER))
        os.pwrite(
            self._device, struct.pack("<H", command | _MEMORY_AND_BUS_MASTER), offset + _COMMAND_REGISTER
        )

    def removal_events(self) -> list[int]:
        """Descriptors that become readable when the kernel wants the device back or it has failed.

        They belong to this object. Events that a device does not have are left out.
        """
        for interrupt in (codes.REQUEST_INTERRUPT, codes.ERROR_INTERRUPT):
            event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            try:
                fcntl.ioctl(self._device, codes.Vfio.DEVICE_SET_IRQS, codes.set_eventfd(interrupt, event))
            except OSError:
                os.close(event)
            else:
                self._events.append(event)
        return self._events

    def close(self) -> None:
        """Give it back. Calling it again does nothing."""
        self.unmap_registers()
        self._opened.close()
        while self._events:
            os.close(self._events.pop())

    def _region(self, region: int) -> tuple[int, int, int]:
        argument = codes.region_info(region)
        fcntl.ioctl(self._device, codes.Vfio.DEVICE_GET_REGION_INFO, argument)
        _, flags, _, _, size, offset = codes.REGION_INFO.unpack(argument)
        return flags, size, offset


def check_ready(function: PciFunction) -> None:
    """Raise :class:`DriveUnavailable` unless the function can be opened as far as sysfs tells."""
    if function.group is None:
        raise DriveUnavailable(
            function.address,
            "it is in no IOMMU group: the IOMMU is off",
            "Switch it on: VT-d or AMD-Vi in the firmware, and with Intel the kernel argument intel_iommu=on",
        )
    if function.driver != VFIO_DRIVER:
        what = f"it is bound to {function.driver or 'no driver'}, not to {VFIO_DRIVER}"
        raise DriveUnavailable(function.address, what, f"As root: python -m bam nvme bind {function.address}")


def _iommufd_device(function: PciFunction) -> Path | None:
    """The character device that goes with iommufd, where the kernel has it (6.6 and later)."""
    names = sorted(path.name for path in function.folder.glob("vfio-dev/vfio*"))
    device = Path("/dev/vfio/devices") / names[0] if names else None
    return device if device is not None and device.exists() and Path("/dev/iommu").exists() else None


def _open_by_iommufd(function: PciFunction, cdev: Path, opened: ExitStack) -> tuple[int, DmaSpace]:
    iommufd = _open_device(function, Path("/dev/iommu"), opened)
    device = _open_device(function, cdev, opened)
    try:
        fcntl.ioctl(device, codes.Vfio.DEVICE_BIND_IOMMUFD, codes.bind_iommufd(iommufd))
        allocated = codes.ioas_alloc()
        fcntl.ioctl(iommufd, codes.Iommufd.IOAS_ALLOC, allocated)
        ioas = codes.allocated_ioas(allocated)
        fcntl.ioctl(device, codes.Vfio.DEVICE_ATTACH_IOMMUFD_PT, codes.attach_ioas(ioas))
        ranges = (ctypes.c_uint64 * (2 * _MAX_RANGES))()
        argument = codes.ioas_iova_ranges(ioas, _MAX_RANGES, ctypes.addressof(ranges))
        fcntl.ioctl(iommufd, codes.Iommufd.IOAS_IOVA_RANGES, argument)
    except OSError as error:
        raise _refused(function, cdev, error) from error
    usable = [(ranges[2 * i], ranges[2 * i + 1]) for i in range(codes.range_count(argument))]
    return device, DmaSpace(DmaKind.IOMMUFD, iommufd, _above_zero(usable), ioas)


def _open_by_group(function: PciFunction, opened: ExitStack) -> tuple[int, DmaSpace]:
    group_path = Path("/dev/vfio") / str(function.group)
    container = _open_device(function, Path("/dev/vfio/vfio"), opened)
    group = _open_device(function, group_path, opened)
    status = codes.group_status()
    fcntl.ioctl(group, codes.Vfio.GROUP_GET_STATUS, status)
    if not codes.GROUP_STATUS.unpack(status)[1] & codes.GROUP_VIABLE:
        others = ", ".join(f"{other.address} ({other.driver})" for other in function.group_neighbours())
        what = f"its IOMMU group {function.group} is shared with {others}, which other drivers have"
        remedy = f"Bind these to {VFIO_DRIVER} too, or move the drive to a slot of its own"
        raise DriveUnavailable(function.address, what, remedy)
    try:
        fcntl.ioctl(group, codes.Vfio.GROUP_SET_CONTAINER, struct.pack("<i", container))
        fcntl.ioctl(container, codes.Vfio.SET_IOMMU, codes.TYPE1V2_IOMMU)
        # A mutable argument: with bytes the answer would be their copy and not the descriptor.
        name = bytearray(function.address.encode() + b"\0")
        device = fcntl.ioctl(group, codes.Vfio.GROUP_GET_DEVICE_FD, name)
    except OSError as error:
        raise _refused(function, group_path, error) from error
    opened.callback(os.close, device)
    return device, DmaSpace(DmaKind.VFIO_TYPE1, container, _above_zero(_type1_ranges(container)))


def _type1_ranges(container: int) -> list[tuple[int, int]]:
    info = codes.iommu_info()
    fcntl.ioctl(container, codes.Vfio.IOMMU_GET_INFO, info)
    info = codes.iommu_info(codes.needed_bytes(info))
    fcntl.ioctl(container, codes.Vfio.IOMMU_GET_INFO, info)
    # Kernels before 5.4 have no list; 32 bits below the interrupt window work with every IOMMU.
    return codes.iova_ranges(info) or [(0, 0xFEDF_FFFF)]


def _above_zero(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without the first 64 KiB: an address of zero in a command looks like one that was forgotten."""
    return [(max(first, 0x10000), last) for first, last in ranges if last > 0x10000]


def _open_device(function: PciFunction, path: Path, opened: ExitStack) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(function, path, error) from error
    opened.callback(os.close, descriptor)
    return descriptor


def _refused(function: PciFunction, path: Path, error: OSError) -> DriveUnavailable:
    remedies = {
        errno.EACCES: f"Give it to the user who runs this: chown USER {path} (as root, after every bind)",
        errno.EPERM: f"Give it to the user who runs this: chown USER {path} (as root, after every bind)",
        errno.EBUSY: "Another process has the drive open; close it there first",
        errno.ENOENT: "Load the module: modprobe vfio-pci",
        errno.ENODEV: "Load the module: modprobe vfio-pci",
        errno.ENOMEM: "Raise the limit for locked memory (ulimit -l)",
    }
    remedy = remedies.get(error.errno or 0, "See the kernel's messages (dmesg)")
    return DriveUnavailable(function.address, f"{path}: {os.strerror(error.errno or 0)}", remedy)
