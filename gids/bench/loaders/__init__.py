"""The loaders that are compared, by name."""

from __future__ import annotations

from gids.bench.loaders.base import BenchLoader, Deliveries, LoadedBatch, LoaderData, Work
from gids.bench.loaders.gids_loader import GidsLoader
from gids.bench.loaders.plain import (
    DglMmapLoader,
    DglMmapTunedLoader,
    InMemoryLoader,
    OnDeviceLoader,
)
from gids.bench.loaders.pyg import PygMmapLoader

#: `dgl-mmap` runs at the machine's own read-ahead and, as another loader, at 128 KiB.
LOADERS: dict[str, type[BenchLoader]] = {
    "gids": GidsLoader,
    "dgl-mmap": DglMmapLoader,
    "dgl-mmap-128k": DglMmapLoader,
    "dgl-mmap-tuned": DglMmapTunedLoader,
    "pyg-mmap": PygMmapLoader,
    "in-memory": InMemoryLoader,
    "on-device": OnDeviceLoader,
}

#: Read-ahead of the disk, in KiB, that a loader is to run at; the others run at the machine's own.
READ_AHEAD_KIB = {"dgl-mmap-128k": 128}

__all__ = [
    "LOADERS",
    "READ_AHEAD_KIB",
    "BenchLoader",
    "Deliveries",
    "LoadedBatch",
    "LoaderData",
    "Work",
]
