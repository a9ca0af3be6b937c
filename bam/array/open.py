"""The front door: a virtual array over whatever holds its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from bam.array.device import DeviceArray
from bam.array.open_reader import OpenSettings, open_device_array
from bam.array.sources import PathLike, Source, as_source
from bam.array.virtual import VirtualArray
from bam.cache.device.settings import GpuSettings
from bam.cache.shared import SharedCache
from bam.config import (
    DeviceKind,
    EngineKind,
    PolicyKind,
    ReaderKind,
    StoreConfig,
    parse_bytes,
    parse_cache_lines,
    parse_kind,
)
from bam.errors import ConfigError
from bam.storage.engine import Engine

AnySource: TypeAlias = "Source | PathLike | Sequence[PathLike] | npt.NDArray[np.generic]"


@overload
def open_array(
    source: AnySource,
    *,
    dtype: npt.DTypeLike | None = ...,
    shape: Sequence[int] | None = ...,
    engine: EngineKind | str = ...,
    cache: int | str | SharedCache = ...,
    policy: PolicyKind | str = ...,
    page_bytes: int | str = ...,
    queue_depth: int = ...,
    merge_bytes: int | str = ...,
    bridge_bytes: int | str = ...,
    timeout_s: float = ...,
    close_timeout_s: float = ...,
    staging_bytes: int | str = ...,
    seed: int = ...,
    reader: ReaderKind | str = ...,
    wrap: Callable[[Engine], Engine] | None = ...,
    device: Literal["cpu", DeviceKind.CPU] = ...,
    gpu: GpuSettings | None = ...,
) -> VirtualArray: ...


@overload
def open_array(
    source: AnySource,
    *,
    dtype: npt.DTypeLike | None = ...,
    shape: Sequence[int] | None = ...,
    engine: EngineKind | str = ...,
    cache: int | str | SharedCache = ...,
    policy: PolicyKind | str = ...,
    page_bytes: int | str = ...,
    queue_depth: int = ...,
    merge_bytes: int | str = ...,
    bridge_bytes: int | str = ...,
    timeout_s: float = ...,
    close_timeout_s: float = ...,
    staging_bytes: int | str = ...,
    seed: int = ...,
    reader: ReaderKind | str = ...,
    wrap: Callable[[Engine], Engine] | None = ...,
    device: Literal["cuda", DeviceKind.CUDA],
    gpu: GpuSettings | None = ...,
) -> DeviceArray: ...


def open_array(
    source: AnySource,
    *,
    dtype: npt.DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    engine: EngineKind | str = EngineKind.AUTO,
    cache: int | str | SharedCache = "64MiB",
    policy: PolicyKind | str = PolicyKind.CLOCK,
    page_bytes: int | str = 4096,
    queue_depth: int = 256,
    merge_bytes: int | str = 65536,
    bridge_bytes: int | str = 0,
    timeout_s: float = 60.0,
    close_timeout_s: float = 10.0,
    staging_bytes: int | str = "64MiB",
    seed: int = 0,
    reader: ReaderKind | str = ReaderKind.AUTO,
    wrap: Callable[[Engine], Engine] | None = None,
    device: DeviceKind | str = DeviceKind.CPU,
    gpu: GpuSettings | None = None,
) -> VirtualArray | DeviceArray:
    """Open an array whose rows stay where they are.

    Parameters
    ----------
    source : path, list of paths, numpy array or Source
        A file, with a `.npy` header or without one (then give `dtype` and `shape`); a list of files that
        follow each other; :class:`bam.StripedSource` and the other sources; or an array in memory.
    dtype, shape : optional
        Of files without header. The first length may be -1: as many rows as there are.
    engine : str
        ``auto``, ``uring``, ``file`` or ``memory``.
    cache : int, str or SharedCache
        Size of the page cache: bytes, ``"64MiB"``, or ``"16 lines"``; at least one page. Or a cache that is
        shared with other arrays; then `policy` and `seed` are its, and `page_bytes` must be.
    policy : str
        ``clock``, ``sieve``, ``random`` or ``look_ahead``.
    page_bytes : int or str
        A power of two from 512 to 65536.
    queue_depth : int
        Most reads in flight of one thread.
    merge_bytes : int or str
        Longest read that neighbouring pages are merged into.
    bridge_bytes : int or str
        Pages with a hole up to this long between them are merged too: worth it where reading the hole along
        takes less time than a second read. 0: only pages that follow each other.
    timeout_s : float
        A gather that makes no progress for so long raises :class:`bam.errors.WaitTimeout`.
    close_timeout_s : float
        Closing waits so long for reads that a gather gave up; then it leaves them, and the memory they go to,
        behind, and raises :class:`bam.errors.WaitTimeout`.
    staging_bytes : int or str
        Most memory of the buffers that one thread reads into; fewer reads are in flight where it is small.
    seed : int
        Of policy ``random``.
    reader : str
        ``native``, ``reference``, or ``auto``: native where the library was built and the engine is in C++,
        else reference, which is logged and noted in :meth:`VirtualArray.info`.
    wrap : callable, optional
        Takes the engine and returns the one to read through (a fault, latency or monitored one); the array
        closes both.
    device : str
        ``cpu``, or ``cuda``: the current GPU looks rows up in a cache in its own memory and asks for the
        pages it misses. Then `merge_bytes`, `queue_depth` and `reader` have no meaning, and `cache` cannot be
        shared.
    gpu : GpuSettings, optional
        With device ``cuda``.

    Returns
    -------
    VirtualArray, or with device ``cuda`` DeviceArray
        Owned by the caller, who closes it.

    Raises
    ------
    SourceError
        The files cannot serve as such an array; says which, what was expected and what was found.
    ConfigError
        A setting that cannot work. Nothing has been opened.
    EngineUnavailable
        The engine or reader asked for cannot run here; says why and what to do.
    """
    size = parse_bytes(page_bytes, "page_bytes")
    shared = cache if isinstance(cache, SharedCache) else None
    if shared is not None and shared.page_bytes != size:
        raise ConfigError("page_bytes", size, f"{shared.page_bytes}, as in the shared cache")
    # First with its own check, because a cache is sized in pages.
    StoreConfig(page_bytes=size, merge_bytes=max(size, 65536))
    config = StoreConfig(
        page_bytes=size,
        cache_lines=cache.n_lines if isinstance(cache, SharedCache) else parse_cache_lines(cache, size),
        policy=parse_kind("policy", policy, PolicyKind),
        engine=parse_kind("engine", engine, EngineKind),
        queue_depth=queue_depth,
        merge_bytes=parse_bytes(merge_bytes, "merge_bytes"),
        bridge_bytes=parse_bytes(bridge_bytes, "bridge_bytes"),
        timeout_s=timeout_s,
        close_timeout_s=close_timeout_s,
        staging_bytes=parse_bytes(staging_bytes, "staging_bytes"),
        seed=seed,
    )
    kind = parse_kind("device", device, DeviceKind)
    if kind is DeviceKind.CUDA:
        if shared is not None:
            raise ConfigError("cache", "a SharedCache", "a size, with device 'cuda'")
        description = as_source(source, dtype, shape).describe()
        return open_device_array(description, config, gpu or GpuSettings(), wrap)
    if gpu is not None:
        raise ConfigError("gpu", gpu, "None, but with device 'cuda'")
    settings = OpenSettings(config, parse_kind("reader", reader, ReaderKind), wrap, shared)
    array = VirtualArray(as_source(source, dtype, shape).describe(), settings)
    array.info()  # opens it: what cannot be opened is known here, not at the first row
    return array
