"""How far the window reaches: a number of mini-batches, or as many as ask for so many bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bam.config import parse_bytes
from bam.errors import ConfigError

#: The most that a size in bytes stands for: each sampled mini-batch takes memory too.
MAX_BATCHES = 64
#: ``"auto"``: so often the cache. A mini-batch asks mostly for what is cached, and of the rest little comes
#: again.
AUTO_CACHES = 8
AUTO_MIN_BATCHES, AUTO_MAX_BATCHES = 4, 32


@dataclass(frozen=True)
class WindowSize:
    """Reaches `min_batches`, and from there on as long as both limits hold.

    Attributes
    ----------
    max_batches : int
    max_bytes : int, optional
        Of the features that the mini-batches in it ask for.
    min_batches : int
    """

    max_batches: int
    max_bytes: int | None = None
    min_batches: int = 1

    def wants_more(self, n_batches: int, n_bytes: int) -> bool:
        """Whether a window of so many mini-batches, which ask for `n_bytes`, is to be extended."""
        if n_batches >= self.max_batches:
            return False
        return self.max_bytes is None or n_batches < self.min_batches or n_bytes < self.max_bytes


def parse_window(value: int | str | WindowSize, cache_bytes: int) -> WindowSize:
    """The size that a setting stands for: mini-batches, bytes as text (``"64MiB"``), or ``"auto"``.

    Raises
    ------
    ConfigError
    """
    if isinstance(value, WindowSize):
        return value
    if value == "auto":
        return WindowSize(AUTO_MAX_BATCHES, AUTO_CACHES * cache_bytes, AUTO_MIN_BATCHES)
    if isinstance(value, str):
        return WindowSize(MAX_BATCHES, parse_bytes(value, "window"))
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ConfigError("window", value, "a number of mini-batches from 0 on, bytes as text, or 'auto'")
    return WindowSize(int(value))
