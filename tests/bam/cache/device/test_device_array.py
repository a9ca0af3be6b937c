"""Arrays on a GPU, with the kernels on the host: rows, failures, time-outs, windows."""

from __future__ import annotations

import errno
import gc
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import Shape, as_numpy, check_random_batches, open_on, pinned_lines, read_items
from emulated_gpu import EmulatedGpu
from hypothesis import given, settings
from hypothesis import strategies as st

from bam.cache.device.gpu import DeviceTensor, Grid
from bam.cache.device.reads import RowPart, RowRequest
from bam.cache.device.structs import FLIGHT
from bam.errors import ClosedError, ConfigError, RowOutOfRange, StorageError, TruncatedFileError, WaitTimeout
from bam.native import available
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from bam.storage.latency import LatencyEngine, LognormalLatency, SsdModel

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def rows_of(n_rows: int, row_bytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(n_rows + row_bytes).integers(0, 256, (n_rows, row_bytes), dtype=np.uint8)


def faults(*rules: FaultRule) -> Any:
    return lambda engine: NativeFaultEngine(engine, rules)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    row_bytes=st.sampled_from([1, 4, 24, 128, 512, 1000, 4096, 5000]),
    page_bytes=st.sampled_from([512, 1024, 4096]),
    cache_lines=st.sampled_from([1, 2, 7, 33, 200]),
    window=st.sampled_from([1, 2, 5, 16]),
    policy=st.sampled_from(["clock", "sieve", "random", "look_ahead", "look_ahead_global"]),
)
def test_random_batches_equal_take_with_one_read_in_a_hundred_failing(
    row_bytes: int, page_bytes: int, cache_lines: int, window: int, policy: str
) -> None:
    shape = Shape(120, row_bytes, page_bytes, cache_lines, window, policy)
    wrap = faults(
        FaultRule(FaultKind.ERROR, probability=0.01), FaultRule(FaultKind.SHORT_READ, probability=0.01)
    )
    check_random_batches(EmulatedGpu(), shape, 4, 40, wrap, seed=row_bytes + window)


def test_neighbouring_pages_are_read_together() -> None:
    """While the first read takes its time, the others of the batch come to the queues."""
    rows = rows_of(64, 512)
    slow = SsdModel(1e6, 1e12, LognormalLatency(30_000))
    with open_on(
        EmulatedGpu(),
        rows,
        wrap=lambda engine: LatencyEngine(engine, slow),
        page_bytes=512,
        cache_lines=128,
        staging="256KiB",
        queue_slots=128,
        read_depth=1,
        merge_bytes="8KiB",
    ) as array:
        np.testing.assert_array_equal(array.gather(np.arange(64)), rows)
        counted = array.store.controller_stats()
    assert counted.commands_read == 64
    assert counted.commands_per_read > 4
    assert counted.bytes_useful == counted.bytes_read == rows.nbytes


def test_what_was_read_is_found_again() -> None:
    rows = rows_of(64, 512)
    with open_on(EmulatedGpu(), rows, page_bytes=512, cache_lines=128) as array:
        ids = np.arange(64)
        array.gather(ids)
        first = array.stats()
        assert (first.misses, first.hits, first.reads) == (64, 0, 64)
        np.testing.assert_array_equal(
            array.gather(ids[::-1].reshape(8, 8)), rows[ids[::-1]].reshape(8, 8, 512)
        )
        second = array.stats()
        assert (second.misses, second.hits, second.page_hit_rate) == (64, 64, 0.5)
        assert array.info().cache_state_bytes <= 24 * array.info().cache_lines


def test_a_page_is_read_once_for_rows_that_share_it() -> None:
    rows = rows_of(64, 64)
    with open_on(EmulatedGpu(), rows, page_bytes=4096, cache_lines=4, staging="1MiB") as array:
        np.testing.assert_array_equal(array.gather(np.arange(64)), rows)
        counted = array.stats()
        assert (counted.misses, counted.joins, counted.reads) == (1, 63, 1)


def test_rows_go_to_the_callers_memory_and_ids_may_be_lists() -> None:
    rows = rows_of(50, 300)
    out = np.zeros((3, 300), np.uint8)
    with open_on(EmulatedGpu(), rows, page_bytes=512, cache_lines=8) as array:
        assert array.gather([4, -1, 4], out=out) is out
        np.testing.assert_array_equal(out, rows[[4, -1, 4]])
        assert as_numpy(array.gather([])).shape == (0, 300)
        with pytest.raises(ConfigError, match="out"):
            array.gather([1], out=np.zeros((2, 300), np.uint8))
        with pytest.raises(ConfigError, match="integers"):
            array.gather([1.5])


