"""An NVMe controller in plain Python, written from the specification alone: a second opinion on the queues.

It answers one queue pair from an array, completes in random order, and records what it saw.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.storage.queues import BLOCK_BYTES, CQueuePair

SQE = np.dtype(
    {
        "names": ["opcode", "flags", "cid", "nsid", "prp1", "slba", "nlb"],
        "formats": ["u1", "u1", "u2", "u4", "u8", "u8", "u2"],
        "offsets": [0, 1, 2, 4, 24, 40, 48],
        "itemsize": 64,
    }
)


def _view(address: int, dtype: Any, count: int) -> npt.NDArray[Any]:
    dtype = np.dtype(dtype)
    return np.frombuffer((ctypes.c_uint8 * (dtype.itemsize * count)).from_address(address), dtype)


class RecordingController(threading.Thread):
    """Serves until :meth:`stop`; `errors` holds every breach of the rules it saw.

    Parameters
    ----------
    pair : CQueuePair
    data : uint8 array
        The namespace.
    seed : int
        Of the order of completions.
    hold : int
        Completes only while more than so many commands are outstanding (or none arrives any more).
    """

    def __init__(self, pair: CQueuePair, data: npt.NDArray[np.uint8], seed: int = 0, hold: int = 0) -> None:
        super().__init__(daemon=True)
        self._depth, self._data, self._hold = pair.depth, data, hold
        self._sq = _view(pair.sq, SQE, pair.depth)
        self._cq = _view(pair.cq, np.uint64, 2 * pair.depth)
        self._tail = _view(pair.sq_doorbell, np.uint32, 1)
        self._head = _view(pair.cq_doorbell, np.uint32, 1)
        self._queue_id = pair.queue_id
        self._random = np.random.default_rng(seed)
        self._outstanding: dict[int, tuple[int, int, int]] = {}
        self._stopping = threading.Event()
        self.fetched = self.posted = self.overtaken = self.most_outstanding = 0
        self.cids: list[int] = []
        self.errors: list[str] = []

    def run(self) -> None:
        quiet = 0
        while not self._stopping.is_set():
            arrived = self._fetch()
            quiet = 0 if arrived else quiet + 1
            if self._outstanding and (len(self._outstanding) > self._hold or quiet > 3):
                self._complete_one()
            elif not arrived:
                time.sleep(0)

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self.join()

    def _fetch(self) -> bool:
        tail = int(self._tail[0])
        if tail >= self._depth:
            self.errors.append(f"doorbell {tail}")
            return False
        arrived = False
        while self.fetched % self._depth != tail:
            self._check_and_keep(self._sq[self.fetched % self._depth].copy())
            self.fetched += 1
            arrived = True
        return arrived

    def _check_and_keep(self, sqe: Any) -> None:
        cid = int(sqe["cid"])
        if cid in self._outstanding:
            self.errors.append(f"command id {cid} is outstanding already")
        if (sqe["opcode"], sqe["flags"], sqe["nsid"]) != (2, 0, 1):
            self.errors.append(f"not a Read: {sqe}")
        self.cids.append(cid)
        self._outstanding[cid] = (int(sqe["slba"]), int(sqe["nlb"]) + 1, int(sqe["prp1"]))
        self.most_outstanding = max(self.most_outstanding, len(self._outstanding))

    def _complete_one(self) -> None:
        if (self.posted + 1 - int(self._head[0])) % self._depth == 0:
            self.errors.append("no room for a completion")
            return
        place = int(self._random.integers(len(self._outstanding)))
        cid = list(self._outstanding)[place]
        self.overtaken += place
        slba, n_blocks, destination = self._outstanding.pop(cid)
        found = self._data[slba * BLOCK_BYTES : (slba + n_blocks) * BLOCK_BYTES]
        ctypes.memmove(destination, found.ctypes.data, found.nbytes)
        phase = 1 - self.posted // self._depth % 2
        slot = self.posted % self._depth
        self._cq[2 * slot] = 0
        self._cq[2 * slot + 1] = self.fetched % self._depth | self._queue_id << 16 | cid << 32 | phase << 48
        self.posted += 1
