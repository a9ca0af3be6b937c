"""Files that cannot be opened, and files that change while they are open."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from engine_contract import random_bytes, read_one, unit_of, write_files

from bam.errors import ConfigError, SourceError
from bam.native import available
from bam.storage import Engine, FileEngine, NativeFileEngine, ReadSpan, UringEngine, open_engine

native = pytest.mark.skipif(not available(), reason="the native library was not built")
NOBODY = 65534


class OpensFiles(Protocol):
    """What the engines over files have in common."""

    def __call__(self, paths: Sequence[str], *, direct: bool = True) -> Engine: ...


@pytest.fixture(
    params=[
        FileEngine,
        pytest.param(NativeFileEngine, marks=native),
        pytest.param(UringEngine, marks=native),
    ]
)
def kind(request: pytest.FixtureRequest) -> OpensFiles:
    found: OpensFiles = request.param
    return found


@contextmanager
def without_privileges() -> Iterator[None]:
    """Permissions count inside, also for root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def refusal(kind: OpensFiles, path: str) -> SourceError:
    with pytest.raises(SourceError) as raised:
        kind([path])
    error = raised.value
    assert error.file == path
    assert error.expected == "a regular file or block device that can be read"
    assert path in str(error)
    return error


class TestRefused:
    def test_missing(self, kind: OpensFiles, tmp_path: Path) -> None:
        assert refusal(kind, str(tmp_path / "missing")).errno == errno.ENOENT

    def test_directory(self, kind: OpensFiles, tmp_path: Path) -> None:
        error = refusal(kind, str(tmp_path))
        assert (error.errno, error.found) == (errno.EISDIR, "a directory")

    def test_fifo_without_a_writer(self, kind: OpensFiles, tmp_path: Path) -> None:
        fifo = str(tmp_path / "fifo")
        os.mkfifo(fifo)
        error = refusal(kind, fifo)
        assert (error.errno, error.found) == (errno.ESPIPE, "a FIFO")

    def test_socket(self, kind: OpensFiles, tmp_path: Path) -> None:
        path = str(tmp_path / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            error = refusal(kind, path)
        assert (error.errno, error.found) == (errno.ENXIO, "a socket")

    def test_character_device(self, kind: OpensFiles) -> None:
        error = refusal(kind, "/dev/zero")
        assert (error.errno, error.found) == (errno.EINVAL, "a character device")

    def test_permission(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(512, 1)])
        os.chmod(path, 0)
        with without_privileges():
            error = refusal(kind, path)
        assert error.errno in (errno.EACCES, errno.EPERM)

    def test_more_files_than_the_limit(self, kind: OpensFiles, tmp_path: Path) -> None:
        paths = write_files(tmp_path, [random_bytes(512, 1)])
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
        try:
            with pytest.raises(SourceError, match="ulimit -n") as caught:
                kind(paths * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert caught.value.errno == errno.EMFILE

    def test_loop_of_links(self, kind: OpensFiles, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(link)
        assert refusal(kind, str(link)).errno == errno.ELOOP

    def test_name_with_odd_bytes(self, kind: OpensFiles, tmp_path: Path) -> None:
        path = os.fsdecode(os.fsencode(tmp_path) + b'/\xff"\\\n\x01')
        assert refusal(kind, path).errno == errno.ENOENT
        random_bytes(512, 1).tofile(path)
        with kind([path]) as engine:
            assert engine.files[0].path == path

    @pytest.mark.parametrize("paths", [[], ["zero\0byte"], "a string"])
    def test_lists_that_are_none(self, kind: OpensFiles, paths: Sequence[str]) -> None:
        with pytest.raises(ConfigError):
            kind(paths)

    def test_one_bad_file_among_good_ones_leaves_none_open(self, kind: OpensFiles, tmp_path: Path) -> None:
        paths = write_files(tmp_path, [random_bytes(512, 1), random_bytes(512, 2)])
        before = os.listdir("/proc/self/fd")
        with pytest.raises(SourceError):
            kind([*paths, str(tmp_path / "missing")])
        assert os.listdir("/proc/self/fd") == before


class TestOpened:
    def test_closing_leaves_nothing_open(self, kind: OpensFiles, tmp_path: Path) -> None:
        paths = write_files(tmp_path, [random_bytes(9000, seed) for seed in range(3)])
        before = os.listdir("/proc/self/fd")
        engine = kind(paths)
        read_one(engine, ReadSpan(1, 0, 4096))
        engine.close()
        assert os.listdir("/proc/self/fd") == before

    def test_descriptors_are_not_inherited(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(512, 1)])
        with kind([path]) as engine:
            read_one(engine, ReadSpan(0, 0, unit_of(engine)))
            for name in os.listdir("/proc/self/fd"):
                link = f"/proc/self/fd/{name}"
                if os.path.exists(link) and os.readlink(link) in (path, "anon_inode:[io_uring]"):
                    assert not os.get_inheritable(int(name))

    def test_buffered_when_asked(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(512, 1)])
        with kind([path], direct=False) as engine:
            assert not engine.info().direct
            assert engine.info().notes == ()
            assert unit_of(engine) == 1

    def test_a_file_system_without_direct_reads_is_reported(self, kind: OpensFiles) -> None:
        """Files of /proc say so; they also have no size, so nothing of them is read."""
        with kind(["/proc/version"]) as engine:
            assert not engine.info().direct
            (note,) = engine.info().notes
            assert "/proc/version" in note
            assert "O_DIRECT" in note

    def test_empty_file(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [np.empty(0, np.uint8)])
        with kind([path]) as engine:
            assert engine.files[0].bytes == 0
            assert read_one(engine, ReadSpan(0, 0, 4096))[0] == 0


