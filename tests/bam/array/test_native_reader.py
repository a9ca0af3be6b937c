"""The native reader: the contract, counts that a plain model predicts, threads, faults, time-outs."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_contract import ReaderContract

import bam
from bam.array.gather_model import GatherModel
from bam.array.native_reader import NativeReader
from bam.cache.host import HostCache
from bam.cache.reference import ReferenceCache
from bam.config import PolicyKind, StoreConfig
from bam.layout import Layout
from bam.native import available
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine
from bam.storage.file import NativeFileEngine
from bam.storage.memory import NativeMemoryEngine
from bam.storage.uring import UringEngine

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")

PAGE = 512


class NativeContract(ReaderContract):
    def memory_engine(self, files, alignment):
        return NativeMemoryEngine(files, alignment)

    def cache(self, config):
        return HostCache(config.cache_lines, config.page_bytes, config.policy)

    def reader(self, layout, engine, cache, config):
        return NativeReader(layout, engine, cache, config)


class TestNativeOverUring(NativeContract):
    def file_engine(self, paths):
        return UringEngine(paths)


class TestNativeOverFile(NativeContract):
    def file_engine(self, paths):
        return NativeFileEngine(paths)


@st.composite
def traces(draw: st.DrawFn) -> list[list[int]]:
    n_rows = draw(st.integers(1, 400))
    row = st.integers(0, n_rows - 1)
    run = st.builds(
        lambda first, length: list(range(first, min(n_rows, first + length))), row, st.integers(1, 90)
    )
    piece = st.one_of(run, st.lists(row, max_size=60))
    call = st.lists(piece, max_size=5).map(lambda pieces: [each for part in pieces for each in part])
    return draw(st.lists(call, min_size=1, max_size=4))


@settings(max_examples=60)
@given(
    traces(),
    st.sampled_from([4, 60, 512, 700, 2048]),
    st.sampled_from([1, 3, 33, 200, 2000]),
    st.sampled_from(["random", "clock", "sieve", "look_ahead"]),
    st.sampled_from([512, 2048, 65536]),
    st.sampled_from([0, 512, 3000, 65536]),
    st.integers(0, 2**32),
)
def test_a_plain_model_predicts_every_count(
    trace: list[list[int]],
    row_bytes: int,
    lines: int,
    policy: str,
    merge_bytes: int,
    bridge_bytes: int,
    seed: int,
) -> None:
    data = np.random.default_rng(seed).integers(0, 256, (400, row_bytes), np.uint8)
    kind = PolicyKind(policy)
    layout = Layout.single("memory", 0, data.nbytes)
    model = GatherModel(layout, ReferenceCache(lines, PAGE, kind, 0), row_bytes, merge_bytes, bridge_bytes)
    with NativeMemoryEngine([data.reshape(-1)]) as engine:
        cache = HostCache(lines, PAGE, kind, 0)
        config = StoreConfig(
            page_bytes=PAGE,
            cache_lines=lines,
            policy=kind,
            merge_bytes=merge_bytes,
            bridge_bytes=bridge_bytes,
        )
        reader = NativeReader(layout, engine, cache, config)
        random = np.random.default_rng(seed)
        for ids in trace:
            out = np.zeros((len(ids), row_bytes), np.uint8)
            uses = random.integers(0, 50, len(ids)).astype(np.uint64)
            reader.gather(np.array(ids, np.int64), out, uses)
            np.testing.assert_array_equal(out, data[ids])
            if ids:
                model.gather(ids, uses.tolist())
        counted = reader.stats()
        for name in ("rows", "rows_hit", "rows_joined", "rows_storage", "pages", "hits", "joins", "misses"):
            assert getattr(counted, name) == model.counts[name], name
        assert counted.bypasses == model.counts["bypasses"]
        assert counted.reads == model.counts["reads"]
        assert counted.bytes_read == model.counts["bytes_read"]
        reader.close()


@pytest.fixture
def matrix(tmp_path: Path) -> np.ndarray:
    rows = np.random.default_rng(0).integers(0, 2**63, (3000, 64), np.uint64)
    np.save(tmp_path / "a.npy", rows)
    return rows


def faulty(*rules: FaultRule, reorder: int = 0) -> Callable[[object], object]:
    return lambda engine: NativeFaultEngine(engine, rules, reorder_window=reorder)


def test_counts_do_not_depend_on_when_reads_finish(matrix: np.ndarray, tmp_path: Path) -> None:
    ids = [np.random.default_rng(seed).integers(0, 3000, 2500) for seed in range(4)]
    counts = []
    for delay_us in (0, 300, 2000):
        delay = FaultRule(FaultKind.DELAY, probability=0.2, delay_us=delay_us, seed=delay_us)
        with bam.open_array(
            tmp_path / "a.npy", cache="700 lines", page_bytes=512, wrap=faulty(delay, reorder=16)
        ) as array:
            for each in ids:
                np.testing.assert_array_equal(array[each], matrix[each])
            counts.append(replace(array.stats(), info=None))
    assert counts[0] == counts[1] == counts[2]


def in_threads(*works: Callable[[], None]) -> None:
    """Run all at once; raises what the first failing one raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(work) for work in works]:
            future.result()


