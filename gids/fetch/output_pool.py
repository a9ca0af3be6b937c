"""Memory of feature tensors, used again when a mini-batch is gone: fresh pages cost more than rows."""

from __future__ import annotations

import threading
import weakref

import numpy as np
import numpy.typing as npt
import torch

Block = npt.NDArray[np.uint8]

_ROUND_BYTES = 2 * 2**20
_ALIGNMENT = 4096


class OutputPool:
    """Lends memory to tensors and takes it back when nothing refers to them any more. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Block] = []

    def empty(self, n_rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor of shape (n_rows, *row_shape), aligned to a page."""
        n_bytes = n_rows * int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
        block = self._take(n_bytes)
        begin = -block.ctypes.data % _ALIGNMENT
        view = block[begin : begin + n_bytes]
        # The tensor keeps `view` alive; when that goes, so has every tensor over it.
        weakref.finalize(view, self._give_back, block).atexit = False
        return torch.from_numpy(view).view(dtype).reshape(n_rows, *row_shape)

    def trim(self) -> None:
        """Give unused memory back to the system."""
        with self._lock:
            self._free.clear()

    def _take(self, n_bytes: int) -> Block:
        with self._lock:
            fitting = [block for block in self._free if n_bytes + _ALIGNMENT <= len(block)]
            # Not one much larger either: it would be missing where it is needed.
            fitting = [block for block in fitting if len(block) <= 2 * n_bytes + 2 * _ROUND_BYTES]
            if fitting:
                best = min(fitting, key=len)
                self._free = [block for block in self._free if block is not best]
                return best
            # What is free does not fit: sizes have changed, and keeping it all would add up.
            self._free.clear()
        rounded = -(-(n_bytes + n_bytes // 16 + _ALIGNMENT) // _ROUND_BYTES) * _ROUND_BYTES
        return np.empty(rounded, np.uint8)

    def _give_back(self, block: Block) -> None:
        with self._lock:
            self._free.append(block)
