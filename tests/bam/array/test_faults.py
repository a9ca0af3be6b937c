"""Arrays over engines that fail: each fault on each read, seen by whoever needs the bytes and nobody else."""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npy_files import npy_bytes, write

import bam
from bam.native import available
from bam.storage.engine import Engine
from bam.storage.fault import FaultEngine, FaultKind, FaultRule, NativeFaultEngine
from bam.storage.native import NativeEngine

READERS = ["reference", "native"] if available() else ["reference"]
ENGINES = ["uring", "file", "memory"]
MATRIX = np.random.default_rng(0).standard_normal((60, 50)).astype(np.float32)
PAGE = 512
#: Rows that share pages, rows alone, a row twice.
IDS = np.array([40, 3, 2, 59, 3, 11])


def with_faults(engine: Engine, rules: Sequence[FaultRule]) -> Engine:
    return (
        NativeFaultEngine(engine, rules) if isinstance(engine, NativeEngine) else FaultEngine(engine, rules)
    )


@pytest.fixture(params=[(reader, engine) for reader in READERS for engine in ENGINES], ids="-".join)
def open_faulty(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    reader, engine = request.param
    path = write(tmp_path, npy_bytes(MATRIX))

    def open_with(*rules: FaultRule, **settings: Any) -> bam.VirtualArray:
        try:
            return bam.open_array(
                path,
                reader=reader,
                engine=engine,
                wrap=partial(with_faults, rules=rules),
                page_bytes=PAGE,
                merge_bytes=2 * PAGE,
                **{"cache": "8 lines", **settings},
            )
        except bam.EngineUnavailable as refusal:
            pytest.skip(str(refusal))

    return open_with


def error_of(array: bam.VirtualArray, ids: object) -> bam.StorageError | None:
    try:
        np.testing.assert_array_equal(array[ids], MATRIX[ids])
    except bam.StorageError as error:
        return error
    return None


@pytest.mark.parametrize("cache", ["1 line", "8 lines"])
def test_an_error_on_each_read_until_success(open_faulty: Any, cache: str) -> None:
    reached_the_caller = 0
    for nth in range(1, 200):
        # From the n-th read on everything fails, until as many reads failed as one row can need.
        rules = [FaultRule(FaultKind.ERROR, nth=nth + more) for more in range(12)]
        with open_faulty(*rules, cache=cache) as array:
            error = error_of(array, IDS)
            if error is None and array.stats().failures == 0:
                break
            if error is not None:
                reached_the_caller += 1
                assert error.errno == errno.EIO
                assert error.page_id is not None
                assert error.page_id * PAGE - PAGE < error.offset - 128 < (error.page_id + 2) * PAGE
                assert error.length > 0
            while error_of(array, IDS) is not None:  # the rest of the twelve
                pass
            np.testing.assert_array_equal(array[:], MATRIX)
    else:
        pytest.fail("the array never became readable")
    assert reached_the_caller > 0


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interruptions_are_not_errors(open_faulty: Any, code: int) -> None:
    rules = [FaultRule(FaultKind.ERROR, probability=0.5, errno=code, seed=3)]
    with open_faulty(*rules) as array:
        np.testing.assert_array_equal(array[:], MATRIX)
        assert array.stats().retries > 0
        assert array.stats().failures == 0


@pytest.mark.parametrize("n_bytes", [0, 1, 100, 511])
def test_short_reads_are_continued(open_faulty: Any, n_bytes: int) -> None:
    with open_faulty(FaultRule(FaultKind.SHORT_READ, every=2, n_bytes=n_bytes)) as array:
        np.testing.assert_array_equal(array[:], MATRIX)
        np.testing.assert_array_equal(array[IDS], MATRIX[IDS])
        assert array.stats().retries > 0
        assert array.stats().failures == 0


@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN])
def test_interruptions_without_end_are(open_faulty: Any, code: int) -> None:
    with open_faulty(FaultRule(FaultKind.ERROR, every=1, errno=code)) as array:
        error = error_of(array, IDS)
        assert error is not None
        assert error.errno == code


def test_everything_at_once_with_threads(open_faulty: Any) -> None:
    rules = [
        FaultRule(FaultKind.ERROR, probability=0.05, seed=1),
        FaultRule(FaultKind.ERROR, probability=0.1, errno=errno.EINTR, seed=2),
        FaultRule(FaultKind.SHORT_READ, probability=0.2, n_bytes=600, seed=3),
        FaultRule(FaultKind.DELAY, probability=0.1, delay_us=200, seed=4),
    ]
    wrong: list[object] = []
    right: list[int] = []

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(25):
            ids = rng.integers(0, 60, 5)
            try:
                if error_of(array, ids) is None:
                    right.append(seed)
            except BaseException as error:
                wrong.append(error)

    with open_faulty(*rules, cache="4 lines") as array:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not wrong
        assert right
