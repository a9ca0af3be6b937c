"""Caches opened before a fork are closed in the child: another thread may have been in the middle of one."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class ClosedInChild(Protocol):
    """What :func:`close_in_child` needs."""

    def close_in_child(self) -> None:
        """Every later call raises :class:`bam.errors.ClosedError`; takes no lock."""


_open: weakref.WeakSet[ClosedInChild] = weakref.WeakSet()


def close_in_child(cache: ClosedInChild) -> None:
    """From now on, a forked child of this process finds `cache` closed."""
    _open.add(cache)


def _close_all() -> None:
    for cache in list(_open):
        cache.close_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_close_all)
