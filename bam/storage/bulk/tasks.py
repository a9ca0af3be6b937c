"""A bulk read cut into tasks, and the threads that do them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bam.errors import WaitTimeout
from bam.layout import FileRun, Layout
from bam.storage.bulk.reader import BulkRange

logger = logging.getLogger(__name__)

_LOOK_S = 0.5  # at whether there is progress


@dataclass(frozen=True)
class Task:
    """A run of file bytes and the byte of the memory that it goes to."""

    run: FileRun
    begin: int


#: Does one task; made for each thread, in that thread.
Worker = Callable[[Task], None]


def tasks_of(layout: Layout, ranges: Sequence[BulkRange], task_bytes: int) -> Iterator[Task]:
    """Cut ranges where files end, and at multiples of `task_bytes` in each file, so that cuts are aligned."""
    for each in ranges:
        begin = each.begin
        for run in layout.runs(each.offset, each.length):
            done = 0
            while done < run.length:
                offset = run.file_offset + done
                length = min(task_bytes - offset % task_bytes, run.length - done)
                yield Task(FileRun(run.file, offset, length), begin + done)
                done += length
            begin += run.length


class TaskThreads:
    """Threads that take tasks from one list until it is done or one of them fails.

    Parameters
    ----------
    tasks : iterator of Task
    make_worker : callable
        Called in each thread, before its first task.
    n_threads : int
    file_names : sequence of str
        For the time-out.
    """

    def __init__(
        self,
        tasks: Iterator[Task],
        make_worker: Callable[[], Worker],
        n_threads: int,
        file_names: Sequence[str],
    ) -> None:
        self._tasks, self._make_worker, self._file_names = tasks, make_worker, file_names
        self._changed = threading.Condition()
        self._running = n_threads
        self._n_done = 0
        self._under_way: dict[int, Task] = {}
        self._error: BaseException | None = None
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"bam-bulk-{number}", daemon=True)
            for number in range(n_threads)
        ]

    def run(self, timeout_s: float) -> None:
        """Do all tasks.

        Raises
        ------
        WaitTimeout
            No task ended for so long. Threads that still read are left behind; they hold what they read to.
        BaseException
            Of the first task that failed; the other threads have ended.
        """
        for thread in self._threads:
            thread.start()
        try:
            self._wait(timeout_s)
        finally:
            with self._changed:
                self._stopped = True
        if self._error is not None:
            raise self._error

    def _wait(self, timeout_s: float) -> None:
        done, since = -1, time.monotonic()
        with self._changed:
            while self._running:
                if self._n_done != done:
                    done, since = self._n_done, time.monotonic()
                left = timeout_s - (time.monotonic() - since)
                if left <= 0:
                    raise self._timed_out(timeout_s)
                self._changed.wait(min(left, _LOOK_S))

    def _timed_out(self, timeout_s: float) -> WaitTimeout:
        n_left = len(self._under_way)
        run = min(self._under_way.values(), key=_begin).run if n_left else FileRun(0, 0, 0)
        remedy = "Check the disk; these reads may still write to the memory they were given"
        logger.error("%d reads of a bulk load are left behind", n_left)
        return WaitTimeout(
            f"{n_left} reads of a bulk load",
            timeout_s,
            remedy,
            file=self._file_names[run.file],
            offset=run.file_offset,
            length=run.length,
        )

    def _run(self, number: int) -> None:
        try:
            worker = self._make_worker()
            while (task := self._next(number)) is not None:
                worker(task)
        except BaseException as error:  # it is raised by whoever waits
            with self._changed:
                self._error = self._error or error
                self._stopped = True
        with self._changed:
            self._running -= 1
            self._under_way.pop(number, None)
            self._changed.notify_all()

    def _next(self, number: int) -> Task | None:
        with self._changed:
            if self._under_way.pop(number, None) is not None:
                self._n_done += 1
            task = None if self._stopped else next(self._tasks, None)
            if task is not None:
                self._under_way[number] = task
            return task


def _begin(task: Task) -> int:
    return task.begin
