"""Faults from outside: named errors, no hang, and the next read works."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from typing import Any

import drives
import numpy as np
import pytest

import bam
from bam.errors import ConfigError, DriveUnavailable, NvmeStatusError, StorageError
from bam.layout import Layout
from bam.storage.engine import ReadSpan
from bam.storage.nvme import DriveFile, NvmeController, NvmeDrive, NvmeEngine, open_drive
from bam.storage.nvme.pci import PciFunction
from bam.storage.nvme.raw_namespace import RawNamespace

SETTINGS: dict[str, Any] = {"n_queue_pairs": 2, "depth": 16, "max_transfer_bytes": 4096}
BAD_BLOCK = 100


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    drives.addresses()
    yield
    drives.close_all()


def read(on: NvmeDrive, lbas: list[int]) -> np.ndarray:
    out = np.full((len(lbas), 512), 0xEE, np.uint8)
    NvmeController(on).read_blocks(np.array(lbas, np.int64), 1, out)
    return out


def test_a_block_that_cannot_be_read() -> None:
    on = drives.drive("BADBLOCK", **SETTINGS)
    for _ in range(2):
        with pytest.raises(NvmeStatusError, match="Unrecovered Read Error") as caught:
            read(on, [3, BAD_BLOCK, 5])
        assert (caught.value.status, caught.value.errno) == (0x281, errno.EIO)
        assert caught.value.offset == BAD_BLOCK * 512
        assert not read(on, [BAD_BLOCK - 1, BAD_BLOCK + 1]).any()
        on.reset()
    with NvmeEngine(on, [DriveFile("rows", 1, 0, 1 << 20)]) as engine:
        buffers = [np.zeros(512, np.uint8) for _ in range(3)]
        spans = [ReadSpan(0, block * 512, 512) for block in (99, BAD_BLOCK, 101)]
        assert engine.read(spans, buffers) == [512, -errno.EIO, 512]
        assert engine.explain(0, BAD_BLOCK * 512) == "Unrecovered Read Error"


def test_an_array_over_a_bad_block_serves_all_other_rows() -> None:
    on = drives.drive("BADBLOCK", **SETTINGS)
    file = DriveFile("rows", 1, 0, 1 << 20)
    layout = Layout.single("rows", 0, 1 << 20)
    source = bam.EngineSource(lambda: NvmeEngine(on, [file]), layout, np.uint8, (2048, 512))
    with bam.open_array(source, cache="64 lines") as array:
        with pytest.raises(StorageError, match="Unrecovered Read Error"):
            array[np.array([1, BAD_BLOCK])]
        good = np.array([BAD_BLOCK - 1, BAD_BLOCK + 1, 2047, 0])
        np.testing.assert_array_equal(array[good], np.zeros((4, 512), np.uint8))


def test_writing_to_a_drive_that_can_only_be_read() -> None:
    on = drives.drive("READONLY", **SETTINGS)
    for _ in range(2):
        with pytest.raises(NvmeStatusError) as caught:
            RawNamespace(on).write(0, bytes(4096))
        assert caught.value.status_name in ("Write Fault", "Namespace is Write Protected", "Access Denied")
        assert not read(on, [0, 1]).any()
        on.reset()


def test_commands_that_take_too_long() -> None:
    """QEMU cannot abort, so the controller is reset; then all is well again."""
    on = drives.drive("SLOW", timeout_s=0.5, **SETTINGS)
    assert not read(on, [1, 2]).any()
    drives.ask_monitor("qom-set", path="/objects/throttle", property="limits", value={"iops-read": 1})
    started = time.monotonic()
    with pytest.raises(NvmeStatusError, match="controller was reset") as caught:
        read(on, list(range(40)))
    assert caught.value.errno == errno.ETIMEDOUT
    assert time.monotonic() - started < 60
    drives.ask_monitor("qom-set", path="/objects/throttle", property="limits", value={"iops-read": 0})
    assert not read(on, list(range(20))).any()


def test_a_drive_removed_by_the_monitor() -> None:
    on = drives.drive("REMOVED", **SETTINGS)
    function = PciFunction.at(drives.addresses()["REMOVED"])
    endings: list[int] = []

    def work() -> None:
        try:
            while True:
                read(on, list(range(40)))
        except StorageError as error:
            endings.append(error.errno)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    drives.ask_monitor("device_del", id="REMOVED")
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert endings == [errno.ENODEV] * 2
    assert on.gone is not None
    with pytest.raises(StorageError, match="removed"):
        read(on, [0])
    deadline = time.monotonic() + 30
    while function.folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not function.folder.exists()  # the kernel was not kept waiting
    with pytest.raises(DriveUnavailable, match="no such PCI function"):
        open_drive(function.address)


def test_a_drive_whose_driver_is_unbound_while_it_is_open() -> None:
    on = drives.drive("SLOW", timeout_s=5, **SETTINGS)
    function = PciFunction.at(drives.addresses()["SLOW"])
    (function.folder / "driver/unbind").write_text(function.address)
    deadline = time.monotonic() + 30
    while on.gone is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(StorageError) as caught:
        read(on, [0])
    assert caught.value.errno == errno.ENODEV
    assert not read(drives.drive("SLOW", timeout_s=5, **SETTINGS), [0]).any()


def test_a_group_that_is_shared() -> None:
    with pytest.raises(DriveUnavailable, match="is shared with") as caught:
        open_drive(drives.bound("SHARED0").address)
    assert drives.addresses()["SHARED1"] in caught.value.reason
    drives.bound("SHARED1")
    assert not read(drives.drive("SHARED0", **SETTINGS), [0]).any()


def test_a_drive_that_somebody_else_has_open() -> None:
    drives.drive("BADBLOCK", **SETTINGS)
    with pytest.raises(DriveUnavailable, match="Another process has the drive open"):
        open_drive(drives.addresses()["BADBLOCK"])


def test_an_ordinary_user_with_the_group_and_with_little_memory_to_lock() -> None:
    """No root is needed; the limit for locked memory holds, and the message says what to do."""
    function = drives.bound("BADBLOCK")
    os.chown(f"/dev/vfio/{function.group}", 1000, 1000)
    os.chmod("/dev/vfio/vfio", 0o666)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (2 << 20, 2 << 20))
            os.setgid(1000)
            os.setuid(1000)
            with open_drive(function.address, drives.DriveSettings(**SETTINGS)) as on:
                assert not read(on, [1]).any()
            try:
                open_drive(function.address, drives.DriveSettings(n_queue_pairs=2, depth=256))
            except DriveUnavailable as error:
                status = 0 if "ulimit -l" in error.remedy else 2
        finally:
            os._exit(status)
    os_status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.chown(f"/dev/vfio/{function.group}", 0, 0)
    assert os_status == 0


def test_without_the_group_an_ordinary_user_is_told_what_to_do() -> None:
    function = drives.bound("READONLY")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setuid(1000)
            open_drive(function.address)
        except DriveUnavailable as error:
            status = 0 if "chown USER" in error.remedy else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_settings_the_drive_does_not_take() -> None:
    with pytest.raises(ConfigError, match="nsid"):
        NvmeController(drives.drive("BADBLOCK", **SETTINGS), 9)
