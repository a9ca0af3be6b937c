"""A thread that has the next mini-batch ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from gids.bench.loaders.base import LoadedBatch
from gids.loader.channel import Channel, ChannelClosed


def one_ahead(make: Callable[[], Iterator[LoadedBatch]]) -> Iterator[LoadedBatch]:
    """The same mini-batches, the next one made while the caller uses this one.

    Times are those the caller waits: the end of a wait is for what is made last: the copy to the training
    device, before it the features.
    """
    channel: Channel[LoadedBatch | BaseException | None] = Channel(1)

    def run() -> None:
        try:
            batches = make()
            while (batch := next(batches, None)) is not None:
                channel.put(batch)
                del batch
                # Made only when there is room for it: the next one takes as much memory.
                channel.wait_for_room()
            channel.put(None)
        except ChannelClosed:
            return
        except BaseException as error:
            channel.put(error)

    thread = threading.Thread(target=run, name="one-ahead", daemon=True)
    thread.start()
    try:
        while True:
            begin = time.perf_counter()
            item = channel.get()
            wait_s = time.perf_counter() - begin
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            copy_s = min(wait_s, item.copy_s)
            feature_wait_s = min(wait_s - copy_s, item.feature_wait_s)
            waited = replace(item, feature_wait_s=feature_wait_s, copy_s=copy_s, adapt_s=0.0)
            loaded = [replace(waited, sample_s=wait_s - copy_s - feature_wait_s)]
            del item, waited
            yield loaded.pop()  # nothing here keeps its features while the next mini-batch is awaited
    finally:
        channel.close()
        thread.join()
