"""What every bulk reader promises, as one suite; each reader's test subclasses it."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bam.errors import ClosedError, ConfigError, FileChangedError, TruncatedFileError
from bam.layout import Layout
from bam.storage.bulk import BulkMemory, BulkPathKind, BulkRange, BulkReader, BulkSettings, HostMemory
from bam.storage.engine import ByteArray

GUARD = 0x5C
SMALL = BulkSettings(task_bytes="64KiB", threads=3)
HEADER_BYTES = 128


class OtherMemory(BulkMemory):
    """Memory that the host cannot address, as a GPU's: everything goes through :meth:`put`."""

    def __init__(self, n_bytes: int) -> None:
        self.n_bytes = n_bytes
        self.bytes = np.full(n_bytes, GUARD, np.uint8)

    @property
    def host(self) -> ByteArray | None:
        return None

    def part(self, begin: int, length: int) -> ByteArray:
        return self.bytes[begin : begin + length]

    def staging(self, n_bytes: int) -> ByteArray:
        return HostMemory(self.bytes).staging(n_bytes)

    def put(self, begin: int, data: ByteArray) -> None:
        self.bytes[begin : begin + len(data)] = data


def random_bytes(n_bytes: int, seed: int = 0) -> ByteArray:
    return np.random.default_rng(seed).integers(0, 256, n_bytes, dtype=np.uint8)


def two_files(folder: Path) -> tuple[list[str], Layout, ByteArray]:
    """Data behind a header, and going on in a second file; sizes that no block divides."""
    first, second = random_bytes(300_001, 1), random_bytes(170_003, 2)
    paths = [str(folder / "first.bin"), str(folder / "second.bin")]
    np.concatenate([random_bytes(HEADER_BYTES, 3), first]).tofile(paths[0])
    second.tofile(paths[1])
    layout = Layout.concatenated([(paths[0], HEADER_BYTES, len(first)), (paths[1], 0, len(second))])
    return paths, layout, np.concatenate([first, second])


def striped_files(folder: Path) -> tuple[list[str], Layout, ByteArray]:
    """Units of 8 KiB dealt to three files."""
    content = random_bytes(3 * 5 * 8192 + 777, 4)
    units = [content[begin : begin + 8192] for begin in range(0, len(content), 8192)]
    paths = []
    for number in range(3):
        paths.append(str(folder / f"stripe-{number}.bin"))
        np.concatenate(units[number::3]).tofile(paths[-1])
    return paths, Layout.striped(paths, 8192, len(content)), content


class BulkReaderContract(ABC):
    """Subclasses say how to open one."""

    @abstractmethod
    def open(self, paths: Sequence[str], layout: Layout, settings: BulkSettings) -> BulkReader:
        """A reader of these files."""

    @pytest.mark.parametrize("make", [two_files, striped_files])
    @pytest.mark.parametrize("direct", [True, False])
    @pytest.mark.parametrize("addressable", [True, False])
    def test_bytes_are_those_of_the_files(
        self, tmp_path: Path, make: object, direct: bool, addressable: bool
    ) -> None:
        """All of it, and pieces in any order to any place; nothing beside them is written to."""
        paths, layout, content = make(tmp_path)  # type: ignore[operator]
        random = np.random.default_rng(5)
        cuts = np.unique([0, *random.integers(0, len(content), 12), 4096, 65536, len(content) - 1])
        lengths = np.diff([*cuts, len(content)])
        order = random.permutation(len(cuts))
        ranges, expected, begin = [], np.full(len(content) + 2 * len(cuts) + 7, GUARD, np.uint8), 7
        for number in order:
            offset, length = int(cuts[number]), int(lengths[number])
            ranges.append(BulkRange(offset, length, begin))
            expected[begin : begin + length] = content[offset : offset + length]
            begin += length + 2  # so that places get out of step with the files
        with self.open(paths, layout, replace(SMALL, direct=direct)) as reader:
            for asked, wanted in ((ranges, expected), ([BulkRange(0, len(content))], content)):
                if addressable:
                    memory = HostMemory(np.full(len(wanted), GUARD, np.uint8))
                    found = memory.host
                else:
                    memory = OtherMemory(len(wanted))
                    found = memory.bytes
                report = reader.read(asked, memory)
                np.testing.assert_array_equal(found, wanted)
                assert report.n_bytes == sum(each.length for each in asked)
                assert report.path.kind is BulkPathKind.POSIX
                assert report.direct == (direct and takes_direct(paths[0]))
            assert reader.read([], memory).n_bytes == 0

    @pytest.mark.parametrize("task_bytes", [65536, 2**20])
    @pytest.mark.parametrize("threads", [1, 16])
    def test_task_size_and_threads_change_nothing(
        self, tmp_path: Path, task_bytes: int, threads: int
    ) -> None:
        paths, layout, content = two_files(tmp_path)
        memory = HostMemory(np.zeros(len(content), np.uint8))
        settings = BulkSettings(task_bytes=task_bytes, threads=threads, numa=True)
        with self.open(paths, layout, settings) as reader:
            report = reader.read([BulkRange(0, len(content))], memory)
        np.testing.assert_array_equal(memory.host, content)
        assert report.settings == settings
        assert "threads run on" in report.placement

    def test_a_file_that_was_cut(self, tmp_path: Path) -> None:
        paths, layout, content = two_files(tmp_path)
        memory = HostMemory(np.zeros(len(content), np.uint8))
        with self.open(paths, layout, SMALL) as reader:
            os.truncate(paths[1], 100_000)
            with pytest.raises(TruncatedFileError) as failed:
                reader.read([BulkRange(0, len(content))], memory)
            assert failed.value.file == paths[1]
            assert failed.value.errno == errno.ENODATA
            assert 100_000 < failed.value.offset + failed.value.length <= 170_003
            reader.read([BulkRange(0, 300_001 + 50_000)], memory)  # what is there can still be read
            np.testing.assert_array_equal(memory.host[:350_001], content[:350_001])

    def test_a_file_that_was_rewritten(self, tmp_path: Path) -> None:
        paths, layout, content = two_files(tmp_path)
        memory = HostMemory(np.zeros(len(content), np.uint8))
        with self.open(paths, layout, SMALL) as reader:
            random_bytes(170_003, 9).tofile(paths[1])
            with pytest.raises(FileChangedError) as failed:
                reader.read([BulkRange(0, len(content))], memory)
            assert (failed.value.file, failed.value.errno) == (paths[1], errno.ESTALE)

    def test_what_cannot_be_is_refused(self, tmp_path: Path) -> None:
        paths, layout, content = two_files(tmp_path)
        memory = HostMemory(np.full(100, GUARD, np.uint8))
        with self.open(paths, layout, SMALL) as reader:
            for wrong in (
                BulkRange(0, 101),
                BulkRange(0, 100, 1),
                BulkRange(len(content) - 50, 51),
                BulkRange(-1, 10),
                BulkRange(0, -1),
            ):
                with pytest.raises(ConfigError):
                    reader.read([BulkRange(0, 10), wrong], memory)
            assert (memory.host == GUARD).all()
        with pytest.raises(ClosedError):
            reader.read([BulkRange(0, 10)], memory)
        reader.close()


def takes_direct(path: str) -> bool:
    """Whether the file system of the tests takes O_DIRECT."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True