def test_constant_rows_are_not_looked_up() -> None:
    rows = rows_of(100, 600)
    with open_on(EmulatedGpu(), rows, page_bytes=512, cache_lines=64, constant_rows=30) as array:
        before = array.stats()
        ids = np.array([0, 29, 30, 99, 5])
        np.testing.assert_array_equal(array.gather(ids), rows[ids])
        after = array.stats()
        assert after.constant_rows - before.constant_rows == 3
        assert after.pages - before.pages <= 2 * 3


def test_arrays_of_one_row_size_are_gathered_in_one_launch() -> None:
    """Two arrays lie in one store, one behind the other; the output rows of the second are permuted."""
    rows = rows_of(90, 100)
    gpu = EmulatedGpu()
    with open_on(gpu, rows, page_bytes=512, cache_lines=16) as array:
        ids = np.array([3, 39, 0, 49, 7])
        outs = [np.zeros((2, 100), np.uint8), np.zeros((4, 100), np.uint8)]
        tensors = [DeviceTensor(out.ctypes.data, out.shape, out.dtype, out) for out in outs]
        places = np.array([3, 0, 2])
        parts = (
            RowPart(0, 40, 0, tensors[0]),
            RowPart(2, 50, 40 * 100, tensors[1], gpu.vector(places, np.int64)),
        )
        gpu.launches.clear()
        array.store.wait(array.store.begin(RowRequest(gpu.vector(ids, np.int64), 100, parts)))
        assert gpu.launches.count("bam_gather_rows") == 1
        np.testing.assert_array_equal(outs[0], rows[[3, 39]])
        np.testing.assert_array_equal(outs[1][places], rows[[40, 89, 47]])
        assert not outs[1][1].any()
        wrong = gpu.vector(np.array([3, 39, 0, 50, 7]), np.int64)
        running = array.store.begin(RowRequest(wrong, 100, parts))
        with pytest.raises(RowOutOfRange) as caught:
            array.store.wait(running)
        assert (caught.value.row_id, caught.value.n_rows, caught.value.position) == (50, 50, 1)


def test_an_id_that_is_no_row() -> None:
    with open_on(EmulatedGpu(), rows_of(10, 512), page_bytes=512, cache_lines=4) as array:
        for wrong in (10, -11, 2**62):
            with pytest.raises(RowOutOfRange) as caught:
                array.gather([1, wrong, 2])
            assert (caught.value.row_id, caught.value.n_rows, caught.value.position) == (wrong, 10, 1)
        assert pinned_lines(array) == 0


def test_a_failed_read_says_where_and_the_array_stays_usable(tmp_path: Path) -> None:
    rows = rows_of(64, 512)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    rule = FaultRule(FaultKind.ERROR, nth=11, errno=errno.EREMOTEIO)
    with open_on(EmulatedGpu(), path, wrap=faults(rule), page_bytes=512, cache_lines=128) as array:
        with pytest.raises(StorageError) as caught:
            array.gather(np.arange(64))
        error = caught.value
        assert (error.errno, error.file, error.length) == (errno.EREMOTEIO, str(path), 512)
        assert error.page_id is not None
        assert error.offset == 128 + error.page_id * 512
        assert pinned_lines(array) == 0
        np.testing.assert_array_equal(array.gather(np.arange(64)), rows)
        assert array.stats().reads == 65


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    rows = rows_of(64, 512)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    with open_on(EmulatedGpu(), path, page_bytes=512, cache_lines=128) as array:
        with path.open("r+b") as file:
            file.truncate(128 + 40 * 512)
        np.testing.assert_array_equal(array.gather([3, 39]), rows[[3, 39]])
        with pytest.raises(TruncatedFileError):
            array.gather([3, 45])


def test_reads_that_never_come_back_time_out_and_the_array_is_usable_when_they_do() -> None:
    rows = rows_of(64, 512)
    rule = FaultRule(FaultKind.DELAY, nth=5, delay_us=1_500_000)
    with open_on(
        EmulatedGpu(), rows, wrap=faults(rule), page_bytes=512, cache_lines=128, timeout_s=0.2
    ) as array:
        begin = time.monotonic()
        with pytest.raises(WaitTimeout):
            array.gather(np.arange(32))
        with pytest.raises(WaitTimeout):
            array.gather(np.arange(32))
        assert time.monotonic() - begin < 1.4
        assert pinned_lines(array) == 0
        time.sleep(1.6)
        np.testing.assert_array_equal(array.gather(np.arange(64)), rows)


