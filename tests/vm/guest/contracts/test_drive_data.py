"""Bytes of QEMU's drives: data pointers at page boundaries, namespaces, arrays of every row size, stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import drives
import numpy as np
import pytest

import bam
from bam.errors import ConfigError, NvmeStatusError, SourceError, StorageError
from bam.storage.nvme import NvmeController, NvmeStore, write_store
from bam.storage.nvme.cli import main
from bam.storage.nvme.commands import create_completion_queue
from bam.storage.nvme.raw_namespace import RawNamespace

ALL = ("D512", "D4096", "DTWO", "DLAST")
SMALL = {"n_queue_pairs": 2, "depth": 16, "max_transfer_bytes": 65536}


@pytest.fixture(scope="module", autouse=True)
def _closed_at_the_end() -> Iterator[None]:
    yield
    drives.close_all()


@pytest.mark.parametrize("pointers", ["prp", "sgl"])
def test_lists_at_every_boundary(pointers: str) -> None:
    """Bytes go straight to memory that begins anywhere in a page; the longest lists need a second page."""
    big = {"n_queue_pairs": 1, "depth": 2, "max_transfer_bytes": 3 << 20, "data_pointer": pointers}
    on = drives.drive("DTWO", **big)
    data = np.random.default_rng(1).integers(0, 256, 4 << 20, dtype=np.uint8)
    drives.fill(on, 1, data)
    memory = on.allocate(4 << 20).view()
    for offset in (0, 4, 512, 4092):
        for n_bytes in (512, 3584, 4096, 4608, 8192, 8704, 12288, 2 << 20, (2 << 20) + 4096, 3 << 20):
            memory[: offset + n_bytes + 4096] = 0xA5
            out = memory[offset : offset + n_bytes].reshape(1, -1)
            NvmeController(on).read_blocks(np.array([7]), n_bytes // 512, out)
            assert out[0].tobytes() == data[7 * 512 :][:n_bytes].tobytes()
            assert (memory[:offset] == 0xA5).all()
            assert (memory[offset + n_bytes :][:4096] == 0xA5).all()
    drives.close("DTWO")


def test_namespaces_are_apart() -> None:
    on = drives.drive("DTWO", **SMALL)
    assert [(one.nsid, one.block_bytes) for one in on.namespaces] == [(1, 512), (2, 4096)]
    drives.fill(on, 1, np.full(65536, 1, np.uint8))
    drives.fill(on, 2, np.full(65536, 2, np.uint8))
    for nsid in (1, 2):
        assert set(RawNamespace(on, nsid).read(0, 65536)) == {nsid}


def test_a_queue_deeper_than_the_drive_allows() -> None:
    deepest = drives.drive("DLAST", **SMALL).capabilities.max_queue_entries
    with pytest.raises(ConfigError, match=r"CAP\.MQES"):
        drives.drive("DLAST", n_queue_pairs=1, depth=2 * deepest, max_transfer_bytes=4096)
    on = drives.drive("DLAST", **SMALL)
    queue = on.allocate(4096)
    with pytest.raises(NvmeStatusError, match="Invalid Queue Size") as caught:
        on.admin(create_completion_queue(8, 2 * deepest, queue.iova))
    assert caught.value.status == 0x102
    drives.fill(on, 1, np.full(4096, 7, np.uint8))
    on.reset()
    assert set(RawNamespace(on).read(0, 4096)) == {7}


def test_more_queue_pairs_than_the_drive_grants() -> None:
    with pytest.raises(ConfigError, match="at most 8"):
        drives.drive("DLAST", n_queue_pairs=9, depth=4, max_transfer_bytes=4096)
    assert drives.drive("DLAST", n_queue_pairs=8, depth=4, max_transfer_bytes=4096).identity.serial == "DLAST"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays of many row sizes."""
    made = tmp_path_factory.mktemp("source")
    (made / "rows").mkdir()
    for width in (1, 25, 128, 250, 1024, 1250):
        rows = np.random.default_rng(width).random((700_000 // (width + 300), width), dtype=np.float32)
        np.save(made / "rows" / f"{width}.npy", rows)
    (made / "empty.txt").touch()
    return made


def test_a_store_on_four_drives_serves_arrays(folder: Path) -> None:
    targets = [RawNamespace(drives.drive(serial, **SMALL)) for serial in ALL]
    serials = [*ALL]
    block = write_store(folder, targets, serials=serials)
    assert block.n_drives == 4
    store = NvmeStore(list(reversed(targets)))
    store.verify()
    random = np.random.default_rng(0)
    for path in sorted((folder / "rows").iterdir()):
        rows = np.load(path)
        ids = random.integers(0, len(rows), 300)
        for page_bytes in (512, 4096, 65536):
            source = bam.NvmeSource(store, f"rows/{path.name}")
            with bam.open_array(source, page_bytes=page_bytes, cache="1MiB") as array:
                np.testing.assert_array_equal(array[ids], rows[ids])
                assert array.info().engine.engine == "striped"
    with pytest.raises(SourceError, match="namespaces of store"):
        NvmeStore(targets[:3])


def test_the_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drives.close_all()
    first, second = (drives.addresses()[serial] for serial in ("D512", "D4096"))

    def run(*arguments: str) -> tuple[int, str]:
        status = main(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    assert run("unbind", first, second)[0] == 0
    drives.kernel_disk(first)
    drives.kernel_disk(second)
    status, text = run("list")
    assert (status, text.count("nvme (nvme")) == (0, 2)
    assert run("info", first)[1].count("bound to nvme, not to vfio-pci") == 1
    status, text = run("bind", first, second)
    assert (status, text.count("to use it without root: chown USER /dev/vfio/")) == (0, 2)
    status, text = run("info", first)
    assert (status, "serial D512" in text, "blocks of 512 bytes" in text) == (0, True, True)

    # What is there is kept unless the serial numbers are typed.
    status, text = run("write", str(folder), first, second)
    assert (status, "it holds a bam store" in text, "--serial D512" in text) == (1, True, True)
    status, text = run("write", str(folder), first, second, "--serial", "D512", "--serial", "D4096")
    assert (status, "every chunk reads back" in text) == (0, True)
    status, text = run("verify", second, first)
    assert (status, "rows/1250.npy" in text) == (0, True)


def test_a_drive_in_use_is_not_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drives.fill(drives.drive("DLAST", **SMALL), 1, np.zeros(1 << 20, np.uint8))
    drives.close_all()
    address = drives.addresses()["DLAST"]
    assert main(["unbind", address]) == 0
    disk = drives.kernel_disk(address)
    with drives.swap_space(disk):
        assert main(["bind", address]) == 1
        assert f"{disk} is swap space" in capsys.readouterr().err
    assert main(["bind", address]) == 0
    assert main(["write", str(folder), address]) == 1
    assert "it holds swap space" in capsys.readouterr().err


def test_a_writing_that_is_cut_off_goes_on_and_a_flipped_bit_is_found(folder: Path) -> None:
    target = RawNamespace(drives.drive("D512", **SMALL))

    class Cut(Exception):
        pass

    def cut(done: int, total: int) -> None:
        if done > total // 2:
            raise Cut

    with pytest.raises(Cut):
        write_store(folder, [target], serials=["D512"], progress=cut)
    with pytest.raises(SourceError, match="a complete store"):
        NvmeStore([target])
    block = write_store(folder, [target])  # no serial number: it is the same store
    store = NvmeStore([target])
    store.verify()
    page = bytearray(target.read(block.data_offset + 8192, 512))
    page[17] ^= 4
    target.write(block.data_offset + 8192, bytes(page))
    with pytest.raises(StorageError, match="chunk 0 has CRC-32"):
        store.verify()
