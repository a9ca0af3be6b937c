"""When the loader's thread works beside a training step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from gids.loader.pace import Pace
from gids.loader.pipeline import Pipeline


def steady(step_s: float, work_s: float) -> Pace:
    """After ten steps, the last one at time 10 * step_s."""
    pace = Pace()
    for number in range(1, 11):
        pace.taken(number * step_s)
        pace.worked(work_s)
    return pace


def test_little_work_waits_for_the_second_half_of_a_step() -> None:
    pace = steady(0.02, 0.002)
    assert pace.wait_s(0.2) == pytest.approx(0.55 * 0.02)
    assert pace.wait_s(0.2 + 0.55 * 0.02) == pytest.approx(0)
    assert pace.wait_s(0.3) == 0


def test_long_work_and_long_steps_wait_for_nothing() -> None:
    assert steady(0.02, 0.006).wait_s(0.2) == 0
    assert steady(5.0, 0.001).wait_s(50.0) == 0
    assert Pace().wait_s(1.0) == 0  # nothing was taken yet


def test_a_step_that_is_shorter_is_followed() -> None:
    pace = steady(0.4, 0.001)
    for number in range(30):
        pace.taken(4.0 + 0.01 * (number + 1))
    assert pace.wait_s(4.3) < 0.01


def test_stopping_ends_a_wait() -> None:
    pace = Pace()
    now = time.perf_counter()
    pace.taken(now - 0.9)
    pace.taken(now)
    threading.Timer(0.05, pace.stop).start()
    pace.wait()
    assert time.perf_counter() - now < 0.4


def test_a_consumer_that_waits_ends_it_too() -> None:
    pace = Pace()
    now = time.perf_counter()
    pace.taken(now - 0.9)
    pace.taken(now)
    threading.Timer(0.05, pace.hurry).start()
    pace.wait()
    assert time.perf_counter() - now < 0.4


class Reader:
    """Mini-batches that are their numbers, and what was done to them."""

    last_group = 1

    def __init__(self, events: list[str]) -> None:
        self._events, self._waiting = events, []

    def __len__(self) -> int:
        return len(self._waiting)

    def wants_more(self, window: Any) -> bool:
        return len(self._waiting) < 2

    def plan(self, batch: Any) -> Any:
        return batch

    def announce(self, batch: Any) -> None:
        self._events.append("announce")
        self._waiting.append(batch)

    def fetch(self) -> tuple[Any, Any]:
        self._events.append("fetch")
        return self._waiting.pop(0), None

    def close(self) -> None: ...


def until(ready: Callable[[], bool]) -> None:
    end = time.perf_counter() + 10
    while not ready():
        assert time.perf_counter() < end
        time.sleep(0.001)


@pytest.mark.parametrize("one_thread", [False, True])
def test_all_of_the_work_for_a_mini_batch_is_put_off(
    monkeypatch: pytest.MonkeyPatch, one_thread: bool
) -> None:
    events: list[str] = []
    monkeypatch.setattr(Pace, "puts_off", True)
    monkeypatch.setattr(Pace, "taken", lambda pace, now_s: events.append("taken"))
    monkeypatch.setattr(Pace, "wait", lambda pace: events.append("wait"))
    reader: Any = Reader(events)
    pipeline = Pipeline(range(6), lambda name: name, reader, 0, 1, one_thread, paced=True)
    until(lambda: events.count("fetch") == 1)
    time.sleep(0.05)
    assert events == ["wait", "announce", "announce", "fetch"]  # nothing more while there is no room
    for number in range(6):
        until(lambda: not pipeline._ready.is_empty())
        before = len(events)
        assert pipeline.next().batch == number
        if number < 5:
            until(lambda number=number: events.count("fetch") == number + 2)
            assert events[before : before + 2] == ["taken", "wait"]
    with pytest.raises(StopIteration):
        pipeline.next()
