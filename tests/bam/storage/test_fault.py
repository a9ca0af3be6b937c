"""Injected faults: what happens, when, and the same in Python and C++."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from engine_contract import random_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.errors import ConfigError
from bam.native import available
from bam.storage import (
    FaultCount,
    FaultEngine,
    FaultKind,
    FaultRule,
    MemoryEngine,
    NativeFaultEngine,
    NativeMemoryEngine,
    ReadSpan,
)
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import ByteArray

native = pytest.mark.skipif(not available(), reason="the native library was not built")

CONTENTS = [random_bytes(4000, 1), random_bytes(4000, 2)]
Faulty = FaultEngine | NativeFaultEngine


def in_python(rules: Sequence[FaultRule]) -> Faulty:
    return FaultEngine(MemoryEngine(CONTENTS), rules)


def in_cpp(rules: Sequence[FaultRule]) -> Faulty:
    return NativeFaultEngine(NativeMemoryEngine(CONTENTS), rules)


@pytest.fixture(params=[in_python, pytest.param(in_cpp, marks=native)])
def make(request: pytest.FixtureRequest) -> Callable[[Sequence[FaultRule]], Faulty]:
    found: Callable[[Sequence[FaultRule]], Faulty] = request.param
    return found


def read(engine: Faulty, n_reads: int, length: int = 100, file: int = 0) -> tuple[list[int], ByteArray]:
    memory = aligned_buffer(n_reads * length).reshape(n_reads, length)
    results = engine.read([ReadSpan(file, i * length, length) for i in range(n_reads)], list(memory))
    return results, memory


def test_nth(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.ERROR, nth=3, errno=errno.ENXIO)]) as engine:
        results, memory = read(engine, 5)
        assert results == [100, 100, -errno.ENXIO, 100, 100]
        assert (memory[4] == CONTENTS[0][400:500]).all()
        assert read(engine, 5)[0] == [100] * 5
        assert engine.counts() == [FaultCount(seen=10, injected=1)]


def test_every_up_to_a_limit(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.ERROR, every=2, errno=errno.EIO, max_injections=2)]) as engine:
        assert read(engine, 7)[0] == [100, -errno.EIO, 100, -errno.EIO, 100, 100, 100]
        assert engine.counts() == [FaultCount(7, 2)]


def test_only_one_file(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.ERROR, nth=2, file=1)]) as engine:
        assert read(engine, 3, file=0)[0] == [100] * 3
        assert read(engine, 3, file=1)[0] == [100, -errno.EIO, 100]


def test_short_read_leaves_wrong_bytes_behind_it(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.SHORT_READ, nth=1, n_bytes=30)]) as engine:
        results, memory = read(engine, 2)
        assert results == [30, 100]
        assert (memory[0, :30] == CONTENTS[0][:30]).all()
        assert (memory[0, 30:] == 0xA5).all()


def test_corruption_changes_bytes(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.CORRUPT, nth=2, n_bytes=1, seed=5)]) as engine:
        results, memory = read(engine, 3)
        assert results == [100] * 3
        differing = [int((memory[i] != CONTENTS[0][i * 100 : i * 100 + 100]).sum()) for i in range(3)]
        assert differing == [0, 1, 0]


def test_delay_keeps_the_bytes(make: Callable[[Sequence[FaultRule]], Faulty]) -> None:
    with make([FaultRule(FaultKind.DELAY, every=2, delay_us=2000)]) as engine:
        results, memory = read(engine, 4)
        assert results == [100] * 4
        assert (memory.ravel() == CONTENTS[0][:400]).all()
        assert engine.counts() == [FaultCount(4, 2)]


@native
@pytest.mark.parametrize("window", [2, 5, 1000])
def test_reordering_keeps_every_read(window: int) -> None:
    with NativeFaultEngine(NativeMemoryEngine(CONTENTS), [], reorder_window=window, reorder_seed=9) as engine:
        results, memory = read(engine, 40)
        assert results == [100] * 40
        assert (memory.ravel() == CONTENTS[0]).all()


@native
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_python_and_cpp_do_the_same(data: st.DataObject) -> None:
    def rule(kind: FaultKind) -> FaultRule:
        when = data.draw(st.sampled_from(["nth", "every", "probability"]))
        chosen: dict[str, object] = {when: data.draw(st.floats(0, 1)) if when == "probability" else None}
        if when != "probability":
            chosen[when] = data.draw(st.integers(1, 6))
        return FaultRule(
            kind,
            **chosen,  # type: ignore[arg-type]
            errno=data.draw(st.sampled_from([errno.EIO, errno.EINTR])),
            n_bytes=data.draw(st.integers(0, 120)),
            max_injections=data.draw(st.sampled_from([None, 0, 1, 4])),
            file=data.draw(st.sampled_from([None, 0, 1])),
            seed=data.draw(st.integers(-5, 2**64)),
        )

    kinds = [FaultKind.ERROR, FaultKind.SHORT_READ, FaultKind.CORRUPT]
    rules = [rule(kind) for kind in data.draw(st.lists(st.sampled_from(kinds), max_size=4))]
    with in_python(rules) as python, in_cpp(rules) as cpp:
        for file in (0, 1, 0):
            (results, memory), (same_results, same_memory) = (
                read(python, 20, file=file),
                read(cpp, 20, file=file),
            )
            assert results == same_results
            assert np.array_equal(memory, same_memory)
        assert python.counts() == cpp.counts()


@pytest.mark.parametrize(
    "settings_given",
    [
        {},
        {"nth": 1, "every": 2},
        {"nth": 0},
        {"every": 0},
        {"nth": 1, "errno": 0},
    ],
)
def test_rules_that_cannot_be(settings_given: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        FaultRule(FaultKind.ERROR, **settings_given)  # type: ignore[arg-type]
