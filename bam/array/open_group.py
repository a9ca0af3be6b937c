"""Arrays that are read together on a GPU: the features of all node types of a graph, for instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.device_group import DeviceGroup
from bam.array.open_reader import open_device_group
from bam.array.sources import PathLike, Source, as_source
from bam.cache.device.settings import GpuSettings
from bam.config import EngineKind, PolicyKind, StoreConfig, parse_bytes, parse_cache_lines, parse_kind
from bam.storage.engine import Engine


def open_group(
    sources: Mapping[str, Source | PathLike | npt.NDArray[np.generic]],
    *,
    engine: EngineKind | str = EngineKind.AUTO,
    cache: int | str = "64MiB",
    policy: PolicyKind | str = PolicyKind.CLOCK,
    page_bytes: int | str = 4096,
    timeout_s: float = 60.0,
    seed: int = 0,
    gpu: GpuSettings | None = None,
    wrap: Callable[[Engine], Engine] | None = None,
    in_place: Mapping[str, npt.NDArray[np.generic]] | None = None,
    on: Any = None,
) -> DeviceGroup:
    """Open several arrays with one cache on a GPU.

    Parameters
    ----------
    sources : mapping of str to source
        As of :func:`bam.open_array`; all in files (`.npy`, or sources that say dtype and shape) or all in
        memory. Each array begins at a page of its own.
    engine, cache, policy, page_bytes, timeout_s, seed, gpu, wrap
        As of :func:`bam.open_array`.
    in_place : mapping of str to array, optional
        Further arrays, in memory, which kernels read there: it is registered with CUDA until the group is
        closed, so keep the arrays that long.
    on : Gpu, optional
        By default the current one, through CuPy. Owned by the group.

    Returns
    -------
    DeviceGroup
        Owned by the caller, who closes it.

    Raises
    ------
    SourceError, ConfigError, EngineUnavailable
    """
    size = parse_bytes(page_bytes, "page_bytes")
    StoreConfig(page_bytes=size, merge_bytes=max(size, 65536))
    config = StoreConfig(
        page_bytes=size,
        cache_lines=parse_cache_lines(cache, size),
        policy=parse_kind("policy", policy, PolicyKind),
        engine=parse_kind("engine", engine, EngineKind),
        timeout_s=timeout_s,
        seed=seed,
    )
    descriptions = {name: as_source(source, None, None).describe() for name, source in sources.items()}
    kept = {name: as_source(rows, None, None).describe() for name, rows in (in_place or {}).items()}
    return open_device_group(descriptions, config, gpu or GpuSettings(), wrap, on, kept)
