"""A bounded queue between threads that can be closed from either end."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ChannelClosed(Exception):
    """Nothing will come any more, or nobody will take it."""


class Channel(Generic[Item]):
    """Holds up to `capacity` items. Closing wakes everybody who waits."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._items: deque[Item] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def set_capacity(self, capacity: int) -> None:
        """Hold up to so many items from now on; those that are there stay."""
        with self._changed:
            self._capacity = capacity
            self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait until there is room; with one producer there still is when it puts.

        Raises
        ------
        ChannelClosed
        """
        with self._changed:
            while len(self._items) >= self._capacity and not self._closed:
                self._changed.wait()
            if self._closed:
                raise ChannelClosed

    def is_empty(self) -> bool:
        """Whether :meth:`get` would wait now."""
        return not self._items

    def put(self, item: Item) -> None:
        """Append an item; waits while the channel is full.

        Raises
        ------
        ChannelClosed
        """
        with self._changed:
            self.wait_for_room()
            self._items.append(item)
            self._changed.notify_all()

    def get(self) -> Item:
        """Remove the first item; waits while the channel is empty.

        Raises
        ------
        ChannelClosed
        """
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            if self._closed:
                raise ChannelClosed
            item = self._items.popleft()
            self._changed.notify_all()
            return item

    def close(self) -> None:
        """Drop what is in the channel; from now on put() and get() raise."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()
