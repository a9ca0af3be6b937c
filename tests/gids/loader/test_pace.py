"""When the loader's thread works beside a training step."""

from __future__ import annotations

import threading
import time

import pytest

from gids.loader.pace import Pace


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
