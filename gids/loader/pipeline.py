"""Threads ahead of the consumer: one samples, one reads features of mini-batches. On a GPU one does both."""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from gids.errors import LoaderStopped
from gids.fetch.fetcher import Fetched
from gids.fetch.window_size import WindowSize
from gids.loader.channel import Channel, ChannelClosed
from gids.loader.pace import Pace
from gids.sampling.block import SampledBatch
from gids.sampling.launch import Seeds
from gids.sampling.tensor_batch import TensorBatch

logger = logging.getLogger(__name__)

_JOIN_TIMEOUT_S = 120.0

Name = TypeVar("Name")


AnyBatch = SampledBatch | TensorBatch


class BatchReader(Protocol):
    """What :class:`gids.fetch.fetcher.Fetcher` and its counterpart on a GPU have in common; see there."""

    last_group: int

    def __len__(self) -> int: ...

    def wants_more(self, window: int | WindowSize) -> bool: ...

    def plan(self, batch: Any) -> Any: ...

    def announce(self, batch: Any) -> None: ...

    def fetch(self) -> tuple[AnyBatch, Fetched]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Stages:
    """What an iteration runs.

    Attributes
    ----------
    sample : callable
        Samples a mini-batch from its seeds, the epoch and its number in it.
    fetcher : BatchReader
    look_beyond : callable, optional
        Takes the iteration's mini-batches once more, so that the cache knows the pages of later ones.
    one_thread : bool
        Sampling only queues work for a GPU: the thread that reads does that, too.
    paced : bool
        Reading only queues work for a GPU: it goes by the consumer's :class:`Pace`.
    """

    sample: Callable[[Seeds, int, int], AnyBatch]
    fetcher: BatchReader
    look_beyond: Callable[[Iterator[Any]], None] | None = None
    one_thread: bool = False
    paced: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """A mini-batch that is ready, and what it took.

    Attributes
    ----------
    batch : SampledBatch or TensorBatch
    fetched : Fetched
    sample_s, plan_s, fetch_s : float
        Seconds that it took, in their threads: sampling; finding out where its features lie, and those of
        later ones; reading.
    """

    batch: AnyBatch
    fetched: Fetched
    sample_s: float
    plan_s: float
    fetch_s: float


@dataclass(frozen=True)
class _End:
    """The last thing in a channel: no more mini-batches, because of `error` if there is one."""

    error: BaseException | None = None


@dataclass(frozen=True, eq=False)
class _Sampled:
    plan: Any  # None once it was announced: the fetcher alone keeps it
    sample_s: float
    plan_s: float


