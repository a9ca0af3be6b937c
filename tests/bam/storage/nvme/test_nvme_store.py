"""Stores on raw namespaces: written, cut off, gone on with, verified, refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from model_drive import Behaviour, Command, ModelDrive, Namespace

import bam
from bam.errors import ConfigError, NvmeStatusError, SourceError, StorageError
from bam.native import available
from bam.storage.nvme import DriveSettings, NvmeDrive, NvmeStore, write_store
from bam.storage.nvme.raw_namespace import RawNamespace
from bam.storage.nvme.store_format import ALIGN, Member, StoreState, Superblock, newest, plan

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")

SIZE = 12 << 20


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def target(stack: ExitStack, block_bytes: int = 512, behaviour: Behaviour | None = None) -> RawNamespace:
    model = ModelDrive({1: Namespace(np.zeros(SIZE, np.uint8), block_bytes)}, behaviour)
    drive = stack.enter_context(NvmeDrive("model", model, DriveSettings(n_queue_pairs=1, depth=16)))
    return RawNamespace(drive)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "source"
    (made / "deep").mkdir(parents=True)
    for name, width in (("a", 250), ("deep/b", 31)):
        np.save(made / f"{name}.npy", np.random.default_rng(width).random((2500, width), dtype=np.float32))
    (made / "note.txt").write_text("not an array")
    (made / "empty").touch()
    return made


@pytest.mark.parametrize("stripe_bytes", [4096, 12288])
@pytest.mark.parametrize("n_drives", [1, 2, 3])
def test_what_is_written_is_read(stack: ExitStack, folder: Path, n_drives: int, stripe_bytes: int) -> None:
    targets = [target(stack, 512 if number % 2 else 4096) for number in range(n_drives)]
    seen: list[int] = []
    block = write_store(
        folder, targets, stripe_bytes=stripe_bytes, progress=lambda done, total: seen.append(done)
    )
    assert seen[-1] == block.logical_bytes
    store = NvmeStore(targets[::-1])
    store.verify()
    assert {one.name: one.n_bytes for one in store.members} == {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file()
    }
    note = store.member("note.txt")
    assert store.read(note.offset, note.n_bytes) == b"not an array"
    for name in ("a.npy", "deep/b.npy"):
        rows = np.load(folder / name)
        ids = np.random.default_rng(1).integers(0, len(rows), 100)
        with bam.open_array(bam.NvmeSource(store, name), cache="64KiB") as array:
            np.testing.assert_array_equal(array[ids], rows[ids])
        with bam.open_array(bam.NvmeSource(store, name), reader="reference") as array:
            np.testing.assert_array_equal(array[ids[:9]], rows[ids[:9]])
    with pytest.raises(ConfigError, match="store's files"):
        bam.open_array(bam.NvmeSource(store, "c.npy"))
    with pytest.raises(ConfigError, match="engine"):
        bam.open_array(bam.NvmeSource(store, "a.npy"), engine="uring")


def test_rows_without_a_header(stack: ExitStack, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, (99, 100), dtype=np.uint8)
    (tmp_path / "raw").write_bytes(data.tobytes())
    one = target(stack)
    write_store(tmp_path / "raw", [one])
    source = bam.NvmeSource(NvmeStore([one]), "raw", np.uint8, (99, 100))
    with bam.open_array(source) as array:
        np.testing.assert_array_equal(array[:], data)
    with pytest.raises(SourceError, match="9900 bytes"):
        bam.open_array(bam.NvmeSource(NvmeStore([one]), "raw", np.uint8, (98, 100)))


def test_npy_rows_begin_with_a_block(stack: ExitStack, folder: Path) -> None:
    one = target(stack)
    write_store(folder, [one])
    for member in NvmeStore([one]).members:
        header = 128 if member.name.endswith(".npy") else 0
        assert (member.offset + header) % ALIGN == 0


class Cut(Exception):
    """The writing was cut off."""


@pytest.mark.parametrize("n_drives", [1, 2])
def test_cut_off_at_every_write_and_gone_on_with(stack: ExitStack, tmp_path: Path, n_drives: int) -> None:
    """Whatever was written last, the next attempt ends with a store that verifies."""
    source = tmp_path / "data"
    source.write_bytes(np.random.default_rng(3).bytes(5 << 20))
    left = [0]

    def refuse(command: Command) -> int | None:
        if command.queue and command.opcode == 1:
            left[0] -= 1
            return 0x280 if left[0] < 0 else None
        return None

    targets = [target(stack, behaviour=Behaviour(refuse=refuse)) for _ in range(n_drives)]
    for allowed in (0, 1, 2, 3, 5, 9, 20, 40):
        left[0] = allowed
        with pytest.raises(NvmeStatusError, match="Write Fault"):
            write_store(source, targets, serials=["MODEL0001"])
        with pytest.raises(SourceError):
            NvmeStore(targets)
    left[0] = 10**9
    write_store(source, targets, serials=["MODEL0001"])
    store = NvmeStore(targets)
    store.verify()
    assert store.read(0, 5 << 20) == source.read_bytes()


def test_going_on_does_not_write_again_what_is_there(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bam.storage.nvme.store_writer.NOTE_EVERY", 2)
    source = tmp_path / "data"
    source.write_bytes(np.random.default_rng(3).bytes(8 << 20))
    one, written = target(stack), []

    def progress(done: int, total: int) -> None:
        written.append(done)
        if len(written) == 5:
            raise Cut

    with pytest.raises(Cut):
        write_store(source, [one], progress=progress)
    found = newest(one.read(0, 2 * ALIGN))
    assert found is not None
    assert (found.state, found.chunks_done) == (StoreState.WRITING, 4)
    written.clear()
    written.extend([0] * 10)
    assert write_store(source, [one], progress=progress).uuid == found.uuid  # no serial number needed
    assert len(written) == 10 + 4
    NvmeStore([one]).verify()
    assert write_store(source, [one], progress=progress).uuid == found.uuid
    assert len(written) == 10 + 4  # complete already


def test_another_source_does_not_go_on(stack: ExitStack, tmp_path: Path) -> None:
    source, one = tmp_path / "data", target(stack)
    source.write_bytes(bytes(5000))
    write_store(source, [one])
    os.utime(source, ns=(0, 0))
    with pytest.raises(ConfigError, match="holds a bam store"):
        write_store(source, [one])


def test_a_source_that_changes_meanwhile(stack: ExitStack, tmp_path: Path) -> None:
    source, one = tmp_path / "data", target(stack)
    source.write_bytes(bytes(3 << 20))
    with pytest.raises(SourceError, match=r"changed|another size"):
        write_store(source, [one], progress=lambda done, total: os.truncate(source, 100))
    with pytest.raises(SourceError, match="a complete store"):
        NvmeStore([one])


@pytest.mark.parametrize(
    ("offset", "magic", "what"),
    [
        (0x438, b"\x53\xef", "ext"),
        (512, b"EFI PART", "GPT"),
        (SIZE - 512, b"EFI PART", "GPT"),
        (510, b"\x55\xaa", "MBR"),
    ],
)
def test_a_namespace_that_holds_something_is_refused(
    stack: ExitStack, tmp_path: Path, offset: int, magic: bytes, what: str
) -> None:
    source, one = tmp_path / "data", target(stack)
    source.write_bytes(bytes(5000))
    begin = offset // 512 * 512
    block = bytearray(512)
    block[offset - begin : offset - begin + len(magic)] = magic
    one.write(begin, bytes(block))
    for serials in ([], ["MODEL0002"]):
        with pytest.raises(ConfigError, match=what) as caught:
            write_store(source, [one], serials=serials)
        assert "--serial MODEL0001" in str(caught.value)
    assert one.read(begin, 512) == bytes(block)
    write_store(source, [one], serials=["MODEL0001"])


def test_a_namespace_that_is_too_small(stack: ExitStack, tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.write_bytes(bytes(SIZE))
    with pytest.raises(ConfigError, match="at least"):
        write_store(source, [target(stack)])


def test_damage_is_found_and_named(stack: ExitStack, folder: Path) -> None:
    targets = [target(stack), target(stack)]
    block = write_store(folder, targets)
    at = block.data_offset + 3 * 512
    sector = bytearray(targets[1].read(at, 512))
    sector[5] ^= 1
    targets[1].write(at, bytes(sector))
    with pytest.raises(StorageError, match="chunk 0 has CRC-32") as caught:
        NvmeStore(targets).verify()
    assert caught.value.offset == block.data_offset


def test_parts_of_a_store_do_not_open(stack: ExitStack, folder: Path, tmp_path: Path) -> None:
    targets = [target(stack), target(stack)]
    with pytest.raises(SourceError, match="no superblock"):
        NvmeStore(targets)
    write_store(folder, targets)
    with pytest.raises(SourceError, match="all 2 namespaces"):
        NvmeStore(targets[:1])
    with pytest.raises(SourceError, match="all 2 namespaces"):
        NvmeStore([targets[0], targets[0]])


def test_superblocks() -> None:
    (block,) = plan((Member("a", 5000, 0),), b"f" * 32, 1, 4096)
    text = block.encode()
    assert len(text) == 4096
    assert Superblock.decode(text) == block
    assert text[:8] == b"BAMNVME\0"
    for position in (8, 100, 4095):
        torn = bytearray(text)
        torn[position] ^= 1
        assert Superblock.decode(bytes(torn)) is None
    later = block.next(chunks_done=1)
    assert (block.place, later.place) == (0, 4096)
    assert newest(text + later.encode()) == later
    assert newest(text + bytes(4096)) == block
    assert newest(bytes(8192)) is None
