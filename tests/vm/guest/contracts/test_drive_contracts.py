"""The engine's and the controller's contract against QEMU's drives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import drives
import numpy as np
import pytest
from controller_contract import BlockReader, ByteArray, ControllerContract
from engine_contract import EngineContract

from bam.storage.engine import Engine
from bam.storage.nvme import DriveFile, NvmeController, NvmeEngine
from bam.storage.striped import StripedEngine

DATA = np.random.default_rng(8).integers(0, 256, 1 << 20, dtype=np.uint8)
FIRST_BLOCK = 5


class DriveContract(EngineContract):
    """All engines of a class read one open drive."""

    serial: str
    nsid = 1
    settings: ClassVar[dict[str, Any]]

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return stored(self.serial, self.nsid, self.settings, contents)


def stored(serial: str, nsid: int, settings: dict[str, Any], contents: Sequence[ByteArray]) -> NvmeEngine:
    on = drives.drive(serial, **settings)
    block, files, first = on.namespace(nsid).block_bytes, [], FIRST_BLOCK
    for number, content in enumerate(contents):
        drives.fill(on, nsid, content, first)
        files.append(DriveFile(f"{serial} file {number}", nsid, first, len(content)))
        first += -(-len(content) // block) + 1
    return NvmeEngine(on, files)


class TestEngine512(DriveContract):
    serial = "D512"
    settings: ClassVar[dict[str, Any]] = {
        "n_queue_pairs": 2,
        "depth": 32,
        "max_transfer_bytes": 16384,
        "data_pointer": "sgl",
    }


class TestEngine4096(DriveContract):
    serial = "D4096"
    settings: ClassVar[dict[str, Any]] = {
        "n_queue_pairs": 2,
        "depth": 32,
        "max_transfer_bytes": 65536,
        "data_pointer": "prp",
    }


class TestEngineSecondNamespace(DriveContract):
    serial = "DTWO"
    nsid = 2
    settings: ClassVar[dict[str, Any]] = {
        "n_queue_pairs": 1,
        "depth": 8,
        "max_transfer_bytes": 4096,
        "data_pointer": "prp",
    }


class TestEngineStriped(EngineContract):
    n_files = 1

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        stripes = [contents[0][at : at + 4096] for at in range(0, len(contents[0]), 4096)]
        engines = []
        for number, serial in enumerate(("D512", "D4096", "DTWO", "DLAST")):
            share = np.concatenate([np.empty(0, np.uint8), *stripes[number::4]])
            settings: ClassVar[dict[str, Any]] = {"n_queue_pairs": 1, "depth": 16, "max_transfer_bytes": 8192}
            engines.append(stored(serial, 1, settings, [share]))
        striped = StripedEngine(engines, 4096)
        for engine in engines:
            engine.close()
        return striped


class DriveControllerContract(ControllerContract):
    serial: str
    pointers: str

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _filled(cls) -> Iterator[None]:
        drives.fill(drives.drive(cls.serial, n_queue_pairs=1, depth=4), cls.nsid, DATA)
        yield
        drives.close(cls.serial)

    def contents(self) -> ByteArray:
        return DATA

    @contextmanager
    def _open(self, n_queue_pairs: int, depth: int) -> Iterator[BlockReader]:
        found = drives.drive(
            self.serial,
            n_queue_pairs=n_queue_pairs,
            depth=depth,
            max_transfer_bytes=self.max_transfer_bytes,
            data_pointer=self.pointers,
            timeout_s=60,
        )
        try:
            yield NvmeController(found, self.nsid)
        finally:
            drives.close(self.serial)

    def open(self, n_queue_pairs: int, depth: int) -> AbstractContextManager[BlockReader]:
        return self._open(n_queue_pairs, depth)

    def stop(self, controller: Any) -> None:
        controller.drive.close()


class TestController512(DriveControllerContract):
    serial, pointers = "D512", "prp"


class TestController4096(DriveControllerContract):
    serial, pointers, block_bytes = "D4096", "sgl", 4096
    n_commands = 5003  # the long run is the other drive's
