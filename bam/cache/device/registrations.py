"""Host memory that kernels use in place: registered with CUDA once, however many stores use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Registration:
    address_for_kernels: int
    users: int


class Registrations:
    """Of this process: CUDA registers memory once, and two loaders may have the same features."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], _Registration] = {}

    def take(self, address: int, n_bytes: int, register: Callable[[], int]) -> int:
        """The address for kernels; `register` is called for the first user."""
        with self._lock:
            found = self._known.get((address, n_bytes))
            if found is None:
                found = self._known[(address, n_bytes)] = _Registration(register(), 0)
            found.users += 1
            return found.address_for_kernels

    def give_back(self, address: int, n_bytes: int, unregister: Callable[[], None]) -> None:
        """One user less; `unregister` is called after the last."""
        with self._lock:
            found = self._known[(address, n_bytes)]
            found.users -= 1
            if found.users == 0:
                del self._known[(address, n_bytes)]
                unregister()
