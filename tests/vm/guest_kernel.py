"""A Debian kernel for the guest, unpacked into a cache folder, and the initial file system it boots from.

Nothing is installed: packages are downloaded with apt-get, unpacked with dpkg, and used where they lie.
"""

from __future__ import annotations

import gzip
import lzma
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: What the guest loads at the start; what these need is found in them.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "vfio_iommu_type1", "vfio-pci", "nvme")

_REGULAR, _FOLDER, _DEVICE = 0o100000, 0o040000, 0o020000


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package and a static BusyBox.

    Attributes
    ----------
    image : Path
    modules : Path
        Folder under which its modules lie.
    busybox : Path
    """

    image: Path
    modules: Path
    busybox: Path

    @property
    def version(self) -> str:
        return self.image.name.partition("-")[2]


def unpack(cache: Path, package: str = "linux-image-amd64") -> Kernel:
    """The kernel of Debian's metapackage `package`; downloaded only if `cache` has none yet."""
    done = cache / package / "unpacked"
    if not done.exists():
        folder = cache / package
        folder.mkdir(parents=True, exist_ok=True)
        wanted = (_image_package(package), "busybox-static")
        # Apt's own user cannot write everywhere; as root it need not.
        download = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *wanted]
        subprocess.run(download, cwd=folder, check=True)
        for archive in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg", "-x", archive, folder / "root"], check=True)
            archive.unlink()
        done.touch()
    root = cache / package / "root"
    (image,) = root.glob("boot/vmlinuz-*")
    modules = next(path for path in (root / "lib/modules", root / "usr/lib/modules") if path.is_dir())
    (busybox,) = (path for path in (root / "bin/busybox", root / "usr/bin/busybox") if path.exists())
    return Kernel(image, modules, busybox)


def _image_package(metapackage: str) -> str:
    """The package with the kernel itself; fetches apt's lists if there are none."""
    for attempt in range(2):
        if attempt:
            subprocess.run(["apt-get", "update", "-qq"], check=True)
        command = ["apt-cache", "depends", "--important", metapackage]
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        names = [line.split()[-1] for line in listed.stdout.splitlines() if "linux-image" in line]
        for name in names:
            if name != metapackage and not name.startswith("<"):
                return name
    raise FileNotFoundError(f"apt knows no kernel that {metapackage} depends on")


def write_initramfs(kernel: Kernel, init: Path, target: Path) -> None:
    """An archive with BusyBox, the modules in loading order, and `init` as the first process."""
    with gzip.open(target, "wb", compresslevel=1) as archive:
        for folder in ("bin", "dev", "modules", "host", "proc"):
            archive.write(_entry(folder, _FOLDER | 0o755))
        archive.write(_entry("dev/console", _DEVICE | 0o600, device=(5, 1)))
        archive.write(_entry("bin/busybox", _REGULAR | 0o755, kernel.busybox.read_bytes()))
        archive.write(_entry("init", _REGULAR | 0o755, init.read_bytes()))
        for number, (name, content) in enumerate(_with_needed(kernel.modules, MODULES)):
            archive.write(_entry(f"modules/{number:02}-{name}.ko", _REGULAR | 0o644, content))
        archive.write(_entry("TRAILER!!!", 0))


def _with_needed(folder: Path, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Modules by name, each after those it needs; what is built into the kernel has no file."""
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in folder.rglob("*.ko*")}
    loaded: set[str] = set()

    def load(name: str) -> Iterator[tuple[str, bytes]]:
        name = name.replace("-", "_")
        if name in loaded or name not in files:
            return
        loaded.add(name)
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        for needed in _needs(content):
            yield from load(needed)
        yield name, content

    for name in wanted:
        yield from load(name)


def _needs(module: bytes) -> list[str]:
    """What the `.modinfo` section says; soft dependencies are drivers that work without each other."""
    at = module.find(b"\0depends=") + len(b"\0depends=")
    listed = module[at : module.index(b"\0", at)].decode() if at > len(b"\0depends=") - 1 else ""
    return [name for name in listed.split(",") if name]


def _entry(name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """A member of a cpio archive in the `newc` format (the kernel's initramfs-buffer-format)."""
    encoded = os.fsencode(name) + b"\0"
    numbers = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % number for number in numbers) + encoded
    return _padded(header) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
