"""Which way kvikio takes to a GPU is read from the system's files; here of systems that are made up."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bam.storage.bulk.path import BulkPath, BulkPathKind, CompatMode, path_of_cufile

GPU = "0000:3B:00.0"
CONFIG = """{
    // the comment of a file as NVIDIA ships it
    "logging": { "dir": "/home//user" },  // a path is no comment
    "properties": { "allow_compat_mode": true, "use_pci_p2pdma": %s },
    "fs": { "lustre": { "mount_table": {} } }
}"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine where nothing is in the way of cuFile, but without nvidia-fs."""
    (tmp_path / "proc" / "driver").mkdir(parents=True)
    (tmp_path / "proc" / "version").write_text("Linux version 6.8.0-41-generic (gcc 13) #41-Ubuntu SMP\n")
    (tmp_path / "run" / "udev").mkdir(parents=True)
    (tmp_path / "sys" / "bus" / "pci" / "devices" / GPU.lower()).mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "cufile.json").write_text(CONFIG % "false")
    return tmp_path


def path_on(root: Path, mode: str = "AUTO", direct: bool = True) -> BulkPath:
    return path_of_cufile(compat=CompatMode(mode), direct=direct, gpu=GPU, root=root)


def wsl(root: Path) -> None:
    (root / "proc" / "version").write_text("Linux version 5.15.153.1-microsoft-standard-WSL2 (gcc 11)\n")


def no_udev(root: Path) -> None:
    (root / "run" / "udev").rmdir()


def nothing(root: Path) -> None:
    """As the fixture."""


def nvidia_fs(root: Path) -> None:
    (root / "proc" / "driver" / "nvidia-fs").mkdir()


def p2p_asked_for(root: Path) -> None:
    (root / "etc" / "cufile.json").write_text(CONFIG % "true")


def damaged_config(root: Path) -> None:
    (root / "etc" / "cufile.json").write_text("{ no JSON")


def no_config(root: Path) -> None:
    (root / "etc" / "cufile.json").unlink()


@pytest.mark.parametrize(
    ("change", "mode", "direct", "reason"),
    [
        (nothing, "ON", True, "KVIKIO_COMPAT_MODE"),
        (wsl, "AUTO", True, "WSL"),
        (no_udev, "AUTO", True, "/run/udev"),
        (nothing, "AUTO", False, "O_DIRECT"),
        (nothing, "AUTO", True, "nvidia-fs is not loaded"),
        (nothing, "OFF", True, "does not ask for use_pci_p2pdma"),
        (damaged_config, "AUTO", True, "does not ask for use_pci_p2pdma"),
        (no_config, "AUTO", True, "does not ask for use_pci_p2pdma"),
        (p2p_asked_for, "AUTO", True, f"no peer-to-peer memory of GPU {GPU}"),
    ],
)
def test_why_it_is_a_bounce_buffer(
    root: Path, change: Callable[[Path], None], mode: str, direct: bool, reason: str
) -> None:
    change(root)
    found = path_on(root, mode, direct)
    assert found.kind is BulkPathKind.BOUNCE
    assert reason in found.reason
    assert str(found) == f"bounce: {found.reason}"


def test_with_nvidia_fs_it_is_gds(root: Path) -> None:
    nvidia_fs(root)
    assert path_on(root).kind is BulkPathKind.GDS
    # What keeps kvikio from cuFile goes first, unless it was told to use it anyway.
    wsl(root)
    assert path_on(root).kind is BulkPathKind.BOUNCE
    assert path_on(root, "OFF").kind is BulkPathKind.GDS


def test_a_module_without_its_folder_in_proc_counts(root: Path) -> None:
    (root / "sys" / "module" / "nvidia_fs").mkdir(parents=True)
    assert path_on(root).kind is BulkPathKind.GDS


def test_peer_to_peer_is_asked_for_and_offered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p2p_asked_for(root)
    (root / "sys" / "bus" / "pci" / "devices" / GPU.lower() / "p2pmem").mkdir()
    assert path_on(root).kind is BulkPathKind.P2P
    nvidia_fs(root)
    assert path_on(root).kind is BulkPathKind.GDS
    (root / "proc" / "driver" / "nvidia-fs").rmdir()
    monkeypatch.setenv("CUFILE_ENV_PATH_JSON", os.fspath(root / "none.json"))
    assert path_on(root).kind is BulkPathKind.BOUNCE
