"""The driver against a drive in plain Python: the engine's and the controller's contract, and every fault."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from controller_contract import BlockReader, ByteArray, ControllerContract
from engine_contract import EngineContract
from model_drive import Behaviour, Command, ModelDrive, Namespace

from bam.errors import ConfigError, DriveUnavailable, NvmeStatusError, StorageError
from bam.native import available
from bam.storage.engine import Engine, ReadSpan
from bam.storage.nvme import DataPointerKind, DriveFile, DriveSettings, NvmeController, NvmeDrive, NvmeEngine
from bam.storage.nvme.commands import create_completion_queue
from bam.storage.striped import StripedEngine

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

DATA = np.random.default_rng(8).integers(0, 256, 1 << 20, dtype=np.uint8)


def is_io(command: Command) -> bool:
    return command.queue != 0


@contextmanager
def a_drive(
    behaviour: Behaviour | None = None, *, block_bytes: int = 512, data: ByteArray = DATA, **settings: Any
) -> Iterator[tuple[NvmeDrive, ModelDrive]]:
    """A drive whose namespace 1 holds `data`; ends with a check that no rule was broken."""
    model = ModelDrive({1: Namespace(data.copy(), block_bytes)}, behaviour)
    with NvmeDrive("model", model, DriveSettings(**{"n_queue_pairs": 1, "depth": 8, **settings})) as drive:
        yield drive, model
    assert model.errors == []
    assert not model.mapped


class ModelEngineContract(EngineContract):
    """Files that begin at different blocks of one namespace."""

    block_bytes = 512
    behaviour = Behaviour()
    settings = DriveSettings(n_queue_pairs=2, depth=16, max_transfer_bytes=8192)

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return NvmeEngine(*self.stored(stack, contents))

    def stored(self, stack: ExitStack, contents: Sequence[ByteArray]) -> tuple[NvmeDrive, list[DriveFile]]:
        data = np.full(256 << 10, 0xEE, np.uint8)
        files, at = [], 3 * self.block_bytes
        for number, content in enumerate(contents):
            data[at : at + len(content)] = content
            files.append(DriveFile(f"file {number}", 5, at // self.block_bytes, len(content)))
            at += -(-len(content) // 4096) * 4096 + self.block_bytes
        model = ModelDrive({5: Namespace(data, self.block_bytes)}, self.behaviour)
        drive = stack.enter_context(NvmeDrive("model", model, self.settings))
        stack.callback(lambda: self.check(model))
        return drive, files

    def check(self, model: ModelDrive) -> None:
        assert model.errors == []


class TestEngine512(ModelEngineContract):
    pass


class TestEngine4096(ModelEngineContract):
    block_bytes = 4096


class TestEngineSgl(ModelEngineContract):
    behaviour = Behaviour(sgl=True, doorbell_stride=3)


class TestEngineStriped(ModelEngineContract):
    n_files = 1
    n_drives = 4

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        stripes = [contents[0][at : at + 4096] for at in range(0, len(contents[0]), 4096)]
        engines = []
        for number in range(self.n_drives):
            share = np.concatenate([np.empty(0, np.uint8), *stripes[number :: self.n_drives]])
            engines.append(NvmeEngine(*self.stored(stack, [share])))
        striped = StripedEngine(engines, 4096)
        for engine in engines:
            engine.close()
        return striped


class TestController(ControllerContract):
    n_commands = 2003  # in Python each takes longer than the drive would

    def contents(self) -> ByteArray:
        return DATA

    @contextmanager
    def _open(self, n_queue_pairs: int, depth: int) -> Iterator[BlockReader]:
        settings: dict[str, Any] = {"n_queue_pairs": n_queue_pairs, "depth": depth}
        with a_drive(max_transfer_bytes=self.max_transfer_bytes, **settings) as (drive, _):
            yield NvmeController(drive)

    def open(self, n_queue_pairs: int, depth: int) -> AbstractContextManager[BlockReader]:
        return self._open(n_queue_pairs, depth)

    def stop(self, controller: Any) -> None:
        controller.drive.close()


# ---- bringing up


def test_what_the_drive_says_is_what_it_is() -> None:
    with a_drive(Behaviour(mdts=3), block_bytes=4096) as (drive, model):
        assert (drive.identity.serial, drive.identity.abort_limit) == ("MODEL0001", 4)
        assert drive.max_transfer_bytes == 8 * 4096
        assert [(one.nsid, one.n_blocks, one.block_bytes) for one in drive.namespaces] == [(1, 256, 4096)]
    assert [command.opcode for command in model.commands if command.queue == 0] == [
        *(0x06, 0x06, 0x06),  # controller, active namespaces, namespace
        *(0x09, 0x05, 0x01),  # number of queues, completion queue, submission queue
        *(0x00, 0x04),  # both deleted
    ]
    assert model.resets == 1


@pytest.mark.parametrize(
    ("behaviour", "settings", "setting"),
    [
        (Behaviour(max_queue_entries=64), {"depth": 128}, "depth"),
        (Behaviour(queue_pairs=2), {"n_queue_pairs": 3}, "n_queue_pairs"),
        (Behaviour(), {"data_pointer": DataPointerKind.SGL}, "data_pointer"),
    ],
)
def test_more_than_the_drive_allows(behaviour: Behaviour, settings: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError, match=setting), a_drive(behaviour, **settings):
        pass


def test_a_queue_deeper_than_allowed_is_named_when_the_drive_is_asked() -> None:
    with a_drive(Behaviour(max_queue_entries=64)) as (drive, model):
        with pytest.raises(NvmeStatusError, match="Invalid Queue Size") as caught:
            drive.admin(create_completion_queue(9, 128, model.space.allocate(4096).iova))
        assert caught.value.status == 0x102


@pytest.mark.parametrize(
    ("behaviour", "kind", "message"),
    [
        (Behaviour(command_sets=0), DriveUnavailable, "NVM command set"),
        (Behaviour(vanished=True), DriveUnavailable, "all ones"),
        (Behaviour(never_ready=True, ready_timeout=1), StorageError, "CSTS.RDY did not become 1 in 0.5 s"),
        (
            Behaviour(refuse=lambda command: 0x106 if command.opcode == 6 else None),
            NvmeStatusError,
            "Firmware Slot",
        ),
    ],
)
def test_a_drive_that_does_not_come_up_is_given_back(
    behaviour: Behaviour, kind: type[Exception], message: str
) -> None:
    model = ModelDrive({1: Namespace(DATA)}, behaviour)
    with pytest.raises(kind, match=message):
        NvmeDrive("model", model)
    assert model._stopping.is_set()


def test_namespaces_with_metadata_are_refused() -> None:
    model = ModelDrive({1: Namespace(DATA), 2: Namespace(DATA, metadata_bytes=8)})
    with NvmeDrive("model", model, DriveSettings(n_queue_pairs=1, depth=4)) as drive:
        with pytest.raises(ConfigError, match="no metadata"):
            NvmeController(drive, 2)
        assert len(NvmeEngine(drive).files) == 1


# ---- data pointers


@pytest.mark.parametrize("sgl", [False, True])
@pytest.mark.parametrize("offset", [0, 4, 508, 4092])
def test_memory_of_the_drive_is_read_into_directly(sgl: bool, offset: int) -> None:
    """Every number of pages up to a list that goes on in a second page."""
    data = np.tile(DATA, 4)
    with a_drive(Behaviour(mdts=0, sgl=sgl), data=data, max_transfer_bytes=3 << 20, depth=2) as (
        drive,
        model,
    ):
        memory = model.space.allocate(4 << 20).view()
        for n_bytes in (512, 4096, 4608, 8192, 8704, 12288, 2 << 20, (2 << 20) + 512, 3 << 20):
            out = memory[offset : offset + n_bytes].reshape(1, -1)
            NvmeController(drive).read_blocks(np.array([7]), n_bytes // 512, out)
            assert out[0].tobytes() == data[7 * 512 :][:n_bytes].tobytes()
            assert not memory[:offset].any()
            assert not memory[offset + n_bytes :].any()
            memory[:] = 0


def test_what_is_written_is_read() -> None:
    with a_drive(block_bytes=4096) as (drive, model):
        data = np.random.default_rng(0).integers(0, 256, (9, 8192), dtype=np.uint8)
        data.flags.writeable = False
        NvmeController(drive).write_blocks(np.arange(9) * 2, 2, data)
        drive.flush(1)
        out = np.zeros_like(data)
        NvmeController(drive).read_blocks(np.arange(9) * 2, 2, out)
        np.testing.assert_array_equal(out, data)
        assert (model.namespaces[1].data[: data.nbytes] == data.ravel()).all()


# ---- faults


def read(drive: NvmeDrive, lbas: Sequence[int] = (3,)) -> ByteArray:
    out = np.zeros((len(lbas), 512), np.uint8)
    NvmeController(drive).read_blocks(np.array(lbas, np.int64), 1, out)
    return out


def expect_reads_work(drive: NvmeDrive) -> None:
    np.testing.assert_array_equal(read(drive, range(40)), DATA.reshape(-1, 512)[:40])


@pytest.mark.parametrize(
    ("status", "name", "code"),
    [
        (0x281, "Unrecovered Read Error", errno.EIO),
        (0x286, "Access Denied", errno.EACCES),
        (0x282, "End-to-end Guard Check Error", errno.EILSEQ),
        (0x002, "Invalid Field in Command", errno.EINVAL),
        (0x082, "Namespace Not Ready", errno.EAGAIN),
        (0x7C3, "Vendor Specific Status", errno.EIO),
    ],
)
def test_a_status_is_an_error_for_its_read_alone(status: int, name: str, code: int) -> None:
    behaviour = Behaviour(refuse=lambda command: status if is_io(command) and command.touches(5) else None)
    with a_drive(behaviour) as (drive, _):
        with pytest.raises(NvmeStatusError, match=name) as caught:
            read(drive, range(20))
        assert (caught.value.status, caught.value.errno) == (status, code)
        assert (caught.value.offset, caught.value.length) == (5 * 512, 512)
        np.testing.assert_array_equal(read(drive, [4, 6]), DATA.reshape(-1, 512)[[4, 6]])
        with NvmeEngine(drive, [DriveFile("file", 1, 1, 8192)]) as engine:
            spans = [ReadSpan(0, 0, 512), ReadSpan(0, 2048, 512), ReadSpan(0, 1024, 4096)]
            buffers = [np.zeros(span.length, np.uint8) for span in spans]
            found = engine.read(spans, buffers)
            assert found[:2] == [512, -code]
            assert found[2] == -code  # one command: nothing of it is known to have arrived
            assert name in engine.explain(0, 2048)
            assert engine.explain(0, 0) == ""


def test_a_long_read_keeps_what_came_before_the_error() -> None:
    behaviour = Behaviour(refuse=lambda command: 0x281 if is_io(command) and command.touches(16) else None)
    with a_drive(behaviour, max_transfer_bytes=4096) as (drive, _), NvmeEngine(drive) as engine:
        buffer = np.zeros(32768, np.uint8)
        assert engine.read([ReadSpan(0, 0, 32768)], [buffer]) == [8192]
        np.testing.assert_array_equal(buffer[:8192], DATA[:8192])


@pytest.mark.parametrize("can_abort", [True, False])
def test_a_command_that_is_never_answered(can_abort: bool) -> None:
    """Aborted where the drive can; else the controller is reset. Then reads work again."""
    behaviour = Behaviour(can_abort=can_abort, ignore=lambda command: is_io(command) and command.slba == 5)
    with a_drive(behaviour, timeout_s=0.2) as (drive, model):
        started = time.monotonic()
        with pytest.raises(NvmeStatusError, match="Command Abort Requested") as caught:
            read(drive, range(20))
        assert time.monotonic() - started < 20
        assert caught.value.errno == (errno.ECANCELED if can_abort else errno.ETIMEDOUT)
        assert any(command.opcode == 0x08 for command in model.commands if command.queue == 0)
        assert model.resets == (0 if can_abort else 1)
        behaviour.ignore = lambda command: False
        expect_reads_work(drive)


@pytest.mark.parametrize("can_abort", [True, False])
def test_an_engine_recovers_for_all_its_readers(can_abort: bool) -> None:
    behaviour = Behaviour(can_abort=can_abort, ignore=lambda command: is_io(command) and command.slba == 5)
    with a_drive(behaviour, timeout_s=0.2, n_queue_pairs=2) as (drive, _), NvmeEngine(drive) as engine:
        results: dict[int, list[int]] = {}

        def work(number: int) -> None:
            buffers = [np.zeros(512, np.uint8) for _ in range(10)]
            results[number] = engine.read([ReadSpan(0, 512 * lba, 512) for lba in range(10)], buffers)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for found in results.values():
            assert found[5] in (-errno.ECANCELED, -errno.ETIMEDOUT)
            assert set(found) <= {512, -errno.ECANCELED, -errno.ETIMEDOUT}
        assert len(results) == 3
        assert "Command Abort Requested" in engine.explain(0, 5 * 512)
        behaviour.ignore = lambda command: False
        expect_reads_work(drive)
        assert engine.read([ReadSpan(0, 0, 512)], [np.zeros(512, np.uint8)]) == [512]


def test_a_drive_that_does_not_even_reset_is_given_up() -> None:
    behaviour = Behaviour(can_abort=False, ready_timeout=1, ignore=is_io)
    with a_drive(behaviour, timeout_s=0.2) as (drive, _):
        behaviour.never_ready = True
        with pytest.raises(NvmeStatusError, match=r"CSTS\.RDY did not become 1") as caught:
            read(drive)
        # The reset itself began, so the read was lost in it; or the drive was given up before.
        assert caught.value.errno in (errno.ENODEV, errno.ETIMEDOUT)
        with pytest.raises(StorageError) as again:
            read(drive)
        assert again.value.errno == errno.ENODEV


def test_a_drive_that_vanishes() -> None:
    behaviour = Behaviour()
    with a_drive(behaviour, timeout_s=0.2) as (drive, _), NvmeEngine(drive) as engine:
        behaviour.vanished = True
        with pytest.raises(NvmeStatusError, match="all ones") as caught:
            read(drive)
        assert caught.value.errno == errno.ENODEV
        assert engine.read([ReadSpan(0, 0, 512)], [np.zeros(512, np.uint8)]) == [-errno.ENODEV]
        with pytest.raises(StorageError) as again:
            read(drive)
        assert again.value.errno == errno.ENODEV


def test_the_kernel_asks_for_the_drive_while_reads_wait() -> None:
    behaviour = Behaviour(ignore=is_io)
    with a_drive(behaviour, timeout_s=60) as (drive, model):
        found: list[int] = []

        def wait() -> None:
            try:
                read(drive)
            except StorageError as error:
                found.append(error.errno)

        thread = threading.Thread(target=wait)
        thread.start()
        while not any(map(is_io, list(model.commands))):
            time.sleep(0.001)
        model.request_removal()
        thread.join(30)
        assert found == [errno.ENODEV]
        assert not model.mapped
        assert model._stopping.wait(10)  # it was given back without waiting for close()


def test_reset_in_the_middle_of_reads() -> None:
    with a_drive(depth=4) as (drive, model):
        endings: list[int] = []

        def work() -> None:
            for _ in range(30):
                try:
                    expect_reads_work(drive)
                    endings.append(0)
                except NvmeStatusError as error:
                    endings.append(error.errno)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            drive.reset()
        for thread in threads:
            thread.join(60)
        assert len(endings) == 90
        assert set(endings) <= {0, errno.ECANCELED}
        expect_reads_work(drive)
        assert model.resets == 5


def test_closed_engines_and_drives_in_any_order() -> None:
    with a_drive() as (drive, _):
        engine = NvmeEngine(drive)
        drive.close()
        assert engine.read([ReadSpan(0, 0, 512)], [np.zeros(512, np.uint8)]) == [-errno.ENODEV]
        engine.close()
        drive.close()