def test_threads_join_each_others_reads(matrix: np.ndarray, tmp_path: Path) -> None:
    delay = FaultRule(FaultKind.DELAY, every=1, delay_us=300)
    with bam.open_array(tmp_path / "a.npy", cache="64 lines", wrap=faulty(delay)) as array:

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(20):
                ids = random.integers(900, 1100, 30)
                np.testing.assert_array_equal(array[ids], matrix[ids])

        in_threads(*(partial(read, seed) for seed in range(6)))
        assert array.stats().joins > 0


def test_threads_do_not_share_errors(matrix: np.ndarray, tmp_path: Path) -> None:
    """The file ends inside a page: rows before its end arrive, from that page too, joined or merged."""
    path, last = tmp_path / "a.npy", 1003
    delay = FaultRule(FaultKind.DELAY, every=3, delay_us=200)
    with bam.open_array(path, cache="8 lines", wrap=faulty(delay)) as array:
        os.truncate(path, 128 + (last + 1) * 512)

        def read_present(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(30):
                ids = random.integers(last - 20, last + 1, 12)
                np.testing.assert_array_equal(array[ids], matrix[ids])

        def read_missing() -> None:
            for _ in range(30):
                with pytest.raises(bam.TruncatedFileError):
                    array[[last - 1, last + 1]]

        in_threads(*(partial(read_present, seed) for seed in range(3)), read_missing, read_missing)


def test_truncation_is_told_to_those_who_need_the_bytes(matrix: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    with bam.open_array(path, cache="16 lines") as array:
        os.truncate(path, 128 + 1000 * 512 + 100)
        before, after = np.arange(900, 1000), np.arange(990, 1010)
        np.testing.assert_array_equal(array[before], matrix[before])
        with pytest.raises(bam.TruncatedFileError) as found:
            array[after]
        assert found.value.file == str(path)
        assert found.value.offset <= 128 + 1000 * 512 + 100 <= found.value.offset + found.value.length
        np.testing.assert_array_equal(array[before], matrix[before])


def test_a_disk_that_does_not_answer_is_a_time_out_and_no_hang(matrix: np.ndarray, tmp_path: Path) -> None:
    stall = FaultRule(FaultKind.DELAY, nth=3, delay_us=1_500_000)
    with bam.open_array(tmp_path / "a.npy", timeout_s=0.3, wrap=faulty(stall), page_bytes=512) as array:
        with pytest.raises(bam.WaitTimeout, match="does not answer"):
            array[np.arange(0, 3000, 100)]
        np.testing.assert_array_equal(array[::7], matrix[::7])


def test_a_slow_disk_that_answers_is_no_time_out(matrix: np.ndarray, tmp_path: Path) -> None:
    slow = FaultRule(FaultKind.DELAY, every=1, delay_us=5000)
    ids = np.arange(0, 3000, 10)  # 5 ms each: longer than the time-out in all
    with bam.open_array(
        tmp_path / "a.npy", timeout_s=1, queue_depth=1, page_bytes=512, merge_bytes=512, wrap=faulty(slow)
    ) as array:
        np.testing.assert_array_equal(array[ids], matrix[ids])


def test_time_outs_do_not_add_up(matrix: np.ndarray, tmp_path: Path) -> None:
    stall = FaultRule(FaultKind.DELAY, every=1, delay_us=100_000)
    with bam.open_array(
        tmp_path / "a.npy", timeout_s=0.02, engine="file", queue_depth=4, wrap=faulty(stall)
    ) as array:
        threads = []  # of the process: those that read for a gather stay until its reads have ended
        for _ in range(6):
            with pytest.raises(bam.WaitTimeout):
                array[[0]]
            threads.append(len(os.listdir("/proc/self/task")))
            time.sleep(0.3)
        for _ in range(100):  # a busy machine ends them later
            if len(os.listdir("/proc/self/task")) <= threads[1]:
                break
            time.sleep(0.1)
        assert len(os.listdir("/proc/self/task")) <= threads[1]


def test_buffers_that_cannot_be_had_name_the_settings(matrix: np.ndarray, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with bam.open_array(tmp_path / "a.npy", queue_depth=32768, staging_bytes="1GiB") as array:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**27, before[1]))
        try:
            with pytest.raises(bam.EngineUnavailable, match="Lower staging_bytes"):
                array[0]
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def test_rows_go_where_they_are_wanted(matrix: np.ndarray, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    with bam.open_array(tmp_path / "a.npy", cache="8 lines") as array:
        out = np.zeros((2000, 512), np.uint8)
        ids, places = random.integers(0, 3000, 500), random.permutation(2000)[:500]
        array.gather_rows(ids, out, out_rows=places)
        np.testing.assert_array_equal(out[places].view(np.uint64), matrix[ids])
        untouched = np.ones(2000, bool)
        untouched[places] = False
        assert not out[untouched].any()


@pytest.mark.parametrize("lines", [1, 40, 5000])
def test_counts_of_rows_that_are_longer_than_a_cache(lines: int) -> None:
    row_bytes = 900 * PAGE + 100
    rows = np.random.default_rng(0).integers(0, 256, (4, row_bytes), np.uint8)
    layout = Layout.single("memory", 0, rows.nbytes)
    model = GatherModel(layout, ReferenceCache(lines, PAGE, PolicyKind.CLOCK, 0), row_bytes, 8 * PAGE)
    with bam.open_array(rows, page_bytes=PAGE, merge_bytes=8 * PAGE, cache=f"{lines} lines") as array:
        for ids in ([2], [0, 1, 3], [3, 3, 0], [1]):
            np.testing.assert_array_equal(array[ids], rows[ids])
            model.gather(ids)
        counted = array.stats()
        assert {name: getattr(counted, name) for name in model.counts} == dict(model.counts)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_long_row_takes_little_memory_beside_the_output(tmp_path: Path) -> None:
    row_bytes = 128 * 2**20
    (tmp_path / "row").touch()
    os.truncate(tmp_path / "row", row_bytes)
    out = np.ones((1, row_bytes), np.uint8)
    before = resident_bytes()
    with bam.open_array(tmp_path / "row", dtype="u1", shape=(1, row_bytes), cache="8 lines") as array:
        array.gather([0], out=out)
        assert resident_bytes() - before < row_bytes // 2  # a reader keeps its buffers
    assert not out.any()


def test_arrays_that_share_a_cache_do_not_mix(tmp_path: Path) -> None:
    rows = {name: np.full((200, 128), value, np.float32) for name, value in (("a", 1), ("b", 2), ("c", 3))}
    cache = bam.SharedCache("90 lines")
    arrays = {}
    for name, each in rows.items():
        np.save(tmp_path / f"{name}.npy", each)
        arrays[name] = bam.open_array(tmp_path / f"{name}.npy", cache=cache)
    random = np.random.default_rng(2)
    for _ in range(20):
        for name, array in arrays.items():
            ids = random.integers(0, 200, 50)
            np.testing.assert_array_equal(array[ids], rows[name][ids])
    arrays["a"].close()
    np.testing.assert_array_equal(arrays["b"][:], rows["b"])
    assert arrays["b"].stats().hits > 0
    with pytest.raises(bam.ConfigError, match="page_bytes"):
        bam.open_array(tmp_path / "a.npy", cache=cache, page_bytes=512)
    for array in arrays.values():
        array.close()
    cache.close()


def test_foreseen_pages_stay(matrix: np.ndarray, tmp_path: Path) -> None:
    with bam.open_array(tmp_path / "a.npy", cache="32 lines", policy="look_ahead", page_bytes=512) as array:
        kept = np.arange(0, 20, dtype=np.int64)
        array.gather(kept, next_use=np.full(20, 1000, np.uint64))
        array.note_next_use(kept, np.full(20, 5, np.uint64))
        array.gather(np.arange(100, 2000), next_use=np.full(1900, 10, np.uint64))
        before = array.stats()
        np.testing.assert_array_equal(array.gather(kept, next_use=np.full(20, 2000, np.uint64)), matrix[:20])
        assert (array.stats() - before).misses <= 2  # the last page reaches into row 20
        array.forget_next_uses(3000, 5000)
        array.gather(np.arange(100, 2000), next_use=np.full(1900, 10, np.uint64))
        before = array.stats()
        array.gather(kept)
        assert (array.stats() - before).misses > 10
