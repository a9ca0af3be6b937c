"""PCI functions, bindings and what is in the way, on a copy of sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bam.errors import ConfigError, DriveUnavailable
from bam.storage.nvme import pci
from bam.storage.nvme.cli import main
from bam.storage.nvme.pci import PciFunction, nvme_functions, uses_of
from bam.storage.nvme.signatures import SIGNATURES, find_signature
from bam.storage.nvme.vfio import check_ready


class FakeSysfs:
    """A folder that looks like /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for driver in ("nvme", "vfio-pci"):
            (root / "bus/pci/drivers" / driver).mkdir(parents=True)
        (root / "bus/pci/devices").mkdir()
        (root / "bus/pci/drivers_probe").touch()

    def add(
        self,
        address: str,
        *,
        driver: str | None = "nvme",
        group: str | None = "1",
        code: int = pci.NVME_CLASS,
    ) -> PciFunction:
        folder = self.root / "bus/pci/devices" / address
        folder.mkdir()
        (folder / "class").write_text(f"{code:#08x}\n")
        (folder / "driver_override").touch()
        if driver is not None:
            (folder / "driver").symlink_to(self.root / "bus/pci/drivers" / driver)
        if group is not None:
            members = self.root / "kernel/iommu_groups" / group / "devices"
            members.mkdir(parents=True, exist_ok=True)
            (members / address).touch()
            (folder / "iommu_group").symlink_to(members.parent)
        return PciFunction(address, self.root)

    def add_disk(self, function: PciFunction, name: str, serial: str = "SERIAL0") -> Path:
        controller = function.folder / "nvme" / name[: name.index("n", 4)]
        (controller / name).mkdir(parents=True)
        (controller / "serial").write_text(f"{serial}  \n")
        block = self.root / "block" / name
        (block / f"{name}p1" / "holders").mkdir(parents=True)
        (block / "holders").mkdir()
        return block


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSysfs:
    monkeypatch.setattr(pci, "SYSFS", tmp_path)
    return FakeSysfs(tmp_path)


def test_addresses(sysfs: FakeSysfs) -> None:
    sysfs.add("0000:0a:00.0")
    assert PciFunction.at("0A:00.0").address == "0000:0a:00.0"
    for wrong in ("nvme0", "1:2.3", "0000:0a:00.9", ""):
        with pytest.raises(ConfigError, match="PCI address"):
            PciFunction.at(wrong)
    with pytest.raises(DriveUnavailable, match="no such PCI function"):
        PciFunction.at("0000:0b:00.0")
    sysfs.add("0000:0c:00.0", code=0x030000)
    with pytest.raises(DriveUnavailable, match="class 030000 is not an NVMe controller"):
        PciFunction.at("0c:00.0")


def test_only_nvme_controllers_are_listed(sysfs: FakeSysfs, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert capsys.readouterr().out == "no NVMe controllers\n"
    first = sysfs.add("0000:01:00.0")
    sysfs.add_disk(first, "nvme0n1")
    sysfs.add("0000:01:00.1", driver="vfio-pci")
    sysfs.add("0000:02:00.0", group=None, driver=None)
    sysfs.add("0000:00:1f.0", code=0x060400)
    assert [one.address for one in nvme_functions()] == ["0000:01:00.0", "0000:01:00.1", "0000:02:00.0"]
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "0000:01:00.0  nvme (nvme0n1)  IOMMU group 1, shared with 0000:01:00.1",
        "0000:01:00.1  vfio-pci  IOMMU group 1, shared with 0000:01:00.0",
        "0000:02:00.0  no driver  no IOMMU group: the IOMMU is off",
    ]


def test_what_is_in_the_way_of_opening(sysfs: FakeSysfs) -> None:
    with pytest.raises(DriveUnavailable, match="the IOMMU is off") as caught:
        check_ready(sysfs.add("0000:01:00.0", group=None))
    assert "intel_iommu=on" in caught.value.remedy
    with pytest.raises(DriveUnavailable, match="bound to nvme, not to vfio-pci") as caught:
        check_ready(sysfs.add("0000:02:00.0"))
    assert "python -m bam nvme bind 0000:02:00.0" in caught.value.remedy
    check_ready(sysfs.add("0000:03:00.0", driver="vfio-pci"))


