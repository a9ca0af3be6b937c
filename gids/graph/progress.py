"""How long work tells its caller how far it is, without printing."""

from __future__ import annotations

from typing import Protocol


class Bar(Protocol):
    """One piece of work under way. A ``tqdm`` bar is one."""

    def update(self, n: int) -> object:
        """`n` more units (bytes, unless the work says otherwise) are done."""

    def close(self) -> object:
        """The work ended, well or badly."""


class Progress(Protocol):
    """Makes bars: called once at the start of each piece of work."""

    def __call__(self, label: str, total_bytes: int, done_bytes: int) -> Bar:
        """`done_bytes` of `total_bytes` were done by an earlier run."""


class _NoBar:
    def update(self, n: int) -> None:
        pass

    def close(self) -> None:
        pass


def no_progress(label: str, total_bytes: int, done_bytes: int) -> Bar:
    """Report nothing."""
    return _NoBar()