class TestChanged:
    """The engine reports what the file system says; span readers and stores judge it."""

    def test_cut_short(self, kind: OpensFiles, tmp_path: Path) -> None:
        content = random_bytes(8192, 1)
        (path,) = write_files(tmp_path, [content])
        with kind([path]) as engine:
            os.truncate(path, 5000)
            assert engine.files[0].bytes == 8192
            result, found = read_one(engine, ReadSpan(0, 4096, 4096))
            assert result == 904
            assert (found[:904] == content[4096:5000]).all()
            assert read_one(engine, ReadSpan(0, 8192, 4096))[0] == 0
            assert engine.check_file(0, 5000) == 0
            assert engine.check_file(0, 5001) == errno.ENODATA
            assert engine.bytes_now(0) == 5000

    @pytest.mark.parametrize("n_bytes", [1, 511, 5000, 8191])
    def test_rewritten_and_shorter(self, kind: OpensFiles, tmp_path: Path, n_bytes: int) -> None:
        (path,) = write_files(tmp_path, [random_bytes(8192, 1)])
        with kind([path]) as engine:
            random_bytes(n_bytes, 2).tofile(path)
            assert engine.check_file(0) == errno.ESTALE
            os.truncate(path, 0)
            assert engine.check_file(0) == errno.ESTALE  # it does not become the old file again

    @pytest.mark.parametrize("n_bytes", [0, 1, 700_000])
    def test_a_long_file_cut_short(self, kind: OpensFiles, tmp_path: Path, n_bytes: int) -> None:
        (path,) = write_files(tmp_path, [random_bytes(2**20, 1)])
        with kind([path]) as engine:
            for _ in range(2):  # looks and then remembers
                os.truncate(path, n_bytes)
                assert engine.check_file(0, n_bytes) == 0
                assert engine.check_file(0, n_bytes + 1) == errno.ENODATA

    @pytest.mark.parametrize(("changed_at", "found"), [(0, True), (2**19 + 4095, True), (2**19 - 1, False)])
    def test_of_a_long_file_samples_are_compared(
        self, kind: OpensFiles, tmp_path: Path, changed_at: int, found: bool
    ) -> None:
        """16 blocks of 4 KiB, 64 KiB apart. A change between them together with a cut is the known limit."""
        content = random_bytes(2**20, 1)
        (path,) = write_files(tmp_path, [content])
        with kind([path]) as engine:
            content[changed_at] ^= 1
            content[: 2**20 - 1].tofile(path)
            assert engine.check_file(0) == (errno.ESTALE if found else 0)

    def test_cut_and_then_rewritten(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(8192, 1)])
        with kind([path]) as engine:
            os.truncate(path, 5000)
            assert engine.check_file(0) == 0
            random_bytes(5000, 2).tofile(path)
            assert engine.check_file(0) == errno.ESTALE

    def test_cut_and_then_extended(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(8192, 1)])
        with kind([path]) as engine:
            os.truncate(path, 5000)
            assert engine.check_file(0) == 0
            os.truncate(path, 8192)
            assert engine.check_file(0) == errno.ESTALE

    def test_rewritten_at_once(self, kind: OpensFiles, tmp_path: Path) -> None:
        """Though the clock of modification times may not have moved since the file was made."""
        for seed in range(5):
            (path,) = write_files(tmp_path, [random_bytes(8192, seed)])
            with kind([path]) as engine:
                random_bytes(8192, seed + 1).tofile(path)
                assert engine.check_file(0) == errno.ESTALE

    def test_of_many_files_each_is_sampled(self, kind: OpensFiles, tmp_path: Path) -> None:
        content = random_bytes(20_000, 1)
        paths = write_files(tmp_path, [content] * 600)
        with kind(paths) as engine:
            os.truncate(paths[7], 10_000)
            (content[:10_000] ^ 1).tofile(paths[599])
            assert [engine.check_file(file) for file in (0, 7, 599)] == [0, 0, errno.ESTALE]

    def test_rewritten_in_place(self, kind: OpensFiles, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, [random_bytes(8192, 1)])
        with kind([path]) as engine:
            assert engine.check_file(0) == 0
            os.utime(path, ns=(1, 1))  # as a write at another time does
            assert engine.check_file(0) == errno.ESTALE

    def test_replaced(self, kind: OpensFiles, tmp_path: Path) -> None:
        content = random_bytes(8192, 1)
        (path,) = write_files(tmp_path, [content])
        with kind([path]) as engine:
            random_bytes(8192, 2).tofile(tmp_path / "other")
            os.replace(tmp_path / "other", path)
            result, found = read_one(engine, ReadSpan(0, 4096, 4096))
            assert result == 4096
            assert (found == content[4096:]).all()
            assert engine.check_file(0) == 0

    def test_loading_into_memory_reads_once(self, tmp_path: Path) -> None:
        content = random_bytes(8192, 1)
        (path,) = write_files(tmp_path, [content])
        with open_engine("memory", [path]) as engine:
            os.truncate(path, 0)
            assert (read_one(engine, ReadSpan(0, 0, 8192))[1] == content).all()
