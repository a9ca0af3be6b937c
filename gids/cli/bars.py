"""Progress bars on a terminal; nothing elsewhere."""

from __future__ import annotations

from tqdm import tqdm

from gids.graph.progress import Bar


def byte_bar(label: str, total_bytes: int, done_bytes: int) -> Bar:
    """A bar with rate and time left, on standard error."""
    bar: Bar = tqdm(
        total=total_bytes,
        initial=done_bytes,
        desc=label,
        unit="B",
        unit_scale=True,
        dynamic_ncols=True,
        disable=None,
    )
    return bar


def count_bar(label: str, total_bytes: int, done_bytes: int) -> Bar:
    """The same for things that are counted and have no bytes."""
    bar: Bar = tqdm(total=total_bytes, initial=done_bytes, desc=label, dynamic_ncols=True, disable=None)
    return bar