def test_a_controller_that_is_gone_times_out() -> None:
    with open_on(EmulatedGpu(), rows_of(64, 512), page_bytes=512, cache_lines=8, timeout_s=0.2) as array:
        array.store.stop_controller()
        begin = time.monotonic()
        # more rows than all queues hold: submission has to give up, too
        with pytest.raises(WaitTimeout):
            array.gather(np.arange(64))
        assert time.monotonic() - begin < 10
        assert pinned_lines(array) == 0


def test_rows_larger_than_the_staging_memory() -> None:
    with (
        open_on(EmulatedGpu(), rows_of(4, 5000), page_bytes=512, staging="4KiB", flights=1) as array,
        pytest.raises(ConfigError, match="staging"),
    ):
        array.gather([1])


def test_a_closed_array_says_so() -> None:
    array = open_on(EmulatedGpu(), rows_of(4, 512), page_bytes=512, cache_lines=4)
    array.close()
    array.close()
    with pytest.raises(ClosedError):
        array.gather([1])


def test_closing_frees_memory_whoever_still_holds_a_part() -> None:
    gpu = EmulatedGpu()
    rows = rows_of(64, 512)
    array = open_on(gpu, rows, page_bytes=512, cache_lines=64, lone_pages=4, constant_rows=8)
    info, view, out = array.info(), array.view(), np.zeros_like(rows)
    gather = array.begin(np.arange(64), out)
    assert gpu.bytes_in_use() > 1 << 20
    array.close()
    assert gpu.bytes_in_use() < 8192  # the view's own
    assert array.info() == info
    np.testing.assert_array_equal(gather.wait(), rows)
    for after in (view.before_kernel, array.view):
        with pytest.raises(ClosedError):
            after()


@pytest.mark.parametrize("broken", ["wrap", "dtype", "staging"])
def test_a_gpu_is_closed_when_opening_fails(broken: str) -> None:
    gpu, arguments = EmulatedGpu(), {}
    rows: Any = rows_of(4, 512)
    if broken == "wrap":
        arguments["wrap"] = lambda engine: (_ for _ in ()).throw(ConfigError("wrap", 1, "2"))
    elif broken == "dtype":
        rows = rows.view(">u4")
    else:
        arguments["staging"] = 1
    with pytest.raises(ConfigError):
        open_on(gpu, rows, **arguments)
    assert gpu.closed


def test_a_set_whose_lines_are_all_pinned_is_read_around() -> None:
    rows = rows_of(64, 512)
    with open_on(EmulatedGpu(), rows, page_bytes=512, cache_lines=2) as array:
        cache = array.store.cache
        assert cache is not None
        array.gather([0, 1])
        words = array.store.gpu.read(cache.words.address, cache.words.n_bytes).view(np.uint64)
        array.store.gpu.write(cache.words.address, words + np.uint64(4))
        np.testing.assert_array_equal(array.gather(np.arange(64)), rows)
        assert array.stats().bypasses == 62


@pytest.mark.parametrize("cache_lines", [1, 5, 300])
@pytest.mark.parametrize("lone_pages", [1, 40])
def test_kernels_read_items_by_themselves(cache_lines: int, lone_pages: int) -> None:
    items = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    gpu = EmulatedGpu()
    settings = {"page_bytes": 512, "cache_lines": cache_lines, "lone_pages": lone_pages}
    with open_on(gpu, items, **settings) as array:
        indices = np.random.default_rng(1).integers(0, len(items), 600).astype(np.uint64)
        found, view = read_items(gpu, array, indices)
        np.testing.assert_array_equal(found, items[indices])
        view.check()
        assert pinned_lines(array) == 0
        ids = np.arange(2_000)
        np.testing.assert_array_equal(array.gather(ids), items[ids])


def test_a_kernels_failed_read_is_told_to_the_host() -> None:
    items = np.arange(2_000, dtype=np.uint32)
    gpu = EmulatedGpu()
    rule = FaultRule(FaultKind.ERROR, nth=2, errno=errno.EREMOTEIO)
    with open_on(
        gpu, items, wrap=faults(rule), page_bytes=512, cache_lines=64, lone_pages=8, queue_pairs=1
    ) as array:
        indices = np.arange(0, 2_000, 100).astype(np.uint64)
        found, view = read_items(gpu, array, indices)
        assert (found != items[indices]).sum() <= 2
        with pytest.raises(StorageError) as caught:
            view.check()
        assert caught.value.errno == errno.EREMOTEIO
        view.check()
        assert pinned_lines(array) == 0
        np.testing.assert_array_equal(read_items(gpu, array, indices)[0], items[indices])


def test_a_view_is_there_for_kernels_of_other_streams() -> None:
    gpu = EmulatedGpu()
    with open_on(gpu, rows_of(4, 512), page_bytes=512, cache_lines=4, lone_pages=1) as array:
        assert array.view().address not in gpu.unwaited


