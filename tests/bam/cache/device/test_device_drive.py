"""Arrays on a GPU whose kernels ring a drive themselves: the emulated GPU and the drive in plain Python."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import as_numpy, open_on
from emulated_gpu import EmulatedGpu

import bam
from bam.errors import ConfigError, EngineUnavailable, NvmeStatusError, WaitTimeout
from bam.native import available
from bam.storage.nvme import DriveSettings, NvmeDrive, NvmeStore, write_store
from bam.storage.nvme.raw_namespace import RawNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "nvme"))
from model_drive import Behaviour, ModelDrive, Namespace

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

ROWS = np.random.default_rng(4).random((700, 75), dtype=np.float32)  # 300 bytes: rows straddle pages


@contextmanager
def stored(
    folder: Path, behaviour: Behaviour | None = None, *, block_bytes: int = 512, **settings: Any
) -> Iterator[tuple[NvmeStore, NvmeDrive, ModelDrive]]:
    np.save(folder / "rows.npy", ROWS)
    model = ModelDrive({1: Namespace(np.zeros(4 << 20, np.uint8), block_bytes)}, behaviour)
    chosen = {"n_queue_pairs": 1, "depth": 8, "reserved_queue_pairs": 4, **settings}
    with NvmeDrive("model", model, DriveSettings(**chosen)) as drive:
        write_store(folder, [RawNamespace(drive)])
        yield NvmeStore([RawNamespace(drive)]), drive, model
    assert model.errors == []


@pytest.mark.parametrize("sgl", [False, True])
@pytest.mark.parametrize(
    ("block_bytes", "page_bytes"), [(512, 512), (512, 4096), (4096, 8192), (4096, 65536)]
)
def test_rows_equal_the_array(tmp_path: Path, sgl: bool, block_bytes: int, page_bytes: int) -> None:
    with stored(tmp_path, Behaviour(sgl=sgl, doorbell_stride=1), block_bytes=block_bytes) as (
        store,
        _,
        model,
    ):
        gpu = EmulatedGpu()
        staging = page_bytes * 32
        with open_on(gpu, bam.NvmeSource(store, "rows.npy"), page_bytes=page_bytes, staging=staging) as array:
            assert [one[2] for one in gpu.registered].count(True) == 1  # the doorbells, as I/O memory
            before = len(model.commands)
            for seed in range(3):
                ids = np.random.default_rng(seed).integers(0, len(ROWS), 150)
                np.testing.assert_array_equal(as_numpy(array.gather(ids)), ROWS[ids])
            asked = {
                command.queue for command in model.commands[before:] if command.opcode == 2 and command.queue
            }
            assert asked <= {2, 3, 4, 5}  # the reserved queue pairs; pair 1 is the host's
            assert asked


def test_a_read_that_fails_is_named_and_the_array_stays_usable(tmp_path: Path) -> None:
    behaviour = Behaviour()
    with (
        stored(tmp_path, behaviour) as (store, _, _),
        open_on(EmulatedGpu(), bam.NvmeSource(store, "rows.npy"), page_bytes=512, cache_lines=8) as array,
    ):
        behaviour.refuse = lambda command: 0x281 if command.queue > 1 else None
        with pytest.raises(NvmeStatusError, match="Unrecovered Read Error") as caught:
            array.gather(np.arange(20))
        assert (caught.value.status, caught.value.errno, caught.value.length) == (0x281, errno.EIO, 512)
        behaviour.refuse = lambda command: None
        np.testing.assert_array_equal(as_numpy(array.gather(np.arange(20))), ROWS[:20])


def test_a_drive_that_does_not_answer_is_a_time_out(tmp_path: Path) -> None:
    behaviour = Behaviour()
    with stored(tmp_path, behaviour) as (store, _, _):
        source = bam.NvmeSource(store, "rows.npy")
        with open_on(EmulatedGpu(), source, page_bytes=512, timeout_s=0.3) as array:
            behaviour.ignore = lambda command: command.queue > 1
            with pytest.raises(WaitTimeout):
                array.gather(np.arange(20))


def test_what_cannot_work(tmp_path: Path) -> None:
    with stored(tmp_path, block_bytes=4096) as (store, drive, _):
        source = bam.NvmeSource(store, "rows.npy")
        with pytest.raises(ConfigError, match="page_bytes"):
            open_on(EmulatedGpu(), source, page_bytes=512)
        with pytest.raises(ConfigError, match="merge_bytes"):
            open_on(EmulatedGpu(), source, page_bytes=4096, merge_bytes=65536)
        with pytest.raises(ConfigError, match="reserved_queue_pairs"):
            open_on(EmulatedGpu(), source, queue_pairs=5)
        assert drive.gone is None


def test_queue_pairs_come_back_when_opening_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stored(tmp_path) as (store, _, _):
        source = bam.NvmeSource(store, "rows.npy")
        for failing in ("register", "write"):  # while the queues are described, and later
            gpu = EmulatedGpu()

            def fail(
                address: int, *rest: Any, gpu: EmulatedGpu = gpu, failing: str = failing, **named: Any
            ) -> int:
                if failing == "write" or named:
                    raise EngineUnavailable("cuda", "planted", "none")
                return EmulatedGpu.register(gpu, address, *rest)

            with monkeypatch.context() as patched:
                patched.setattr(gpu, failing, fail)
                with pytest.raises(EngineUnavailable, match="planted"):
                    open_on(gpu, source)
        with open_on(EmulatedGpu(), source) as array:
            np.testing.assert_array_equal(as_numpy(array.gather(np.arange(50))), ROWS[:50])


def test_queue_pairs_come_back_also_after_a_reset(tmp_path: Path) -> None:
    with stored(tmp_path) as (store, drive, _):
        source = bam.NvmeSource(store, "rows.npy")
        for attempt in range(3):
            with open_on(EmulatedGpu(), source) as array:
                np.testing.assert_array_equal(as_numpy(array.gather(np.arange(50))), ROWS[:50])
            if attempt == 1:
                drive.reset()


def test_without_reserved_queue_pairs_the_software_controller_reads_the_drive(tmp_path: Path) -> None:
    with stored(tmp_path, reserved_queue_pairs=0) as (store, _, _):
        gpu = EmulatedGpu()
        with open_on(gpu, bam.NvmeSource(store, "rows.npy")) as array:
            assert gpu.registered == []
            np.testing.assert_array_equal(as_numpy(array.gather(np.arange(9))), ROWS[:9])
