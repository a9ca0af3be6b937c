"""Streams that the loader works on: one samples, one reads, one divides what was read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

# Parts of torch.cuda have no annotations.
_cuda: Any = torch.cuda


class Streams(ABC):
    """Where sampling and reading of one iteration are queued.

    Attributes
    ----------
    device : torch.device
    """

    device: torch.device

    @abstractmethod
    def sampling(self, stage: str) -> AbstractContextManager[object]:
        """Within it, torch queues on the stream that samples; `stage` names an NVTX range."""

    @abstractmethod
    def reading(self, stage: str) -> AbstractContextManager[object]:
        """Within it, torch queues on the stream that reads, which is the store's own."""

    @abstractmethod
    def handing(self, stage: str) -> AbstractContextManager[object]:
        """Within it, torch queues on the stream that divides what was read, which waits for neither."""

    @abstractmethod
    def waiting(self, stage: str) -> AbstractContextManager[object]:
        """An NVTX range alone, for what the host does or waits for."""

    @abstractmethod
    def mark(self) -> object:
        """A point of the current stream: all that is queued on it now."""

    @abstractmethod
    def follow(self, mark: object) -> None:
        """What is queued on the current stream from now on runs after the mark; the host does not wait."""

    @abstractmethod
    def wait(self, mark: object) -> None:
        """Have the host wait for the mark."""


class HostStreams(Streams):
    """Of a GPU that the host emulates: everything is done when it is called."""

    device = torch.device("cpu")

    def sampling(self, stage: str) -> AbstractContextManager[object]:
        return nullcontext()

    def reading(self, stage: str) -> AbstractContextManager[object]:
        return nullcontext()

    def handing(self, stage: str) -> AbstractContextManager[object]:
        return nullcontext()

    def waiting(self, stage: str) -> AbstractContextManager[object]:
        return nullcontext()

    def mark(self) -> object:
        return None

    def follow(self, mark: object) -> None: ...

    def wait(self, mark: object) -> None: ...


class CudaStreams(Streams):
    """Streams of one GPU.

    Parameters
    ----------
    device : torch.device
        With an index.
    reading_address : int
        The store's stream.
    """

    def __init__(self, device: torch.device, reading_address: int) -> None:
        self.device = device
        self._sample, self._hand = _cuda.Stream(device), _cuda.Stream(device)
        self._read = _cuda.ExternalStream(reading_address, device)

    def sampling(self, stage: str) -> AbstractContextManager[object]:
        return _Stage(self._sample, stage)

    def reading(self, stage: str) -> AbstractContextManager[object]:
        return _Stage(self._read, stage)

    def handing(self, stage: str) -> AbstractContextManager[object]:
        return _Stage(self._hand, stage)

    def waiting(self, stage: str) -> AbstractContextManager[object]:
        return _Range(stage)

    def mark(self) -> object:
        return torch.cuda.current_stream(self.device).record_event()

    def follow(self, mark: object) -> None:
        assert isinstance(mark, torch.cuda.Event)
        torch.cuda.current_stream(self.device).wait_event(mark)

    def wait(self, mark: object) -> None:
        assert isinstance(mark, torch.cuda.Event)
        mark.synchronize()


class _Range(AbstractContextManager[None]):
    """An NVTX range."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        _cuda.nvtx.range_push(self._name)

    def __exit__(self, *error: object) -> None:
        _cuda.nvtx.range_pop()


class _Stage(AbstractContextManager[None]):
    """A stream that is torch's current one, and an NVTX range."""

    def __init__(self, stream: Any, name: str) -> None:
        self._name = name
        self._stream: Any = torch.cuda.stream(stream)

    def __enter__(self) -> None:
        _cuda.nvtx.range_push(self._name)
        self._stream.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)
        _cuda.nvtx.range_pop()
