"""The device a benchmark trains on: the CPU, or a GPU whose work is waited for before a clock is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gids.loader.arguments import usable_device


@dataclass
class Busy:
    """Seconds of one piece of work on the device; 0 until it has ended."""

    seconds: float = 0.0


@dataclass(frozen=True)
class TrainingDevice:
    """Where the model trains.

    Attributes
    ----------
    device : torch.device
    """

    device: torch.device

    @classmethod
    def named(cls, name: str) -> TrainingDevice:
        """The device of this name.

        Raises
        ------
        ConfigError
            This PyTorch cannot use it.
        """
        return cls(usable_device(name))

    @property
    def is_gpu(self) -> bool:
        """Whether work on it goes on while the CPU's thread runs ahead."""
        return self.device.type != "cpu"

    @property
    def name(self) -> str:
        """``cpu``, or what the GPU is called."""
        return str(torch.cuda.get_device_name(self.device)) if self.is_gpu else "cpu"

    def wait(self) -> None:
        """Until all that the current stream has been given is done."""
        if self.is_gpu:
            torch.cuda.current_stream(self.device).synchronize()

    @contextmanager
    def busy(self) -> Iterator[Busy]:
        """Times the work that the `with` block gives the current stream, and waits for it.

        On a GPU by two events of that stream, so what the block waited for before it gave the GPU anything
        counts, too; on a CPU by the clock.
        """
        found = Busy()
        if not self.is_gpu:
            begin = time.perf_counter()
            yield found
            found.seconds = time.perf_counter() - begin
            return
        stream = torch.cuda.current_stream(self.device)
        event: Any = torch.cuda.Event
        first, last = event(enable_timing=True), event(enable_timing=True)
        first.record(stream)
        yield found
        last.record(stream)
        last.synchronize()
        found.seconds = first.elapsed_time(last) / 1000
