"""What every engine promises, as one suite; each engine's test subclasses it."""

from __future__ import annotations

import errno
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bam.errors import ClosedError, ConfigError, ForkedError
from bam.storage.buffers import aligned_buffer
from bam.storage.engine import ByteArray, Engine, ReadSpan

#: Sizes of the files in :class:`EngineContract`: whole units, none, and not whole.
FILE_BYTES = (65536, 0, 40961)
GUARD = 0x5C


def random_bytes(n_bytes: int, seed: int) -> ByteArray:
    return np.random.default_rng(seed).integers(0, 256, n_bytes, dtype=np.uint8)


def write_files(folder: Path, contents: Sequence[ByteArray]) -> list[str]:
    paths = []
    for number, content in enumerate(contents):
        path = folder / f"data-{number}.bin"
        content.tofile(path)
        paths.append(str(path))
    return paths


def unit_of(engine: Engine, file: int = 0) -> int:
    """What offsets, lengths and buffers of reads are multiples of."""
    return max(engine.files[file].offset_alignment, engine.files[file].memory_alignment)


def read_one(engine: Engine, span: ReadSpan) -> tuple[int, ByteArray]:
    """Result and bytes of a read; checks that nothing was written beside its buffer."""
    page = 4096
    memory = aligned_buffer(span.length + 2 * page)
    memory[:] = GUARD
    (result,) = engine.read([span], [memory[page : page + span.length]])
    assert (memory[:page] == GUARD).all()
    assert (memory[page + span.length :] == GUARD).all()
    return result, memory[page : page + span.length]


