"""Which device holds a file: what a measurement of it is valid for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DeviceIdentity:
    """Attributes that change when the data moves to another device.

    Attributes
    ----------
    number : str
        ``major:minor``.
    model, serial : str
        As the device says; empty where it does not.
    bytes : int
        Its size; 0 where it is no block device.
    mount : str
        Mount point of the file system.
    file_system : str
    """

    number: str
    model: str
    serial: str
    bytes: int
    mount: str
    file_system: str

    @classmethod
    def of_path(cls, path: str | os.PathLike[str], sys: Path = Path("/sys")) -> DeviceIdentity:
        """Of the device under a file or folder."""
        device = os.stat(path).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        block = (sys / "dev" / "block" / number).resolve()
        folders = (block / "device", block.parent / "device", block, block.parent)
        mount, file_system = _mount(number)
        return cls(
            number,
            next(filter(None, (_text(folder / "model") for folder in folders)), ""),
            next(filter(None, (_text(folder / "serial") for folder in folders)), ""),
            int(_text(block / "size") or 0) * 512,
            mount,
            file_system,
        )


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _mount(number: str) -> tuple[str, str]:
    """Mount point and type of a file system, by its device number (proc(5), mountinfo)."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted, _, described = line.partition(" - ")
        fields = mounted.split()
        if fields[2] == number:
            return fields[4], described.split()[0]
    return "", ""
