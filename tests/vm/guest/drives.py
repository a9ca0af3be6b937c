"""The guest's drives by serial number, and the monitor of the machine it runs in."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.storage.nvme import DriveSettings, NvmeDrive, open_drive
from bam.storage.nvme.pci import VFIO_DRIVER, PciFunction, nvme_functions
from bam.storage.nvme.raw_namespace import RawNamespace

ByteArray = npt.NDArray[np.uint8]

_SHARE = Path("/mnt/share")
_requests = 0
_open: dict[str, NvmeDrive] = {}


@functools.cache
def addresses() -> dict[str, str]:
    """PCI address of each drive; first asked for while the kernel's driver still has them."""
    found = {}
    for function in nvme_functions():
        (serial,) = function.folder.glob("nvme/nvme*/serial")
        found[serial.read_text().strip()] = function.address
    return found


def bound(serial: str) -> PciFunction:
    """The drive, taken from the kernel."""
    function = PciFunction.at(addresses()[serial])
    function.bind(VFIO_DRIVER)
    return function


def drive(serial: str, **settings: Any) -> NvmeDrive:
    """The drive, open with these settings; stays open for others that ask for the same."""
    wanted = DriveSettings(**settings)
    found = _open.get(serial)
    if found is not None and (found.settings != wanted or found.gone is not None):
        close(serial)
        found = None
    if found is None:
        addresses()
        found = _open[serial] = open_drive(bound(serial).address, wanted)
    return found


def close(serial: str) -> None:
    """Close it if it is open."""
    found = _open.pop(serial, None)
    if found is not None:
        found.close()


def close_all() -> None:
    """So that others can open them."""
    for serial in list(_open):
        close(serial)


def fill(on: NvmeDrive, nsid: int, data: ByteArray, first_block: int = 0) -> None:
    """Write `data`, filled up to whole blocks, from `first_block` on."""
    raw = RawNamespace(on, nsid)
    block = raw.identity.block_bytes
    padded = np.zeros(-(-len(data) // block) * block, np.uint8)
    padded[: len(data)] = data
    if len(padded):
        raw.write(first_block * block, padded)


def kernel_disk(address: str) -> str:
    """Name of the kernel's block device, which appears some time after the driver."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if found := PciFunction.at(address).block_devices():
            return found[0]
        time.sleep(0.05)
    raise TimeoutError(f"no block device of {address}")


@contextmanager
def swap_space(disk: str) -> Iterator[None]:
    """The kernel swaps to the disk."""
    subprocess.run(["mkswap", f"/dev/{disk}"], check=True, capture_output=True)
    subprocess.run(["swapon", f"/dev/{disk}"], check=True)
    try:
        yield
    finally:
        subprocess.run(["swapoff", f"/dev/{disk}"], check=True)


def ask_monitor(execute: str, **arguments: Any) -> dict[str, Any]:
    """Have QEMU do something, and return what it says."""
    global _requests
    name, _requests = f"{_requests}.json", _requests + 1
    request = _SHARE / f"request-{name}"
    unfinished = _SHARE / f"unfinished-{name}"
    unfinished.write_text(json.dumps({"execute": execute, "arguments": arguments}))
    os.rename(unfinished, request)
    answer = _SHARE / f"answer-{name}"
    while not answer.exists():
        time.sleep(0.02)
    found: dict[str, Any] = json.loads(answer.read_text())
    assert "error" not in found, found
    return found