def test_bridges_do_not_count_as_neighbours(sysfs: FakeSysfs) -> None:
    drive = sysfs.add("0000:01:00.0")
    sysfs.add("0000:00:10.0", code=0x060400)
    sysfs.add("0000:01:00.1", code=0x030000, driver=None)
    assert [one.address for one in drive.group_neighbours()] == ["0000:01:00.1"]


def test_binding_needs_the_driver(sysfs: FakeSysfs) -> None:
    drive = sysfs.add("0000:01:00.0")
    (sysfs.root / "bus/pci/drivers/vfio-pci").rmdir()
    with pytest.raises(DriveUnavailable, match="modprobe vfio-pci"):
        drive.bind("vfio-pci")
    drive.bind("nvme")  # it is already


def test_uses(sysfs: FakeSysfs) -> None:
    drive = sysfs.add("0000:01:00.0")
    block = sysfs.add_disk(drive, "nvme0n1")
    assert drive.block_devices() == ["nvme0n1"]
    assert uses_of(drive, "/dev/sda1 / ext4 rw 0 0\n", "Filename\tType\n") == []
    mounts = "/dev/nvme0n1p1 /home ext4 rw 0 0\n/dev/nvme0n10 /x ext4 rw 0 0\n"
    assert uses_of(drive, mounts, "") == ["nvme0n1p1 is mounted at /home"]
    assert uses_of(drive, "", "Filename\n/dev/nvme0n1 partition 1 0 -2\n") == ["nvme0n1 is swap space"]
    (block / "nvme0n1p1/holders/dm-0").touch()
    assert uses_of(drive, "", "") == ["nvme0n1p1 is used by dm-0"]


def test_a_drive_in_use_is_taken_only_by_its_serial_number(
    sysfs: FakeSysfs, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = sysfs.add("0000:01:00.0")
    block = sysfs.add_disk(drive, "nvme0n1", serial="S123")
    (block / "holders/md0").touch()
    for typed in ([], ["--serial", "S124"]):
        assert main(["bind", "0000:01:00.0", *typed]) == 1
        message = capsys.readouterr().err
        assert "it is in use: nvme0n1 is used by md0" in message
        assert "--serial S123" in message
    assert drive.driver == "nvme"
    assert (drive.folder / "driver_override").read_text() == ""


# ---- signatures


def disk(n_bytes: int, marks: dict[int, bytes]) -> bytearray:
    data = bytearray(n_bytes)
    for offset, magic in marks.items():
        at = offset if offset >= 0 else n_bytes + offset
        data[at : at + len(magic)] = magic
    return data


@pytest.mark.parametrize("number", range(len(SIGNATURES)))
def test_every_signature_is_found(number: int) -> None:
    signature = SIGNATURES[number]
    data = disk(2 << 20, {signature.offset: signature.magic})
    assert find_signature(lambda at, n: bytes(data[at : at + n]), len(data)) is not None


@pytest.mark.parametrize(
    ("offset", "magic", "name"),
    [
        (0x438, b"\x53\xef", "ext2, ext3 or ext4"),
        (0x10040, b"_BHRfS_M", "Btrfs"),
        (0xFF6, b"SWAPSPACE2", "swap space"),
        (0x200, b"EFI PART", "a GPT partition table"),
        (0x1FE, b"\x55\xaa", "an MBR partition table or boot sector"),
        (2 * 2**20 - 0x10000, bytes.fromhex("fc4e2ba9"), "an md RAID member"),
        (2 * 2**20 - 0x2000, bytes.fromhex("fc4e2ba9"), "an md RAID member"),
    ],
)
def test_names(offset: int, magic: bytes, name: str) -> None:
    data = disk(2 << 20, {offset: magic})
    assert find_signature(lambda at, n: bytes(data[at : at + n]), len(data)) == name


def test_an_empty_disk_carries_none() -> None:
    for n_bytes in (4096, 65536, 2 << 20):
        assert find_signature(lambda at, n: bytes(n), n_bytes) is None
