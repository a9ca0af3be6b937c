"""When the loader's thread works, so that it seldom takes Python's lock from the one that trains.

A training step in eager mode is bound by Python more often than by the GPU: forward, it launches thousands of
kernels with the lock held between them. Backward, autograd launches them from C++, without the lock. So a
mini-batch that takes little of the loader's time is made in the second half of the consumer's step, and the
two threads rarely meet. One that takes long, because rows must be read, is begun at once.
"""

from __future__ import annotations

import threading
import time

#: Part of the consumer's step after which the loader's thread works.
_BEGIN = 0.55
#: Work that takes a larger part of the step is begun at once.
_LITTLE = 0.25
#: Steps longer than this are no training steps (evaluation, a debugger).
_LONGEST_S = 1.0
_NEWEST = 0.25


class Pace:
    """Shared by the consumer's thread and the loader's."""

    def __init__(self) -> None:
        self._woken, self._stopped = threading.Event(), False
        self._taken_s = 0.0
        self._step_s = 0.0
        self._work_s = 0.0

    def taken(self, now_s: float) -> None:
        """The consumer takes a mini-batch now, by :func:`time.perf_counter`."""
        if self._taken_s:
            step_s = now_s - self._taken_s
            self._step_s = step_s if not self._step_s else self._step_s + _NEWEST * (step_s - self._step_s)
        self._taken_s = now_s
        self._woken.clear()

    def worked(self, seconds: float) -> None:
        """The loader's thread has taken so long for a mini-batch, its waits for reads included."""
        self._work_s = seconds

    @property
    def puts_off(self) -> bool:
        """Whether mini-batches take so little that they are not begun at once."""
        return 0 < self._step_s < _LONGEST_S and self._work_s <= _LITTLE * self._step_s

    def wait_s(self, now_s: float) -> float:
        """How long the next mini-batch is to be put off."""
        if not self.puts_off:
            return 0.0
        return max(0.0, self._taken_s + _BEGIN * self._step_s - now_s)

    def wait(self) -> None:
        """Until the time has come, or until :meth:`stop`."""
        if (wait_s := self.wait_s(time.perf_counter())) > 0 and not self._stopped:
            self._woken.wait(wait_s)
            self._woken.clear()

    def hurry(self) -> None:
        """The consumer waits: nothing is put off, now."""
        self._woken.set()

    def stop(self) -> None:
        """Nobody waits any more."""
        self._stopped = True
        self._woken.set()
