"""How mini-batches, and rows that were gathered in host memory, get to the training device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from gids.bench.device import TrainingDevice
from gids.fetch.output_pool import OutputPool
from gids.sampling.block import SampledBatch
from gids.sampling.tensor_batch import TensorBatch

Tensors = Mapping[str, torch.Tensor]


class RowCopy(ABC):
    """A way to the device; `copy` and `move` return when all is there."""

    @abstractmethod
    def empty(self, n_rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Host memory to gather into, of shape (n_rows, *row_shape)."""

    @abstractmethod
    def copy(self, rows: Tensors) -> dict[str, torch.Tensor]:
        """The rows on the device."""

    @abstractmethod
    def move(self, batch: SampledBatch) -> SampledBatch | TensorBatch:
        """Nodes and blocks on the device."""

    @abstractmethod
    def describe(self) -> str:
        """Which way it is."""


class NoCopy(RowCopy):
    """The model trains where the rows are."""

    def __init__(self) -> None:
        self._pool = OutputPool()

    def empty(self, n_rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return self._pool.empty(n_rows, row_shape, dtype)

    def copy(self, rows: Tensors) -> dict[str, torch.Tensor]:
        return dict(rows)

    def move(self, batch: SampledBatch) -> SampledBatch | TensorBatch:
        return batch

    def describe(self) -> str:
        return "none"


class PlainCopy(RowCopy):
    """`tensor.to(device)` of memory as it is, on the stream that trains: what scripts do that do not mind."""

    def __init__(self, device: TrainingDevice) -> None:
        self._device, self._pool = device, OutputPool()

    def empty(self, n_rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return self._pool.empty(n_rows, row_shape, dtype)

    def copy(self, rows: Tensors) -> dict[str, torch.Tensor]:
        moved = {name: each.to(self._device.device) for name, each in rows.items()}
        self._device.wait()
        return moved

    def move(self, batch: SampledBatch) -> SampledBatch | TensorBatch:
        moved = TensorBatch.of(batch).to(self._device.device)
        self._device.wait()
        return moved.as_loaded()

    def describe(self) -> str:
        return "tensor.to, on the training stream"


class PinnedCopy(RowCopy):
    """From pinned memory on a stream of its own, so that it goes on while the GPU trains."""

    def __init__(self, device: TrainingDevice) -> None:
        self._device = device
        stream: Any = torch.cuda.Stream
        self._stream = stream(device.device)

    def empty(self, n_rows: int, row_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        # PyTorch keeps pinned memory and hands it out again once no copy from it is under way.
        return torch.empty((n_rows, *row_shape), dtype=dtype, pin_memory=True)

    def copy(self, rows: Tensors) -> dict[str, torch.Tensor]:
        with torch.cuda.stream(self._stream):
            moved = {name: each.to(self._device.device, non_blocking=True) for name, each in rows.items()}
        # The loader's own thread waits, and whoever trains gets rows that are there. The training stream has
        # ended its step before it lets go of them, so their memory is free to use on either stream.
        self._stream.synchronize()
        return moved

    def move(self, batch: SampledBatch) -> SampledBatch | TensorBatch:
        with torch.cuda.stream(self._stream):
            moved = TensorBatch.of(batch).to(self._device.device)
        self._stream.synchronize()
        return moved.as_loaded()

    def describe(self) -> str:
        return "from pinned memory, on a stream of its own"


def row_copy(device: TrainingDevice, *, overlapped: bool) -> RowCopy:
    """The way to a device, for a loader that works ahead of training (`overlapped`) or does not."""
    if not device.is_gpu:
        return NoCopy()
    return PinnedCopy(device) if overlapped else PlainCopy(device)
