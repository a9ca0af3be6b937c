"""What every row reader promises; subclassed once for each reader."""

from __future__ import annotations

import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bam.array.reader import RowReader
from bam.cache.page_cache import PageCache, PolicyKind
from bam.config import StoreConfig
from bam.errors import ClosedError, FileChangedError, RowOutOfRange, TruncatedFileError
from bam.layout import Layout, striped_file_bytes
from bam.storage.engine import Engine

PAGE = 512
CONFIG = StoreConfig(page_bytes=PAGE, cache_lines=4, merge_bytes=4 * PAGE, timeout_s=30)


@dataclass(frozen=True)
class Store:
    """Rows, and the files that hold them."""

    rows: npt.NDArray[np.uint8]
    layout: Layout
    files: list[bytes]


def make_store(rows: npt.NDArray[np.uint8], layout: Layout) -> Store:
    """Files of random bytes in which the rows lie as the layout says."""
    rng = np.random.default_rng(1)
    content = rows.tobytes()
    runs = list(layout.runs(0, len(content)))
    files = [bytearray() for _ in layout.files]
    for number, file in enumerate(files):
        ends = [run.file_offset + run.length for run in runs if run.file == number]
        file += rng.bytes(max(ends, default=0))
    done = 0
    for run in runs:
        files[run.file][run.file_offset : run.file_offset + run.length] = content[done : done + run.length]
        done += run.length
    return Store(rows, layout, [bytes(file) for file in files])


def random_rows(n_rows: int, row_bytes: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n_rows, row_bytes), np.uint8)