def test_a_kernel_may_read_what_a_gather_has_only_begun_to_read() -> None:
    """Here each launch runs to its end: a kernel waits in vain for what was not launched before it."""
    items = np.arange(2_000, dtype=np.uint32)
    gpu = EmulatedGpu()
    settings = {"page_bytes": 512, "cache_lines": 64, "lone_pages": 8, "timeout_s": 1.0}
    with open_on(gpu, items, **settings) as array:
        gather = array.begin(np.arange(2_000))
        array.view().before_kernel()
        found, view = read_items(gpu, array, np.arange(2_000).astype(np.uint64))
        view.check()
        np.testing.assert_array_equal(found, items)
        np.testing.assert_array_equal(gather.wait(), items)


def test_the_slot_of_a_late_read_is_used_again() -> None:
    """There is one slot: lost with the first read, there would be no second one."""
    items = np.arange(2_000, dtype=np.uint32)
    gpu = EmulatedGpu()
    rule = FaultRule(FaultKind.DELAY, nth=1, delay_us=600_000)
    settings = {"page_bytes": 512, "cache_lines": 64, "lone_pages": 1, "timeout_s": 0.2}
    with open_on(gpu, items, wrap=faults(rule), **settings) as array:
        for _ in range(2):  # the second kernel finds the slot taken
            _, view = read_items(gpu, array, np.array([7], np.uint64))
            with pytest.raises(WaitTimeout):
                view.check()
        time.sleep(0.6)
        indices = np.arange(0, 2_000, 50).astype(np.uint64)
        found, view = read_items(gpu, array, indices)
        view.check()
        np.testing.assert_array_equal(found, items[indices])
        assert pinned_lines(array) == 0


def test_a_piece_that_failed_is_never_reported_as_read() -> None:
    """Its completion may come after it was given up and before the report: its result says success then."""
    gpu = EmulatedGpu()
    with open_on(gpu, rows_of(8, 512), page_bytes=512, cache_lines=64) as array:
        gather = array.begin(np.arange(8))
        flight = gpu.read(array.store.structure.flights, FLIGHT.itemsize).view(FLIGHT).copy()
        flight["first_failed"] = 5
        gpu.write(array.store.structure.flights, flight)
        with pytest.raises(WaitTimeout):
            gather.wait()


def test_gathers_that_nobody_waits_for_are_let_go() -> None:
    rows = rows_of(64, 512)
    gpu = EmulatedGpu()
    with open_on(gpu, rows, page_bytes=512, cache_lines=64) as array:
        gathers = [array.begin(np.arange(64)) for _ in range(5)]
        for gather in gathers:
            gather.before(0)
        assert array.stats().gathers < 5
        array.begin(np.arange(3)).before(0)
        assert array.stats().gathers == 5
        for gather in gathers:
            np.testing.assert_array_equal(gather.wait(), rows)


@pytest.mark.parametrize(("row_bytes", "pieces_per_warp"), [(2048, 32), (4096, 8)])
def test_there_is_a_warp_for_every_share_of_the_pieces(row_bytes: int, pieces_per_warp: int) -> None:
    gpu = EmulatedGpu()
    gpu.grids["bam_gather_rows"] = gpu.grids["bam_submit_rows"] = Grid(64, 64)
    with open_on(gpu, rows_of(40, row_bytes), page_bytes=4096, cache_lines=64, staging="1MiB") as array:
        array.gather(np.arange(40))
    blocks = {kernel: grid.blocks for kernel, grid in gpu.sizes}
    needed = -(-40 * (32 // pieces_per_warp) // 64)
    assert blocks["bam_gather_rows"] == needed
    assert blocks["bam_submit_rows"] == 1 + needed  # one drains


def test_views_are_asked_for_at_opening() -> None:
    with (
        open_on(EmulatedGpu(), rows_of(4, 512), page_bytes=512, cache_lines=4) as array,
        pytest.raises(ConfigError, match="lone_pages"),
    ):
        array.view()


def test_an_array_that_is_dropped_ends_its_threads() -> None:
    """Without close(): else they would go on in memory that is gone."""
    before = len(os.listdir("/proc/self/task"))
    rows = np.arange(4096, dtype=np.uint64).reshape(-1, 64)
    array = open_on(EmulatedGpu(), rows, page_bytes=512, cache_lines=8, host_threads=3)
    np.testing.assert_array_equal(as_numpy(array.gather([3, 5])), rows[[3, 5]])
    assert len(os.listdir("/proc/self/task")) == before + 3
    del array
    gc.collect()
    assert len(os.listdir("/proc/self/task")) == before
