"""How the GPU's read path is built, checked before any memory is taken."""

from __future__ import annotations

from dataclasses import dataclass

from bam.config import MAX_MERGE_BYTES, parse_bytes
from bam.errors import ConfigError
from bam.storage.queues import MAX_DEPTH, MAX_PAIRS, MIN_DEPTH


@dataclass(frozen=True)
class GpuSettings:
    """What an array on a GPU has beside what every array has; see docs/settings.md.

    Attributes
    ----------
    queue_pairs, queue_slots : int
        NVMe queue pairs in pinned memory, and slots of each (a power of two); one less can be outstanding.
    staging : int or str
        Pinned host memory that pages are read into.
    flights : int
        Parts that the staging memory is divided into; reads of one part go on while others are gathered.
    host_threads : int
        Threads of the software controller.
    read_depth : int
        Reads in flight of each of them.
    cores : tuple of int
        Thread `i` runs on ``cores[i % len(cores)]``; empty: anywhere.
    constant_rows : int
        The array's first rows, kept in pinned host memory and read there by the GPU.
    merge_bytes : int or str
        Longest read that the controller merges neighbouring pages into, up to 64 MiB; 0, or up to a page:
        none. Not with an NVMe drive, which kernels ask page by page.
    bridge_bytes : int or str
        Pages with a hole up to this long between them are merged too.
    lone_pages : int
        Pages of staging memory for kernels that read by themselves (`bam/array.cuh`); 0: there are none.
    """

    queue_pairs: int = 32
    queue_slots: int = 1024
    staging: int | str = "128MiB"
    flights: int = 2
    host_threads: int = 1
    read_depth: int = 256
    cores: tuple[int, ...] = ()
    constant_rows: int = 0
    lone_pages: int = 0
    merge_bytes: int | str = 0
    bridge_bytes: int | str = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "staging", parse_bytes(self.staging, "staging"))
        for name in ("merge_bytes", "bridge_bytes"):
            object.__setattr__(self, name, _merge_bytes(getattr(self, name), name))
        if not 1 <= self.queue_pairs <= MAX_PAIRS:
            raise ConfigError("queue_pairs", self.queue_pairs, f"1 to {MAX_PAIRS}")
        slots = self.queue_slots
        if not MIN_DEPTH <= slots <= MAX_DEPTH or slots & (slots - 1):
            raise ConfigError("queue_slots", slots, f"a power of two from {MIN_DEPTH} to {MAX_DEPTH}")
        for name, least in (("flights", 1), ("host_threads", 1), ("constant_rows", 0), ("lone_pages", 0)):
            if getattr(self, name) < least:
                raise ConfigError(name, getattr(self, name), f"at least {least}")
        if self.host_threads > self.queue_pairs:
            raise ConfigError("host_threads", self.host_threads, f"at most queue_pairs ({self.queue_pairs})")

    def slots_per_flight(self, page_bytes: int) -> int:
        """Pages of staging memory in each flight.

        Raises
        ------
        ConfigError
            None.
        """
        slots = parse_bytes(self.staging) // page_bytes // self.flights
        if slots < 1:
            expected = f"at least a page ({page_bytes} bytes) for each of {self.flights} flights"
            raise ConfigError("staging", self.staging, expected)
        return min(slots, 2**30 // self.flights)


def _merge_bytes(value: int | str, name: str) -> int:
    n_bytes = parse_bytes(value, name)
    if not 0 <= n_bytes <= MAX_MERGE_BYTES:
        raise ConfigError(name, value, f"bytes from 0 to {MAX_MERGE_BYTES}")
    return n_bytes
