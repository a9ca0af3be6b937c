"""Every engine and wrapper keeps the contract."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from engine_contract import EngineContract, write_files

from bam.native import available
from bam.storage import (
    Engine,
    FaultEngine,
    FileEngine,
    LatencyEngine,
    LognormalLatency,
    MemoryEngine,
    MonitoredEngine,
    NativeFaultEngine,
    NativeFileEngine,
    NativeMemoryEngine,
    SsdModel,
    StripedEngine,
    UringEngine,
    UringFeature,
    open_engine,
)
from bam.storage.engine import ByteArray

native = pytest.mark.skipif(not available(), reason="the native library was not built")

STRIPE_BYTES = 4096


class TestPythonMemory(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return MemoryEngine(contents)


class TestPythonMemoryAligned(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return MemoryEngine(contents, alignment=512)


@native
class TestMemory(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return NativeMemoryEngine(contents)


@native
class TestMemoryCopied(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return NativeMemoryEngine([content.tobytes() for content in contents], alignment=512, copy=True)


class TestPythonFile(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return FileEngine(write_files(folder, contents))


class TestPythonFileBuffered(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return FileEngine(write_files(folder, contents), direct=False)


@native
class TestFile(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return NativeFileEngine(write_files(folder, contents))


@native
class TestFileBuffered(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return NativeFileEngine(write_files(folder, contents), direct=False, threads=1)


@native
class TestUring(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return UringEngine(write_files(folder, contents))


@native
class TestUringBuffered(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return UringEngine(write_files(folder, contents), direct=False)


@native
class TestUringBare(EngineContract):
    """With nothing an older kernel would lack."""

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        everything = UringFeature(0)
        for feature in UringFeature:
            everything |= feature
        engine = UringEngine(write_files(folder, contents), without=everything)
        features = engine.info().features
        assert not any(value for name, value in features.items() if name != "no_drop")
        return engine


class TestAuto(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return open_engine("auto", write_files(folder, contents))


class TestLoaded(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return open_engine("memory", write_files(folder, contents))


class TestPythonFaultWithoutRules(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return FaultEngine(stack.enter_context(FileEngine(write_files(folder, contents))), [])


@native
class TestFaultReordering(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        inner = stack.enter_context(UringEngine(write_files(folder, contents)))
        assert isinstance(inner, UringEngine)
        return NativeFaultEngine(inner, [], reorder_window=5, reorder_seed=3)


@native
class TestMonitored(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        inner = UringEngine(write_files(folder, contents))
        stack.callback(inner.close)
        return MonitoredEngine(inner)


@native
class TestLatency(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        inner = NativeMemoryEngine(contents)
        stack.callback(inner.close)
        return LatencyEngine(inner, SsdModel(1e6, 1e10, LognormalLatency(20, 10, 0.5), queue_depth=64))


@native
class TestLatencyOnADisk(EngineContract):
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        inner = NativeFileEngine(write_files(folder, contents))
        stack.callback(inner.close)
        return LatencyEngine(inner, SsdModel(1e6, 1e10, LognormalLatency(10)))


@native
class TestInnerClosedFirst(EngineContract):
    """A wrapper keeps what it wraps."""

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        inner = UringEngine(write_files(folder, contents))
        wrapped = MonitoredEngine(inner)
        inner.close()
        outer = NativeFaultEngine(wrapped, [])
        wrapped.close()
        return outer


def deal(content: ByteArray, n_files: int, stripe_bytes: int) -> list[ByteArray]:
    """The contents of the files of a striped store."""
    stripes = [content[at : at + stripe_bytes] for at in range(0, len(content), stripe_bytes)]
    nothing = [np.empty(0, np.uint8)]
    return [np.concatenate(nothing + stripes[number::n_files]) for number in range(n_files)]


@native
class TestStriped(EngineContract):
    n_files = 1

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        paths = write_files(folder, deal(contents[0], 3, STRIPE_BYTES))
        inner = [UringEngine([path]) for path in paths]
        for engine in inner:
            stack.callback(engine.close)
        return StripedEngine(inner, STRIPE_BYTES)


@native
class TestStripedOverSeveralKinds(EngineContract):
    n_files = 1

    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        shares = deal(contents[0], 3, STRIPE_BYTES)
        paths = write_files(folder, shares)
        kinds = [UringEngine([paths[0]]), NativeFileEngine([paths[1]]), NativeMemoryEngine([shares[2]])]
        for engine in kinds:
            stack.callback(engine.close)
        return StripedEngine(kinds, STRIPE_BYTES)