class Pipeline:
    """Prepares the mini-batches `batches` in order. Started at once; close it when done.

    Parameters
    ----------
    batches : iterable
        What names each mini-batch, such as its number; may be endless.
    sample : callable
        Samples the mini-batch of a name.
    fetcher : BatchReader
        Owned by this object.
    window : int or WindowSize
        Mini-batches that are sampled beyond those that are read next.
    prefetch : int
        Mini-batches that are read ahead of the consumer and wait; where several are read together, as many.
    one_thread, paced : bool
        See :class:`Stages`.
    """

    def __init__(
        self,
        batches: Iterable[Name],
        sample: Callable[[Name], AnyBatch],
        fetcher: BatchReader,
        window: int | WindowSize,
        prefetch: int,
        one_thread: bool = False,
        paced: bool = False,
    ) -> None:
        self._pace, self._one_thread = Pace() if paced else None, one_thread
        self._sampling = (sample(name) for name in batches)
        self._fetcher = fetcher
        self._window, self._prefetch = window, prefetch
        self._sampled: Channel[_Sampled | _End] = Channel(2)
        self._ready: Channel[Prepared | _End] = Channel(prefetch)
        self._ended: _End | None = None
        self._threads = [self._thread("gids-fetch", self._fetch_all, self._ready.put)]
        if not one_thread:
            self._threads.insert(0, self._thread("gids-sample", self._sample_all, self._sampled.put))
        _running.add(self)
        for thread in self._threads:
            thread.start()

    def _thread(
        self, name: str, work: Callable[[], None], put_end: Callable[[_End], None]
    ) -> threading.Thread:
        return threading.Thread(target=self._run, args=(work, put_end), name=name, daemon=True)

    def next(self) -> Prepared:
        """The next mini-batch; waits for it.

        Raises
        ------
        StopIteration
            There are no more.
        LoaderStopped
            The pipeline was closed.
        Exception
            What sampling or reading this mini-batch raised.
        """
        if self._ended is None:
            waits = self._ready.is_empty()
            if self._pace is not None and waits:
                self._pace.hurry()
            elif self._pace is not None:
                # Before there is room: that wakes the thread, which asks how far the step is.
                self._pace.taken(time.perf_counter())
            try:
                item = self._ready.get()
            except ChannelClosed:
                raise LoaderStopped from None
            if isinstance(item, Prepared):
                if self._pace is not None and waits:
                    self._pace.taken(time.perf_counter())
                return item
            self._ended = item
            self.close()
        if self._ended.error is not None:
            raise self._ended.error
        raise StopIteration

    def close(self) -> None:
        """Stop the threads and wait for them; calling it again does nothing."""
        if self._pace is not None:
            self._pace.stop()
        self._sampled.close()
        self._ready.close()
        current = threading.current_thread()
        for thread in self._threads:
            if thread is not current and thread.is_alive():
                thread.join(_JOIN_TIMEOUT_S)
                if thread.is_alive():
                    logger.warning("thread %s is still busy after %g s", thread.name, _JOIN_TIMEOUT_S)
        _running.discard(self)

    def _run(self, work: Callable[[], None], put_end: Callable[[_End], None]) -> None:
        end = _End()
        try:
            work()
        except ChannelClosed:
            return
        except BaseException as error:
            end = _End(error)
        try:
            put_end(end)
        except ChannelClosed:
            return

    def _sample_all(self) -> None:
        while (item := self._sample_next()) is not None:
            self._sampled.put(item)

    def _sample_next(self) -> _Sampled | None:
        begin = time.perf_counter()
        batch = next(self._sampling, None)
        if batch is None:
            return None
        sampled = time.perf_counter()
        # Here and not where it is read: the disk would wait for it.
        plan = self._fetcher.plan(batch)
        return _Sampled(plan, sampled - begin, time.perf_counter() - sampled)

    def _next_sampled(self) -> _Sampled | _End:
        if not self._one_thread:
            return self._sampled.get()
        try:
            return self._sample_next() or _End()
        except BaseException as error:  # reaches the consumer behind the mini-batches before it
            return _End(error)

    def _fetch_all(self) -> None:
        """Keeps the window full; so what is read never depends on which thread is faster."""
        taken: deque[_Sampled] = deque()
        end: _End | None = None
        try:
            while True:
                if self._pace is not None and self._pace.puts_off:
                    # Not after some of the work: the rest would begin when the consumer's step does.
                    self._ready.wait_for_room()
                    self._pace.wait()
                begin = time.perf_counter()
                while end is None and self._fetcher.wants_more(self._window):
                    item = self._next_sampled()
                    if isinstance(item, _End):
                        end = item
                    else:
                        self._fetcher.announce(item.plan)
                        taken.append(replace(item, plan=None))
                if len(self._fetcher) == 0:
                    break
                announce_s = time.perf_counter() - begin
                # Not before: features that nobody has room for would take memory all the same.
                self._ready.wait_for_room()
                begin = time.perf_counter()
                batch, fetched = self._fetcher.fetch()
                fetch_s = time.perf_counter() - begin
                if self._pace is not None:
                    self._pace.worked(announce_s + fetch_s)
                # While the mini-batches of a group are handed out, the next group is read.
                self._ready.set_capacity(max(self._prefetch, self._fetcher.last_group))
                before = taken.popleft()
                self._ready.put(Prepared(batch, fetched, before.sample_s, before.plan_s, fetch_s))
                # The consumer alone decides how long the features live.
                del batch, fetched
        finally:
            self._fetcher.close()
        if end is not None and end.error is not None:
            raise end.error


_running: weakref.WeakSet[Pipeline] = weakref.WeakSet()


def _close_all() -> None:
    for pipeline in list(_running):
        pipeline.close()


atexit.register(_close_all)
