"""Arrays on a real GPU: rows bit for bit, streams, failures, time-outs."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import Shape, as_numpy, check_random_batches, open_on, pinned_lines

import bam
from bam.errors import RowOutOfRange, StorageError, WaitTimeout
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine

#: Random batches of each shape; all shapes together make 10,000 of them with 250.
BATCHES = int(os.environ.get("BAM_GPU_BATCHES", "40"))

SHAPES = [
    Shape(5_000, row_bytes, page_bytes, cache_lines, window, policy)
    for row_bytes, page_bytes, cache_lines in (
        (4096, 4096, 1),
        (4096, 4096, 512),
        (512, 4096, 33),
        (1000, 512, 200),
        (5000, 4096, 4000),
        (24, 512, 7),
        (3, 512, 100),
        (2816, 1024, 64),
    )
    for window, policy in (
        (1, "clock"),
        (2, "look_ahead"),
        (5, "sieve"),
        (16, "look_ahead_global"),
        (4, "random"),
    )
]


def rows_of(n_rows: int, row_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(n_rows).integers(0, 256, (n_rows, row_bytes), dtype=np.uint8)


def faults(*rules: FaultRule) -> Any:
    return lambda engine: NativeFaultEngine(engine, rules)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_random_batches_equal_take_with_one_read_in_a_hundred_failing(gpu: Any, shape: Shape) -> None:
    kinds = (FaultKind.ERROR, FaultKind.SHORT_READ)
    wrap = faults(*(FaultRule(kind, probability=0.01) for kind in kinds))
    # so few rows that a batch can do without a failed read
    batch_rows = (
        300 if shape.row_bytes <= shape.page_bytes and shape.page_bytes % shape.row_bytes == 0 else 60
    )
    check_random_batches(gpu, shape, BATCHES, batch_rows, wrap, seed=shape.row_bytes + shape.window)


def test_a_large_batch_from_a_file(gpu: Any, tmp_path: Path) -> None:
    rows = rows_of(20_000, 4096)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    ids = np.random.default_rng(1).integers(0, len(rows), 60_000)
    with open_on(gpu, path, cache_lines=4096, queue_pairs=32, queue_slots=1024, staging="64MiB") as array:
        np.testing.assert_array_equal(as_numpy(array.gather(ids)), rows[ids])
        assert pinned_lines(array) == 0
        assert array.stats().misses > 0


def test_a_cache_of_8_gib(gpu: Any, tmp_path: Path) -> None:
    """Lines, frames and slots beyond 4 GiB; the file is sparse, but for rows all over it."""
    n_rows, row_bytes, path = 2_500_000, 4096, tmp_path / "rows.bin"
    rng = np.random.default_rng(8)
    written = np.sort(rng.permutation(n_rows)[:3000])
    with open(path, "wb") as file:
        file.truncate(n_rows * row_bytes)
        for row in written.tolist():
            file.seek(row * row_bytes)
            file.write(np.full(row_bytes // 8, row, np.uint64).tobytes())
    source = bam.FileSource(path, np.uint64, (n_rows, row_bytes // 8))
    with bam.open_array(source, cache="8GiB", policy="look_ahead_global", device="cuda") as array:
        assert array.info().cache_lines == 2**33 // 4096
        for _ in range(4):
            ids = np.concatenate([rng.choice(written, 20_000), rng.integers(0, n_rows, 20_000)])
            found = array.gather(ids).get()
            expected = np.where(np.isin(ids, written), ids, 0).astype(np.uint64)
            assert (found == expected[:, None]).all()
        assert array.stats().hits > 0


def test_everything_hits_when_it_fits(gpu: Any) -> None:
    rows = rows_of(10_000, 512)
    with open_on(gpu, rows, cache_lines=40_000, page_bytes=512, staging="16MiB", queue_pairs=16) as array:
        array.gather(np.arange(len(rows)))
        before = array.stats()
        ids = np.random.default_rng(1).integers(-len(rows), len(rows), 30_000)
        np.testing.assert_array_equal(as_numpy(array.gather(ids)), rows[ids])
        after = array.stats()
        assert (after.misses, after.reads) == (before.misses, before.reads)


def test_constant_rows(gpu: Any) -> None:
    rows = rows_of(3_000, 600)
    with open_on(gpu, rows, page_bytes=512, cache_lines=64, constant_rows=1_000) as array:
        ids = np.random.default_rng(1).integers(0, 3_000, 5_000)
        np.testing.assert_array_equal(as_numpy(array.gather(ids)), rows[ids])


def test_torch_tensors_on_a_stream_of_their_own() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    rows = np.random.default_rng(0).random((4_000, 128), dtype=np.float32)
    expected = torch.from_numpy(rows).cuda()
    stream = torch.cuda.Stream()
    with bam.open_array(rows, cache="1MiB", device="cuda") as array:
        for number in range(20):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)  # ids are not there yet when the gather is enqueued
                ids = torch.randint(0, 4_000, (3_000,), device="cuda")
                out = torch.full((3_000, 128), -1.0, device="cuda")
                gather = array.begin(ids, out, stream=stream.cuda_stream)
                if number % 2:
                    gather.before(stream.cuda_stream)
                else:
                    assert gather.wait() is out
                same = (out == expected[ids]).all()
            stream.synchronize()
            gather.wait()
            assert bool(same)


def test_threads_share_an_array(gpu: Any) -> None:
    rows = rows_of(4_000, 512)
    wrong: list[int] = []
    with open_on(gpu, rows, page_bytes=512, cache_lines=256, staging="1MiB", queue_pairs=8) as array:

        def work(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(20):
                ids = rng.integers(0, 4_000, 700)
                if not (as_numpy(array.gather(ids)) == rows[ids]).all():
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pinned_lines(array) == 0
    assert not wrong


def test_a_failed_read_says_where_and_the_array_stays_usable(gpu: Any, tmp_path: Path) -> None:
    rows = rows_of(64, 512)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    rule = FaultRule(FaultKind.ERROR, nth=11, errno=errno.EREMOTEIO)
    with open_on(gpu, path, wrap=faults(rule), page_bytes=512, cache_lines=128) as array:
        with pytest.raises(StorageError) as caught:
            array.gather(np.arange(64))
        error = caught.value
        assert (error.errno, error.file) == (errno.EREMOTEIO, str(path))
        assert error.page_id is not None
        assert error.offset == 128 + error.page_id * 512
        np.testing.assert_array_equal(as_numpy(array.gather(np.arange(64))), rows)
        assert pinned_lines(array) == 0


def test_ids_are_checked(gpu: Any) -> None:
    with open_on(gpu, rows_of(10, 512), page_bytes=512, cache_lines=4) as array:
        with pytest.raises(RowOutOfRange) as caught:
            array.gather([1, 10, 2])
        assert (caught.value.row_id, caught.value.n_rows, caught.value.position) == (10, 10, 1)


def test_late_reads_time_out_and_the_array_is_usable_when_they_come(gpu: Any) -> None:
    rows = rows_of(64, 512)
    rule = FaultRule(FaultKind.DELAY, nth=5, delay_us=1_500_000)
    settings = {"page_bytes": 512, "cache_lines": 128, "timeout_s": 0.2}
    with open_on(gpu, rows, wrap=faults(rule), **settings) as array:
        begin = time.monotonic()
        for _ in range(2):
            with pytest.raises(WaitTimeout):
                array.gather(np.arange(32))
        assert time.monotonic() - begin < 1.4
        time.sleep(1.6)
        np.testing.assert_array_equal(as_numpy(array.gather(np.arange(64))), rows)
        assert pinned_lines(array) == 0


def test_a_controller_that_is_gone_times_out(gpu: Any) -> None:
    with open_on(gpu, rows_of(500, 512), page_bytes=512, cache_lines=8, timeout_s=0.2) as array:
        array.store.stop_controller()
        begin = time.monotonic()
        with pytest.raises(WaitTimeout):
            array.gather(np.arange(500))
        assert time.monotonic() - begin < 10
        assert pinned_lines(array) == 0
