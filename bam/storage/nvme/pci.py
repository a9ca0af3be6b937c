"""PCI functions and their kernel drivers, by way of sysfs."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bam.errors import ConfigError, DriveUnavailable

#: Class code of an NVM Express I/O controller: mass storage, non-volatile memory, NVMe.
NVME_CLASS = 0x010802
VFIO_DRIVER = "vfio-pci"

SYSFS = Path("/sys")
_ADDRESS = re.compile(r"(?:([0-9a-f]{4}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII | re.IGNORECASE)
_BIND_WAIT_S = 10.0


@dataclass(frozen=True)
class PciFunction:
    """A PCI function.

    Attributes
    ----------
    address : str
        ``domain:bus:device.function``.
    sysfs : Path
        Where sysfs is mounted.
    """

    address: str
    sysfs: Path = SYSFS

    @classmethod
    def at(cls, address: str, sysfs: Path | None = None) -> PciFunction:
        """The function at `address`; the domain may be left out.

        Raises
        ------
        ConfigError
            Not a PCI address.
        DriveUnavailable
            No such function, or not an NVMe controller.
        """
        match = _ADDRESS.fullmatch(address.strip())
        if match is None:
            raise ConfigError("address", address, "a PCI address such as 0000:01:00.0")
        full = f"{match[1] or '0000'}:{match[2]}:{match[3]}.{match[4]}".lower()
        found = cls(full, SYSFS if sysfs is None else sysfs)
        if not found.folder.is_dir():
            raise DriveUnavailable(full, "there is no such PCI function", "See: python -m bam nvme list")
        if found.class_code != NVME_CLASS:
            what = f"class {found.class_code:06x} is not an NVMe controller ({NVME_CLASS:06x})"
            raise DriveUnavailable(full, what, "See: python -m bam nvme list")
        return found

    @property
    def folder(self) -> Path:
        return self.sysfs / "bus/pci/devices" / self.address

    @property
    def class_code(self) -> int:
        return int((self.folder / "class").read_text(), 16)

    @property
    def driver(self) -> str | None:
        """Name of the kernel driver it is bound to."""
        link = self.folder / "driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    @property
    def group(self) -> str | None:
        """Number of its IOMMU group; None: the IOMMU is off."""
        link = self.folder / "iommu_group"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else None

    def group_neighbours(self) -> list[PciFunction]:
        """Other functions of the group that are not bridges: they must be given up together."""
        members = sorted(os.listdir(self.folder / "iommu_group" / "devices"))
        others = [PciFunction(name, self.sysfs) for name in members if name != self.address]
        return [other for other in others if other.class_code >> 16 != 0x06]

    def block_devices(self) -> list[str]:
        """Names of the kernel's block devices on it, such as ``nvme0n1``."""
        found = {path.name for path in self.folder.glob("nvme/nvme*/nvme*n*")}
        # With native multipath the heads hang below a subsystem; `nvme0c0n1` is a path and not a device.
        for path in self.folder.glob("nvme/nvme*/subsystem*/nvme*n*"):
            found.add(path.name)
        return sorted(name for name in found if re.fullmatch(r"nvme\d+n\d+", name))

    def bind(self, driver: str) -> None:
        """Give it to a kernel driver; its present one lets go first.

        Raises
        ------
        DriveUnavailable
            The driver is not loaded, root is needed, or the driver does not take it.
        """
        if not (self.sysfs / "bus/pci/drivers" / driver).is_dir():
            raise DriveUnavailable(self.address, f"driver {driver} is not loaded", f"Run: modprobe {driver}")
        if self.driver == driver:
            return
        self._write("driver_override", driver if driver == VFIO_DRIVER else "\n")
        if self.driver is not None:
            self._write("driver/unbind", self.address)
        self._write_to(self.sysfs / "bus/pci/drivers_probe", self.address)
        deadline = time.monotonic() + _BIND_WAIT_S
        while self.driver != driver:
            if time.monotonic() > deadline:
                what = f"driver {driver} did not take it (bound to {self.driver})"
                raise DriveUnavailable(self.address, what, "See the kernel's messages (dmesg)")
            time.sleep(0.01)

    def _write(self, name: str, text: str) -> None:
        self._write_to(self.folder / name, text)

    def _write_to(self, path: Path, text: str) -> None:
        try:
            path.write_text(text)
        except OSError as error:
            root = error.errno in (errno.EACCES, errno.EPERM)
            remedy = "Binding needs root; using a bound drive does not" if root else "See dmesg"
            raise DriveUnavailable(self.address, f"{path}: {error.strerror}", remedy) from error


def nvme_functions(sysfs: Path | None = None) -> Iterator[PciFunction]:
    """All NVMe controllers of this machine."""
    root = SYSFS if sysfs is None else sysfs
    for name in sorted(os.listdir(root / "bus/pci/devices")):
        function = PciFunction(name, root)
        if function.class_code == NVME_CLASS:
            yield function


def uses_of(function: PciFunction, mounts: str, swaps: str, devices: Path = Path("/dev")) -> list[str]:
    """What the kernel uses the drive for, as text: mounts, swap, holders such as LVM or RAID, claims.

    Parameters
    ----------
    mounts, swaps : str
        Contents of /proc/mounts and /proc/swaps.
    devices : path
        Where block devices are.
    """
    found = []
    for disk in function.block_devices():
        block = function.sysfs / "block" / disk
        partitions = sorted(path.name for path in block.glob(f"{disk}p*")) if block.is_dir() else []
        for name in [disk, *partitions]:
            for line in mounts.splitlines():
                device, folder, *_ = line.split(" ")
                if device == f"/dev/{name}":
                    found.append(f"{name} is mounted at {folder}")
            if any(
                line.startswith(f"/dev/{name} ") or line.startswith(f"/dev/{name}\t")
                for line in swaps.splitlines()
            ):
                found.append(f"{name} is swap space")
            holders = (block if name == disk else block / name) / "holders"
            if holders.is_dir():
                found += [f"{name} is used by {holder}" for holder in sorted(os.listdir(holders))]
            if _is_claimed(devices / name):
                found.append(f"{name} is held by the kernel")
    return found


def _is_claimed(device: Path) -> bool:
    """Whether somebody has it for himself: also mounts elsewhere, later devices of btrfs, ZFS."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False
