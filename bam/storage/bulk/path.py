"""Which way bulk reads take to memory, and why not the shortest one.

A GPU's memory is reached by GPUDirect Storage (the drive writes to it, kernel module nvidia-fs), by PCI
peer-to-peer without that module (recent kernels and drivers), or through a bounce buffer in host memory.
Which one cuFile takes it does not tell; what it goes by is all in files, and read here.

Sources: the installation and configuration guides of GPUDirect Storage (cufile.json, nvidia-fs), KvikIO's
rules for its compatibility mode (WSL, /run/udev), the kernel's documentation of peer-to-peer DMA (p2pmem).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

_ROOT = Path("/")


class BulkPathKind(Enum):
    """Ways to memory."""

    #: The drive writes to the GPU's memory; nvidia-fs sees to it.
    GDS = "gds"
    #: The same by the kernel's own PCI peer-to-peer transfers.
    P2P = "p2p"
    #: Through host memory, and copied to the GPU from there.
    BOUNCE = "bounce"
    #: To host memory, by reads of the operating system.
    POSIX = "posix"


@dataclass(frozen=True)
class BulkPath:
    """Which way bytes take, and why.

    Attributes
    ----------
    kind : BulkPathKind
    reason : str
    """

    kind: BulkPathKind
    reason: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.reason}"


@dataclass(frozen=True)
class CompatMode:
    """What kvikio was told about its compatibility mode, in which it does without cuFile.

    Attributes
    ----------
    name : str
        ``ON``, ``OFF`` or ``AUTO``, as in KVIKIO_COMPAT_MODE.
    """

    name: str = "AUTO"


def path_of_cufile(
    *, compat: CompatMode, direct: bool, gpu: str, cufile_config: Path | None = None, root: Path = _ROOT
) -> BulkPath:
    """The way kvikio takes to a GPU's memory.

    Parameters
    ----------
    compat : CompatMode
    direct : bool
        Whether the files' file system takes O_DIRECT, which cuFile needs.
    gpu : str
        PCI address of the GPU, ``0000:3b:00.0``.
    cufile_config : Path, optional
        cuFile's configuration; by default where cuFile looks for it.
    root : Path
        Below which /proc, /sys, /run and /etc are; for tests.
    """
    if compat.name == "ON":
        return _bounce("compatibility mode is on (KVIKIO_COMPAT_MODE, or kvikio.defaults)")
    if compat.name == "AUTO":
        if reason := _why_kvikio_avoids_cufile(root):
            return _bounce(reason)
        if not direct:
            return _bounce("the file system does not take O_DIRECT, so cuFile cannot register the file")
    config = _cufile_config(cufile_config, root)
    if _nvidia_fs_loaded(root):
        return BulkPath(BulkPathKind.GDS, "nvidia-fs is loaded")
    missing = "nvidia-fs is not loaded (no /proc/driver/nvidia-fs, no /sys/module/nvidia_fs)"
    if not _wants_p2p(config):
        return _bounce(f"{missing}, and cufile.json does not ask for use_pci_p2pdma; cuFile copies")
    if not (root / "sys" / "bus" / "pci" / "devices" / gpu.lower() / "p2pmem").is_dir():
        return _bounce(f"{missing}, and the driver offers no peer-to-peer memory of GPU {gpu}; cuFile copies")
    return BulkPath(BulkPathKind.P2P, f"{missing}, but PCI peer-to-peer is asked for and offered")


def is_wsl(root: Path = _ROOT) -> bool:
    """Whether this is the Windows Subsystem for Linux."""
    return "microsoft" in _text(root / "proc" / "version").lower()


def _why_kvikio_avoids_cufile(root: Path) -> str:
    if is_wsl(root):
        return "this is WSL, where kvikio does not use cuFile"
    udev = root / "run" / "udev"
    if not os.access(udev, os.R_OK | os.X_OK):
        return "/run/udev cannot be read, which cuFile needs (in a container: -v /run/udev:/run/udev:ro)"
    return ""


def _nvidia_fs_loaded(root: Path) -> bool:
    return (root / "proc" / "driver" / "nvidia-fs").is_dir() or (
        root / "sys" / "module" / "nvidia_fs"
    ).is_dir()


def _wants_p2p(config: Any) -> bool:
    """Whether any key ``use_pci_p2pdma`` of the configuration, global or of a file system, is true."""
    if not isinstance(config, dict):
        return False
    return any(
        value is True if key == "use_pci_p2pdma" else _wants_p2p(value) for key, value in config.items()
    )


def _cufile_config(given: Path | None, root: Path) -> Any:
    """cuFile's configuration, JSON with `//` comments; empty where it is missing or damaged."""
    asked = os.environ.get("CUFILE_ENV_PATH_JSON")
    file = given or (Path(asked) if asked else root / "etc" / "cufile.json")
    plain = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found[1] or "", _text(file))
    try:
        return json.loads(plain)
    except ValueError:
        return {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _bounce(reason: str) -> BulkPath:
    return BulkPath(BulkPathKind.BOUNCE, reason)
