"""What the io_uring engine says of itself, and what it does where it is refused."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from engine_contract import random_bytes, write_files

from bam.config import EngineKind
from bam.errors import ConfigError, EngineUnavailable, NativeLibraryMissing
from bam.native import available
from bam.storage import FileEngine, NativeEngine, NativeFileEngine, UringEngine, UringFeature, open_engine
from bam.storage.uring import DISABLE_VARIABLE

native = pytest.mark.skipif(not available(), reason="the native library was not built")

#: Run in a process of its own: makes the system call CALL fail with errno ERROR for ever.
REFUSE_BY_SECCOMP = """
    import ctypes, struct
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
    LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
    refuse, allow = (RETURN, 0, 0, 0x00050000 | ERROR), (RETURN, 0, 0, 0x7FFF0000)
    steps = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, CALL), refuse, allow]
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
"""


#: As a user without privileges; arguments 2 and 3: bytes that may be locked, bytes of the longest read.
READ_WITH_LITTLE_LOCKED_MEMORY = """
    import os, resource, sys
    import numpy as np
    from bam.errors import EngineUnavailable
    from bam.layout import Layout
    from bam.storage import UringEngine, read_ranges
    path, limit, longest = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    expected = np.fromfile(path, np.uint8)
    UringEngine([path]).close()
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
    try:
        engine = UringEngine([path])
    except EngineUnavailable as refusal:
        sys.exit(print("refused:", refusal))
    reads = read_ranges(engine, Layout.single("f", 0, 2**20), [0, 77], [100, longest])
    assert not any(reads.errors)
    assert (reads.bytes[1] == expected[77 : 77 + longest]).all()
    print("noted:", engine.info())
"""


def run_python(code: str, *arguments: str) -> str:
    """Standard output of a process of its own; its failure fails the test."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_files(tmp_path, [random_bytes(65536, 1)])[0]


@native
def test_info_says_which_features_it_got(path: str) -> None:
    with UringEngine([path]) as engine:
        info = engine.info()
    assert (info.engine, info.implementation) == ("uring", "native")
    names = {"registered_files", "registered_buffers", "timed_wait", "single_mmap", "no_drop", "coop_taskrun"}
    assert set(info.features) == names
    assert set(info.features.values()) <= {True, False}


@native
@pytest.mark.parametrize("feature", list(UringFeature))
def test_info_says_what_is_switched_off(path: str, feature: UringFeature) -> None:
    assert feature.name is not None
    with UringEngine([path], without=feature) as engine:
        assert engine.info().features[feature.name.lower()] is False


@native
def test_refused_by_the_variable(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DISABLE_VARIABLE, "1")
    with pytest.raises(EngineUnavailable) as raised:
        open_engine("uring", [path])
    assert raised.value.engine == "uring"
    assert DISABLE_VARIABLE in raised.value.reason
    assert "Unset it" in raised.value.remedy
    monkeypatch.setenv(DISABLE_VARIABLE, "0")
    open_engine(EngineKind.URING, [path]).close()


