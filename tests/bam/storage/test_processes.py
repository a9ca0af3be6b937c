"""Forks and kills while reads are in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from engine_contract import in_child, random_bytes, read_one, unit_of, write_files

from bam.errors import ForkedError
from bam.layout import Layout
from bam.native import available
from bam.storage import (
    Engine,
    FileEngine,
    NativeFileEngine,
    ReadSpan,
    UringEngine,
    open_engine,
    read_ranges,
)

native = pytest.mark.skipif(not available(), reason="the native library was not built")

KINDS = [
    FileEngine,
    pytest.param(NativeFileEngine, marks=native),
    pytest.param(UringEngine, marks=native),
]


@pytest.mark.parametrize("kind", KINDS)
def test_fork_while_others_read(kind: type[FileEngine], tmp_path: Path) -> None:
    """The child raises, may open the file anew, and ends; the parent's reads stay right."""
    content = random_bytes(2**18, 1)
    (path,) = write_files(tmp_path, [content])
    stop = threading.Event()
    wrong: list[object] = []
    with kind([path]) as engine:

        def keep_reading() -> None:
            while not stop.is_set():
                result, found = read_one(engine, ReadSpan(0, 0, 2**18))
                if result != 2**18 or (found != content).any():
                    wrong.append(result)

        threads = [threading.Thread(target=keep_reading) for _ in range(2)]
        for thread in threads:
            thread.start()

        def child() -> None:
            with pytest.raises(ForkedError):
                read_one(engine, ReadSpan(0, 0, 4096))
            with pytest.raises(ForkedError):
                engine.check_file(0)
            with kind([path]) as again:
                assert (read_one(again, ReadSpan(0, 0, 2**18))[1] == content).all()
            engine.close()

        statuses = [in_child(child) for _ in range(5)]
        stop.set()
        for thread in threads:
            thread.join(60)
        assert statuses == [0] * 5
        assert not wrong


@native
def test_fork_then_ranges(tmp_path: Path) -> None:
    content = random_bytes(2**18, 1)
    (path,) = write_files(tmp_path, [content])
    layout = Layout.single(path, 0, len(content))
    with UringEngine([path]) as engine:
        assert not any(read_ranges(engine, layout, [0], [1000]).errors)

        def child() -> None:
            with pytest.raises(ForkedError):
                read_ranges(engine, layout, [0], [1000])

        assert in_child(child) == 0
        (found,) = read_ranges(engine, layout, [77], [1000]).bytes
        assert (found == content[77:1077]).all()


@native
@pytest.mark.parametrize("kind", ["uring", "file"])
def test_kill_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    content = random_bytes(2**22, 1)
    (path,) = write_files(tmp_path, [content])
    reader = """
        import sys
        from bam.layout import Layout
        from bam.storage import open_engine, read_ranges
        engine = open_engine(sys.argv[1], sys.argv[2:])
        layout = Layout.single("f", 0, 2**22)
        while True:
            read_ranges(engine, layout, range(0, 2**22 - 4096, 4096), [4096] * 1023, depth=256)
            print("reading", flush=True)
    """
    before = sorted(os.listdir(tmp_path)), sorted(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(reader), kind, path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert (sorted(os.listdir(tmp_path)), sorted(os.listdir("/dev/shm"))) == before
    with open_engine(kind, [path]) as engine:
        assert (read_one(engine, ReadSpan(0, 0, 2**22))[1] == content).all()


@native
def test_interrupted_by_signals(tmp_path: Path) -> None:
    """A handled signal in the middle of a wait changes nothing."""
    content = random_bytes(2**20, 1)
    (path,) = write_files(tmp_path, [content])
    hits = []
    old = signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        for engine in open_each(path):
            with engine:
                unit = max(512, unit_of(engine))
                for _ in range(30):
                    result, found = read_one(engine, ReadSpan(0, unit, 2**20 - unit))
                    assert result == 2**20 - unit
                    assert np.array_equal(found, content[unit:])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert hits


def open_each(path: str) -> list[Engine]:
    return [UringEngine([path]), NativeFileEngine([path]), FileEngine([path])]
