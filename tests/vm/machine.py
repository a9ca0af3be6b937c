"""A virtual machine with NVMe drives behind an emulated IOMMU, in software emulation (no KVM needed)."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guest_kernel import Kernel, write_initramfs

HERE = Path(__file__).resolve().parent
QEMU = "qemu-system-x86_64"
_POLL_S = 0.02


@dataclass(frozen=True)
class Namespace:
    """A namespace and the image it keeps its blocks in.

    Attributes
    ----------
    n_bytes : int
    block_bytes : int
    read_only : bool
        The image can only be read.
    bad_sector : int or None
        Reads of this sector of 512 bytes fail (QEMU's blkdebug).
    throttled : bool
        Reads can be slowed down by the limits of the object ``throttle`` (QEMU's throttle).
    """

    n_bytes: int
    block_bytes: int = 512
    read_only: bool = False
    bad_sector: int | None = None
    throttled: bool = False


@dataclass(frozen=True)
class Drive:
    """An NVMe drive.

    Attributes
    ----------
    serial : str
        Also its QEMU device id.
    namespaces : tuple of Namespace
        Numbered from 1.
    options : str
        Further properties of QEMU's ``nvme`` device.
    beside : bool
        A function of the slot of the drive before it, so that both are in one IOMMU group.
    """

    serial: str
    namespaces: tuple[Namespace, ...]
    options: str = ""
    beside: bool = False


class Machine:
    """Boots a guest, runs one command in the host's file system (read-only), and waits for its end.

    The guest may ask for QEMU monitor commands: it writes ``request-N.json`` to the shared folder and finds
    ``answer-N.json`` there.

    Parameters
    ----------
    kernel : Kernel
    folder : Path
        For images, logs and the shared folder; the caller's.
    drives : sequence of Drive
    memory_mib : int
    """

    def __init__(self, kernel: Kernel, folder: Path, drives: Sequence[Drive], memory_mib: int = 768) -> None:
        self._kernel, self._folder, self._drives = kernel, folder, drives
        self._memory_mib = memory_mib
        self.share = folder / "share"
        self.share.mkdir(parents=True)
        self.console = folder / "console.log"

    def run(self, command: str, timeout_s: float) -> int:
        """Exit status of the shell `command`; it may use ``/mnt/share`` and ``/mnt/tmp``.

        Raises
        ------
        TimeoutError
            The guest did not end in time, or ended without a word; the console's log says more.
        """
        initramfs = self._folder / "initramfs.gz"
        write_initramfs(self._kernel, HERE / "guest_init.sh", initramfs)
        (self.share / "command").write_text(command)
        monitor = self._folder / "monitor.sock"
        with self.console.open("wb") as log:
            arguments = self._arguments(initramfs, monitor)
            (self._folder / "command-line").write_text(shlex.join(arguments))
            guest = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            server = threading.Thread(target=self._serve, args=(monitor, guest), daemon=True)
            server.start()
            try:
                guest.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"the guest did not end in {timeout_s:g} s; see {self.console}") from None
            finally:
                guest.kill()
                guest.wait()
                server.join()
        status = self.share / "exit_status"
        if not status.exists():
            raise TimeoutError(f"the guest ended without a word; see {self.console}")
        return int(status.read_text())

    def _arguments(self, initramfs: Path, monitor: Path) -> list[str]:
        shared = f"local,id=share,path={self.share},security_model=none"
        root = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"
        return [
            *(QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi", "-cpu", "Nehalem"),
            *("-smp", "2", "-m", f"{self._memory_mib}M", "-device", "intel-iommu,intremap=on"),
            *("-kernel", str(self._kernel.image), "-initrd", str(initramfs)),
            # Without the clock check the guest does not wait for timers that emulation makes late.
            *("-append", "console=ttyS0 quiet panic=-1 intel_iommu=on mitigations=off no_timer_check"),
            *("-serial", "stdio", "-qmp", f"unix:{monitor},server=on,wait=off"),
            *("-object", "throttle-group,id=throttle"),
            *("-fsdev", root, "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
            *("-fsdev", shared, "-device", "virtio-9p-pci,fsdev=share,mount_tag=share"),
            *[argument for number in range(len(self._drives)) for argument in self._drive(number)],
        ]

    def _drive(self, number: int) -> list[str]:
        drive = self._drives[number]
        port = number - sum(other.beside for other in self._drives[: number + 1])
        arguments: list[str] = []
        if not drive.beside:
            arguments += ["-device", f"pcie-root-port,id=port{port},chassis={port + 1},addr={port + 0x10:#x}"]
        options = f",{drive.options}" if drive.options else ""
        place = f"bus=port{port},addr=0.{int(drive.beside)},multifunction=on"
        arguments += ["-device", f"nvme,id={drive.serial},serial={drive.serial},{place}{options}"]
        for nsid, namespace in enumerate(drive.namespaces, 1):
            name = f"{drive.serial}-{nsid}"
            arguments += ["-blockdev", self._image(name, namespace)]
            sizes = f"logical_block_size={namespace.block_bytes},physical_block_size={namespace.block_bytes}"
            arguments += [
                "-device",
                f"nvme-ns,id=ns-{name},drive={name},bus={drive.serial},nsid={nsid},{sizes}",
            ]
        return arguments

    def _image(self, name: str, namespace: Namespace) -> str:
        path = self._folder / f"{name}.img"
        with path.open("wb") as image:
            image.truncate(namespace.n_bytes)
        file: dict[str, Any] = {"driver": "file", "filename": str(path), "read-only": namespace.read_only}
        if namespace.bad_sector is not None:
            rule = {"event": "none", "iotype": "read", "errno": 5, "sector": namespace.bad_sector}
            file = {"driver": "blkdebug", "image": file, "inject-error": [rule]}
        if namespace.throttled:
            file = {"driver": "throttle", "throttle-group": "throttle", "file": file}
        return json.dumps(
            {"driver": "raw", "node-name": name, "file": file, "read-only": namespace.read_only}
        )

    def _serve(self, monitor: Path, guest: subprocess.Popen[bytes]) -> None:
        """Passes the guest's requests to QEMU's monitor."""
        number = 0
        connection: socket.socket | None = None
        while guest.poll() is None:
            request = self.share / f"request-{number}.json"
            if not request.exists():
                time.sleep(_POLL_S)
                continue
            if connection is None:
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(str(monitor))
                lines = connection.makefile()
                lines.readline()  # the greeting
                _ask(connection, lines, {"execute": "qmp_capabilities"})
            answer = _ask(connection, lines, json.loads(request.read_text()))
            ready = self.share / f"answer-{number}.tmp"
            ready.write_text(json.dumps(answer))
            os.rename(ready, self.share / f"answer-{number}.json")
            number += 1
        if connection is not None:
            connection.close()


def _ask(connection: socket.socket, lines: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The monitor's answer to `request`; events that come before it are passed over."""
    connection.sendall(json.dumps(request).encode() + b"\n")
    while True:
        found: dict[str, Any] = json.loads(lines.readline())
        if "event" not in found:
            return found