@native
def test_auto_takes_the_file_engine_and_says_so(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(DISABLE_VARIABLE, "1")
    with caplog.at_level(logging.WARNING), open_engine("auto", [path]) as engine:
        assert isinstance(engine, NativeFileEngine)
        (note,) = engine.info().notes
    assert DISABLE_VARIABLE in note
    assert note in caplog.text


@native
def test_auto_takes_io_uring(path: str, caplog: pytest.LogCaptureFixture) -> None:
    try:
        UringEngine([path]).close()
    except EngineUnavailable as refusal:
        pytest.skip(f"io_uring is refused here: {refusal.reason}")
    with caplog.at_level(logging.WARNING), open_engine("auto", [path]) as engine:
        assert isinstance(engine, UringEngine)
        assert engine.info().notes == ()
    assert not caplog.records


@native
@pytest.mark.parametrize("call", [425, 426, 427], ids=["setup", "enter", "register"])
@pytest.mark.parametrize(("code", "expected"), [("EPERM", "seccomp"), ("ENOSYS", "sandbox")])
def test_refused_by_a_sandbox(path: str, code: str, expected: str, call: int) -> None:
    said = run_python(
        f"import errno\nERROR, CALL = errno.{code}, {call}\n"
        + textwrap.dedent(REFUSE_BY_SECCOMP)
        + textwrap.dedent(
            """
            import sys
            from bam.errors import EngineUnavailable
            from bam.storage import open_engine
            try:
                open_engine("uring", sys.argv[1:])
            except EngineUnavailable as refusal:
                print(refusal.reason, "|", refusal.remedy)
            with open_engine("auto", sys.argv[1:]) as engine:
                print(engine.info().engine, engine.info().notes)
            """
        ),
        path,
    )
    refusal, automatic = said.splitlines()
    assert "io_uring was refused" in refusal
    assert expected in refusal
    assert "'file'" in refusal.split("|")[1]
    assert automatic.startswith("file (")
    assert "io_uring was refused" in automatic


@native
@pytest.mark.parametrize(("limit", "longest"), [(0, 4000), (500_000, 500_000), (800_000, 4000)])
def test_with_little_locked_memory_it_is_refused_or_reads_through_plain_buffers(
    limit: int, longest: int
) -> None:
    """Registered buffers, and with some kernels rings, count against the limit on locked memory.

    The last case needs 64 slots of 8 KiB: within the limit, but more than the half left after rings.
    """
    with tempfile.TemporaryDirectory() as folder:  # the test's own folder is closed to other users
        os.chmod(folder, 0o755)
        (path,) = write_files(Path(folder), [random_bytes(2**20, 1)])
        os.chmod(path, 0o644)
        said = run_python(READ_WITH_LITTLE_LOCKED_MEMORY, path, str(limit), str(longest))
    assert said.startswith("refused:" if limit == 0 else "noted:") or "registered_buffers': False" in said
    assert "ulimit -l" in said or "registered_buffers': False" in said


@native
def test_locked_memory_is_given_back() -> None:
    """Buffers of five readers, one after the other, take more than a process may lock: half the limit.

    All together fit the limit itself, because the kernel takes its time to give back.
    """
    limit = 8 * 2**20
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard != resource.RLIM_INFINITY and hard < limit:
        pytest.skip(f"no more than {hard} bytes may be locked here")
    again = """
    import time
    for _ in range(5):
        assert not any(read_ranges(engine, Layout.single("f", 0, 2**20), [0], [16384]).errors)
        time.sleep(0.05)
    print("noted:", engine.info().notes)
    """
    with tempfile.TemporaryDirectory() as folder:  # the test's own folder is closed to other users
        os.chmod(folder, 0o755)
        (path,) = write_files(Path(folder), [random_bytes(2**20, 1)])
        os.chmod(path, 0o644)
        code = textwrap.dedent(READ_WITH_LITTLE_LOCKED_MEMORY) + textwrap.dedent(again)
        last = run_python(code, path, str(limit), "100").splitlines()[-1]
    if last.startswith("refused:"):
        pytest.skip(last)
    assert last == "noted: ()"


class TestWithoutTheLibrary:
    @pytest.fixture(autouse=True)
    def no_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing() -> bool:
            return False

        def refuse(*_: object) -> None:
            raise NativeLibraryMissing("uring")

        monkeypatch.setattr("bam.storage.open.available", missing)
        monkeypatch.setattr("bam.storage.uring.create", refuse)

    @pytest.mark.parametrize("kind", ["auto", "file"])
    def test_python_reads_and_says_so(self, path: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING), open_engine(kind, [path]) as engine:
            assert isinstance(engine, FileEngine)
            (note,) = engine.info().notes
        assert "native library was not built" in note
        assert note in caplog.text

    def test_memory(self, path: str) -> None:
        with open_engine("memory", [path]) as engine:
            assert not isinstance(engine, NativeEngine)

    def test_uring_is_refused(self, path: str) -> None:
        with pytest.raises(EngineUnavailable):
            open_engine("uring", [path])


def test_unknown_engine(path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_engine("urnig", [path])
    assert "uring" in str(raised.value)