def in_child(check: Callable[[], None]) -> int:
    """Runs `check` in a forked child; its exit status: 0 when it returned, 1 when it raised."""
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class EngineContract(ABC):
    """Subclasses say how to open their engine over given contents."""

    n_files = len(FILE_BYTES)

    @abstractmethod
    def open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        """An open engine; what it needs is closed by `stack`, after it."""

    @pytest.fixture(scope="class")
    @classmethod
    def contents(cls) -> list[ByteArray]:
        return [random_bytes(n_bytes, seed) for seed, n_bytes in enumerate(FILE_BYTES[: cls.n_files])]

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, contents: list[ByteArray], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
        """Shared by the tests that leave the engine as it is."""
        with ExitStack() as stack:
            yield cls()._open(stack, tmp_path_factory.mktemp("shared"), contents)

    @pytest.fixture
    def own(self, contents: list[ByteArray], tmp_path: Path) -> Iterator[Engine]:
        """For tests that close or change it."""
        with ExitStack() as stack:
            yield self._open(stack, tmp_path, contents)

    def _open(self, stack: ExitStack, folder: Path, contents: Sequence[ByteArray]) -> Engine:
        return stack.enter_context(self.open(stack, folder, contents))

    def test_files_say_their_size(self, opened: Engine, contents: list[ByteArray]) -> None:
        assert [file.bytes for file in opened.files] == [len(content) for content in contents]
        for file in opened.files:
            assert file.path
            for alignment in (file.offset_alignment, file.memory_alignment):
                assert alignment >= 1
                assert alignment & (alignment - 1) == 0

    def test_info_names_the_path_that_runs(self, opened: Engine) -> None:
        info = opened.info()
        assert info.engine
        assert info.implementation in ("native", "python")
        assert info.direct == all(file.direct for file in opened.files)

    # One test for every engine: examples do not depend on the class, and none are stored.
    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.differing_executors],
    )
    @given(data=st.data())
    def test_any_aligned_span(self, opened: Engine, contents: list[ByteArray], data: st.DataObject) -> None:
        file = data.draw(st.integers(0, self.n_files - 1))
        unit = unit_of(opened, file)
        last = FILE_BYTES[file] // unit + 3
        first = data.draw(st.integers(0, last))
        span = ReadSpan(file, first * unit, data.draw(st.integers(0, min(last, 70_000 // unit))) * unit)
        result, found = read_one(opened, span)
        expected = contents[file][span.offset : span.offset + span.length]
        assert result == len(expected)
        assert (found[:result] == expected).all()

    def test_past_the_end_there_is_nothing(self, opened: Engine) -> None:
        unit = unit_of(opened)
        for offset in (FILE_BYTES[0], FILE_BYTES[0] + unit, 2**40):
            assert read_one(opened, ReadSpan(0, offset, unit))[0] == 0

    def test_more_spans_than_any_queue_holds(self, opened: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(opened)
        spans = [ReadSpan(0, i * 7919 % (FILE_BYTES[0] // unit) * unit, unit) for i in range(700)]
        memory = aligned_buffer(len(spans) * unit)
        results = opened.read(spans, list(memory.reshape(len(spans), unit)))
        assert results == [unit] * len(spans)
        for i, span in enumerate(spans):
            assert (memory[i * unit : (i + 1) * unit] == contents[0][span.offset : span.offset + unit]).all()

    def test_nothing_to_read(self, opened: Engine) -> None:
        assert opened.read([], []) == []

    def test_a_file_that_is_not_there(self, opened: Engine) -> None:
        assert read_one(opened, ReadSpan(self.n_files, 0, unit_of(opened)))[0] == -errno.EBADF

    def test_a_bad_read_does_not_harm_its_neighbours(self, opened: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(opened)
        memory = aligned_buffer(3 * unit).reshape(3, unit)
        spans = [ReadSpan(0, 0, unit), ReadSpan(self.n_files, 0, unit), ReadSpan(0, unit, unit)]
        assert opened.read(spans, list(memory)) == [unit, -errno.EBADF, unit]
        assert (memory[0] == contents[0][:unit]).all()
        assert (memory[2] == contents[0][unit : 2 * unit]).all()

    def test_misaligned_reads_are_refused_or_right(self, opened: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(opened)
        result, found = read_one(opened, ReadSpan(0, 1, unit))
        assert result == -errno.EINVAL or (found[:result] == contents[0][1 : 1 + result]).all()

    def test_buffers_that_do_not_fit_are_refused(self, opened: Engine) -> None:
        unit = max(512, unit_of(opened))
        span = ReadSpan(0, 0, unit)
        read_only = aligned_buffer(unit)
        read_only.flags.writeable = False
        unfit = [
            aligned_buffer(unit + 1),
            aligned_buffer(2 * unit)[::2],
            aligned_buffer(unit).view(np.int8),
            read_only,
        ]
        for buffer in unfit:
            with pytest.raises(ConfigError):
                opened.read([span], [buffer])
        with pytest.raises(ConfigError):
            opened.read([span], [])
        with pytest.raises(ConfigError):
            opened.read([ReadSpan(0, -unit, unit)], [aligned_buffer(unit)])

    def test_several_threads(self, opened: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(opened)
        wrong: list[object] = []

        def work(seed: int) -> None:
            numbers = np.random.default_rng(seed).integers(0, FILE_BYTES[0] // unit, 40)
            for _ in range(5):
                memory = aligned_buffer(len(numbers) * unit).reshape(len(numbers), unit)
                results = opened.read([ReadSpan(0, int(i) * unit, unit) for i in numbers], list(memory))
                expected = contents[0].reshape(-1, unit)[numbers]
                if results != [unit] * len(numbers) or (memory != expected).any():
                    wrong.append(results)

        run_threads(work, 4)
        assert not wrong

    def test_close(self, own: Engine) -> None:
        own.close()
        own.close()
        with pytest.raises(ClosedError):
            own.read([ReadSpan(0, 0, 4096)], [aligned_buffer(4096)])

    def test_close_while_others_read(self, own: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(own)
        begun = threading.Barrier(4)
        wrong: list[object] = []

        def work(seed: int) -> None:
            begun.wait()
            if seed == 0:
                own.close()
                return
            try:
                while True:
                    memory = aligned_buffer(16 * unit).reshape(16, unit)
                    results = own.read([ReadSpan(0, i * unit, unit) for i in range(16)], list(memory))
                    if results != [unit] * 16 or (memory.ravel() != contents[0][: 16 * unit]).any():
                        wrong.append(results)
            except ClosedError:
                return

        run_threads(work, 4)
        assert not wrong

    def test_forked_child_raises_at_once(self, own: Engine, contents: list[ByteArray]) -> None:
        unit = unit_of(own)
        span = ReadSpan(0, 0, unit)
        read_one(own, span)  # rings and threads exist now

        def use_in_child() -> None:
            with pytest.raises(ForkedError):
                own.read([span], [aligned_buffer(unit)])
            own.close()

        assert in_child(use_in_child) == 0
        result, found = read_one(own, span)
        assert result == unit
        assert (found == contents[0][:unit]).all()


def run_threads(work: Callable[[int], None], n_threads: int) -> None:
    """Runs work(0), work(1), ... in threads; raises what one of them raised."""
    raised: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if raised:
        raise raised[0]