@st.composite
def stores(draw: st.DrawFn) -> Store:
    """Rows smaller than, equal to, larger than and straddling pages, at any offset, in one or many files."""
    row_bytes = draw(st.sampled_from([1, 4, 12, 100, 511, 512, 513, 1024, 1500, 4096]) | st.integers(1, 3000))
    rows = random_rows(draw(st.integers(1, max(2, 40000 // row_bytes // 4))), row_bytes)
    kind = draw(st.sampled_from(["one", "many", "striped"]))
    if kind == "striped":
        n_files = draw(st.integers(1, 4))
        layout = Layout.striped("abcd"[:n_files], draw(st.integers(300, 5000)), rows.nbytes)
        sizes = [len(file) for file in make_store(rows, layout).files]
        assert sizes == striped_file_bytes(rows.nbytes, layout.stripe_bytes, n_files)
    elif kind == "many":
        cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
        parts = np.diff([0, *cuts, len(rows)]) * row_bytes
        offsets = [draw(st.sampled_from([0, 80, 128, 333, 512])) for _ in parts]
        names = [f"file{number}" for number in range(len(parts))]
        layout = Layout.concatenated(list(zip(names, offsets, parts.tolist(), strict=True)))
    else:
        layout = Layout.single("a", draw(st.sampled_from([0, 1, 80, 128, 511, 512, 4096])), rows.nbytes)
    return make_store(rows, layout)


@st.composite
def id_lists(draw: st.DrawFn, n_rows: int) -> npt.NDArray[np.int64]:
    """Unsorted, with duplicates, with runs of neighbours, empty."""
    ids = draw(st.lists(st.integers(0, n_rows - 1), max_size=40))
    start = draw(st.integers(0, n_rows - 1))
    run = list(range(start, min(n_rows, start + draw(st.integers(0, 10)))))
    return np.array(draw(st.permutations(ids)) + run, np.int64)


class ReaderContract(ABC):
    """Subclasses say how to make a reader and what it needs."""

    @abstractmethod
    def memory_engine(self, files: Sequence[bytes], alignment: int) -> Engine: ...

    @abstractmethod
    def file_engine(self, paths: Sequence[Path]) -> Engine: ...

    @abstractmethod
    def cache(self, config: StoreConfig) -> PageCache: ...

    @abstractmethod
    def reader(self, layout: Layout, engine: Engine, cache: PageCache, config: StoreConfig) -> RowReader: ...

    @contextmanager
    def open(self, layout: Layout, engine: Engine, config: StoreConfig = CONFIG) -> Iterator[RowReader]:
        cache = self.cache(config)
        reader = self.reader(layout, engine, cache, config)
        try:
            yield reader
        finally:
            assert all(cache.pins(line_id) == 0 for line_id in range(cache.n_lines)), "a pin leaked"
            reader.close()
            cache.close()
            engine.close()

    @contextmanager
    def open_file(self, folder: Path, rows: npt.NDArray[np.uint8], offset: int = 0) -> Iterator[RowReader]:
        path = folder / "rows"
        path.write_bytes(b"h" * offset + rows.tobytes())
        os.utime(path, ns=(0, 10**18))
        layout = Layout.single(str(path), offset, rows.nbytes)
        with self.open(layout, self.file_engine([path])) as reader:
            yield reader

    @given(stores(), st.sampled_from(PolicyKind), st.integers(1, 40), st.sampled_from([1, 512]), st.data())
    # The subclasses are the executors it warns about; each replays its own examples.
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    def test_rows_are_those_of_the_files(
        self, store: Store, policy: PolicyKind, lines: int, alignment: int, data: st.DataObject
    ) -> None:
        config = replace(CONFIG, policy=policy, cache_lines=lines)
        with self.open(store.layout, self.memory_engine(store.files, alignment), config) as reader:
            for _ in range(3):
                ids = data.draw(id_lists(len(store.rows)))
                next_use = None
                if data.draw(st.booleans()):
                    next_use = data.draw(st.permutations(range(len(ids))))
                    next_use = np.array(next_use, np.uint64)
                out = np.zeros((len(ids), store.rows.shape[1]), np.uint8)
                reader.gather(ids, out, next_use)
                np.testing.assert_array_equal(out, store.rows[ids])
            self.check_counts(reader)

    @staticmethod
    def check_counts(reader: RowReader) -> None:
        stats = reader.stats()
        assert stats.rows == stats.rows_hit + stats.rows_joined + stats.rows_storage
        assert stats.pages == stats.hits + stats.joins + stats.misses
        assert stats.bypasses <= stats.misses
        assert (stats.rows_storage > 0) == (stats.misses > 0)
        assert (stats.retries, stats.failures) == (0, 0)

    @pytest.mark.parametrize("row_bytes", [4, PAGE, 3 * PAGE, 65536])
    def test_a_second_look_reads_nothing(self, row_bytes: int) -> None:
        rows = random_rows(1 if row_bytes > 4096 else 8, row_bytes)
        store = make_store(rows, Layout.single("a", 128, rows.nbytes))
        config = replace(CONFIG, cache_lines=512, merge_bytes=65536)
        ids = np.arange(len(rows))
        with self.open(store.layout, self.memory_engine(store.files, 512), config) as reader:
            out = np.zeros_like(rows)
            reader.gather(ids, out)
            first = reader.stats()
            assert first.bytes_read >= rows.nbytes
            out[:] = 0
            reader.gather(ids, out)
            np.testing.assert_array_equal(out, rows)
            second = reader.stats() - first
            assert (second.gathers, second.rows, second.rows_hit) == (1, len(rows), len(rows))
            assert (second.reads, second.misses, second.bytes_useful) == (0, 0, rows.nbytes)

    def test_one_line_is_enough(self) -> None:
        rows = random_rows(100, 700)
        store = make_store(rows, Layout.single("a", 80, rows.nbytes))
        ids = np.random.default_rng(2).permutation(np.arange(100).repeat(2))
        with self.open(
            store.layout, self.memory_engine(store.files, 1), replace(CONFIG, cache_lines=1)
        ) as reader:
            out = np.zeros((200, 700), np.uint8)
            reader.gather(ids, out)
            np.testing.assert_array_equal(out, rows[ids])

    def test_no_ids_and_no_bytes(self) -> None:
        store = make_store(random_rows(3, 10), Layout.single("a", 0, 30))
        with self.open(store.layout, self.memory_engine(store.files, 1)) as reader:
            reader.gather(np.zeros(0, np.int64), np.zeros((0, 10), np.uint8))
            reader.gather(np.zeros(2, np.int64), np.zeros((2, 0), np.uint8))
            assert reader.stats().reads == 0

    @pytest.mark.parametrize("wrong", [3, -1, 2**62, -(2**63), 2**63 - 1])
    def test_an_id_out_of_range(self, wrong: int) -> None:
        store = make_store(random_rows(3, 10), Layout.single("a", 0, 30))
        with self.open(store.layout, self.memory_engine(store.files, 1)) as reader:
            out = np.zeros((4, 10), np.uint8)
            with pytest.raises(RowOutOfRange) as caught:
                reader.gather(np.array([2, 1, wrong, 0]), out)
            assert (caught.value.row_id, caught.value.n_rows, caught.value.position) == (wrong, 3, 2)
            assert reader.stats().reads == 0
            reader.gather(np.array([2, 1, 0, 0]), out)
            np.testing.assert_array_equal(out, store.rows[[2, 1, 0, 0]])

    @pytest.mark.parametrize("offset", [0, 128])
    def test_a_file_cut_short(self, tmp_path: Path, offset: int) -> None:
        rows = random_rows(40, 100)
        with self.open_file(tmp_path, rows, offset) as reader:
            cut = offset + 2250  # in the middle of row 22 and of its page
            os.truncate(tmp_path / "rows", cut)
            out = np.zeros((2, 100), np.uint8)
            for missing in (22, 23, 39):
                with pytest.raises(TruncatedFileError) as caught:
                    reader.gather(np.array([3, missing]), out)
                error = caught.value
                assert (error.file, error.errno) == (str(tmp_path / "rows"), errno.ENODATA)
                assert error.page_id in {missing * 100 // PAGE, (missing * 100 + 99) // PAGE}
                assert error.offset + error.length > cut
            # All that is still there can be read, also the rows in the page that is cut.
            for row_id in range(22):
                reader.gather(np.array([row_id]), out[:1])
                np.testing.assert_array_equal(out[0], rows[row_id])

    def test_a_file_rewritten(self, tmp_path: Path) -> None:
        rows = random_rows(40, 100)
        with self.open_file(tmp_path, rows) as reader:
            out = np.zeros((1, 100), np.uint8)
            reader.gather(np.array([0]), out)
            (tmp_path / "rows").write_bytes((rows ^ 255).tobytes())
            with pytest.raises(FileChangedError) as caught:
                reader.gather(np.array([39]), out)
            assert (caught.value.file, caught.value.errno) == (str(tmp_path / "rows"), errno.ESTALE)
            assert caught.value.page_id in {3900 // PAGE, 3999 // PAGE}
            reader.gather(np.array([0]), out)  # from the cache: as it was when the file was opened
            np.testing.assert_array_equal(out[0], rows[0])

    def test_a_file_replaced_by_another(self, tmp_path: Path) -> None:
        rows = random_rows(40, 100)
        with self.open_file(tmp_path, rows) as reader:
            (tmp_path / "other").write_bytes((rows ^ 255).tobytes())
            (tmp_path / "other").rename(tmp_path / "rows")
            out = np.zeros_like(rows)
            reader.gather(np.arange(40), out)  # the file that was opened is still there
            np.testing.assert_array_equal(out, rows)

    def test_many_threads(self) -> None:
        rows = random_rows(300, 200)
        store = make_store(rows, Layout.single("a", 80, rows.nbytes))
        wrong: list[object] = []

        def gather(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                for _ in range(20):
                    ids = rng.integers(0, 300, 30)
                    out = np.zeros((30, 200), np.uint8)
                    reader.gather(ids, out)
                    if not np.array_equal(out, rows[ids]):
                        wrong.append(seed)
            except BaseException as error:
                wrong.append(error)

        with self.open(store.layout, self.memory_engine(store.files, 1)) as reader:
            threads = [threading.Thread(target=gather, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not wrong
            assert reader.stats().rows == 4 * 20 * 30
            self.check_counts(reader)

    def test_closed(self) -> None:
        store = make_store(random_rows(3, 10), Layout.single("a", 0, 30))
        with self.open(store.layout, self.memory_engine(store.files, 1)) as reader:
            assert reader.info().engine == "memory"
            reader.close()
            reader.close()
            with pytest.raises(ClosedError):
                reader.gather(np.zeros(1, np.int64), np.zeros((1, 10), np.uint8))
            with pytest.raises(ClosedError):
                reader.stats()
