"""Opens what an array reads through: engine, cache and reader, for the description at hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from bam.array.description import ArrayDescription
from bam.array.device import DeviceArray, check_for_gpu, check_rows
from bam.array.device_group import DeviceGroup, JoinedLayout
from bam.array.reader import RowReader
from bam.array.reference_reader import ReferenceReader
from bam.array.shared_reader import OpenReader
from bam.array.sources import as_source
from bam.cache.device.gpu import Gpu
from bam.cache.device.settings import GpuSettings
from bam.cache.device.store import DeviceStore
from bam.cache.geometry import MAX_PAGE_ID, MAX_WAYS
from bam.cache.open import CacheKind, open_cache
from bam.cache.settings import CacheSettings
from bam.cache.shared import CacheLease, SharedCache
from bam.config import EngineKind, ReaderKind, StoreConfig
from bam.errors import ConfigError, NativeLibraryMissing
from bam.native import available
from bam.stats import ArrayInfo
from bam.storage.engine import Engine
from bam.storage.memory import MemoryEngine, NativeMemoryEngine
from bam.storage.native import NativeEngine
from bam.storage.open import open_engine

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenSettings:
    """How an array is opened, here or again in another process.

    Attributes
    ----------
    config : StoreConfig
    reader : ReaderKind
    wrap : callable, optional
        Takes the engine and returns the one to read through; the array closes both. Must be picklable if the
        array is to be sent to other processes.
    shared_cache : SharedCache, optional
        Read through it and not through a cache of the array's own.
    """

    config: StoreConfig
    reader: ReaderKind = ReaderKind.AUTO
    wrap: Callable[[Engine], Engine] | None = None
    shared_cache: SharedCache | None = None


def open_reader(description: ArrayDescription, settings: OpenSettings) -> OpenReader:
    """Open engine, cache and reader.

    Raises
    ------
    FileChangedError
        A file is not the one that was described.
    NativeLibraryMissing, EngineUnavailable, ConfigError
    """
    config = settings.config
    n_pages = -(-description.layout.logical_bytes // config.page_bytes)
    if n_pages > MAX_PAGE_ID:
        raise ConfigError("page_bytes", config.page_bytes, f"pages so large that {MAX_PAGE_ID} are enough")
    with ExitStack() as opened:  # closed again if anything below fails
        files_engine = open_engine_of(description, config.engine)
        opened.callback(files_engine.close)
        engine = files_engine if settings.wrap is None else settings.wrap(files_engine)
        opened.callback(engine.close)
        # After the opening: so the files that are open are the ones described.
        description.check_files()
        native, notes = _choose_reader(engine, settings.reader)
        lease = _lease_cache(settings, n_pages, CacheKind.HOST if native else CacheKind.REFERENCE)
        owns_cache = settings.shared_cache is None
        if owns_cache:
            opened.callback(lease.cache.close)
        reader = _make_reader(native, description, engine, lease, config)
        opened.callback(reader.close)
        reader_notes = reader.notes()
        for note in reader_notes:
            logger.warning("%s", note)
        info = ArrayInfo(
            reader="native" if native else "reference",
            cache="host" if native else "reference",
            policy=lease.cache.policy.value,
            page_bytes=lease.cache.page_bytes,
            cache_lines=lease.cache.n_pages,
            engine=engine.info(),
            notes=(*notes, *reader_notes),
        )
        opened.pop_all()
    return OpenReader(reader, lease.cache, engine, files_engine, info, owns_cache)


def open_device_array(
    description: ArrayDescription,
    config: StoreConfig,
    settings: GpuSettings,
    wrap: Callable[[Engine], Engine] | None = None,
    gpu: Gpu | None = None,
) -> DeviceArray:
    """Open engine, GPU and store.

    Parameters
    ----------
    gpu : Gpu, optional
        By default the current one, through CuPy. Owned by the array.

    Raises
    ------
    EngineUnavailable, NativeLibraryMissing, ConfigError, FileChangedError
    """
    with ExitStack() as opened:
        if gpu is not None:
            opened.callback(gpu.close)
        native, store = _open_store(opened, description, config, settings, wrap, gpu)
        closing = ExitStack()
        array = DeviceArray(description, config, settings, store, native, closing)
        # Not before: filling the constant buffer can fail, and then nobody else would close all this.
        closing.push(opened.pop_all())
        return array


def open_device_group(
    descriptions: Mapping[str, ArrayDescription],
    config: StoreConfig,
    settings: GpuSettings,
    wrap: Callable[[Engine], Engine] | None = None,
    gpu: Gpu | None = None,
    in_place: Mapping[str, ArrayDescription] | None = None,
) -> DeviceGroup:
    """One engine, GPU and store for several arrays; as :func:`open_device_array`.

    `in_place`: further arrays, in the host's memory, which kernels read there.
    """
    with ExitStack() as opened:
        if gpu is not None:
            opened.callback(gpu.close)
        for name, each in (in_place or {}).items():
            check_rows(each)
            if len(each.memory) != 1:
                raise ConfigError(f"in_place[{name!r}]", each.layout.files[0], "an array in memory")
        first_bytes: tuple[int, ...] = ()
        if descriptions or not in_place:
            whole, first_bytes = _joined(descriptions, config, settings)
        else:  # a store has pages, even if nobody asks for any
            whole = as_source(np.zeros((1, config.page_bytes), np.uint8)).describe()
        native, store = _open_store(opened, whole, config, settings, wrap, gpu)
        closing = ExitStack()
        group = DeviceGroup(descriptions, first_bytes, in_place or {}, store, native, closing)
        # Not before: registering memory can fail, and then nobody else would close all this.
        closing.push(opened.pop_all())
        return group


def _joined(
    descriptions: Mapping[str, ArrayDescription], config: StoreConfig, settings: GpuSettings
) -> tuple[ArrayDescription, tuple[int, ...]]:
    """The bytes of all arrays as one, and where each begins."""
    if not descriptions:
        raise ConfigError("sources", {}, "at least one array")
    if settings.constant_rows:
        raise ConfigError("constant_rows", settings.constant_rows, "0 for a group of arrays")
    for description in descriptions.values():
        check_rows(description)
    joined = JoinedLayout.of([each.layout for each in descriptions.values()], config.page_bytes)
    files = tuple(file for each in descriptions.values() for file in each.files)
    memory = tuple(region for each in descriptions.values() for region in each.memory)
    if (files and memory) or any(each.opener is not None for each in descriptions.values()):
        raise ConfigError("sources", list(descriptions), "all arrays in files, or all in memory")
    shape = (joined.layout.logical_bytes,)
    return ArrayDescription(shape, np.dtype(np.uint8), joined.layout, files, memory), joined.first_bytes


def _open_store(
    opened: ExitStack,
    description: ArrayDescription,
    config: StoreConfig,
    settings: GpuSettings,
    wrap: Callable[[Engine], Engine] | None,
    gpu: Gpu | None,
) -> tuple[NativeEngine, DeviceStore]:
    """The pages of a description on a GPU; `opened` closes what was opened."""
    if not available():
        raise NativeLibraryMissing("device='cuda'")
    if gpu is None:
        from bam.cache.device.cupy_gpu import CupyGpu

        gpu = CupyGpu()
        opened.callback(gpu.close)
    files_engine = open_engine_of(description, config.engine)
    opened.callback(files_engine.close)
    engine = files_engine if wrap is None else wrap(files_engine)
    opened.callback(engine.close)
    description.check_files()
    native = check_for_gpu(description, engine)
    n_pages = -(-description.layout.logical_bytes // config.page_bytes)
    lines = min(config.cache_lines, 2 * n_pages + MAX_WAYS)
    cache = CacheSettings(lines, config.page_bytes, config.policy, config.seed)
    run = description.run if wrap is None else None  # a wrapper sees what an engine reads
    store = DeviceStore(
        gpu,
        native,
        description.layout,
        cache,
        config.page_bytes,
        settings,
        config.timeout_s,
        run,
        config.close_timeout_s,
    )
    opened.callback(store.close)
    return native, store


def _lease_cache(settings: OpenSettings, n_pages: int, kind: CacheKind) -> CacheLease:
    """The array's part of a shared cache, or a cache of its own."""
    config = settings.config
    if settings.shared_cache is not None:
        return settings.shared_cache.lease(n_pages, kind)
    cache = open_cache(
        kind,
        # With twice as many lines as pages no set overflows; more would only take memory.
        n_lines=min(config.cache_lines, 2 * n_pages + MAX_WAYS),
        page_bytes=config.page_bytes,
        policy=config.policy,
        seed=config.seed,
    )
    return CacheLease(cache, 0)


def open_engine_of(description: ArrayDescription, kind: EngineKind) -> Engine:
    """The engine of that name over what holds an array's bytes.

    Raises
    ------
    ConfigError, EngineUnavailable, SourceError
    """
    if description.opener is not None:
        if kind is not EngineKind.AUTO:
            raise ConfigError("engine", kind.value, "'auto': this source brings its engine")
        return description.opener()
    if description.files:
        return open_engine(kind, [file.path for file in description.files])
    if kind not in (EngineKind.AUTO, EngineKind.MEMORY):
        raise ConfigError("engine", kind.value, "'auto' or 'memory' for an array in memory")
    return NativeMemoryEngine(description.memory) if available() else MemoryEngine(description.memory)


def _choose_reader(engine: Engine, kind: ReaderKind) -> tuple[bool, tuple[str, ...]]:
    """Whether to read natively; and why not, if that was wanted."""
    if kind is ReaderKind.REFERENCE:
        return False, ()
    if isinstance(engine, NativeEngine):
        return True, ()
    if kind is ReaderKind.NATIVE and not available():
        raise NativeLibraryMissing("native reader")
    if kind is ReaderKind.NATIVE:
        raise ConfigError("reader", kind.value, "an engine in C++ below it, without wrappers in Python")
    reason = "the engine is in plain Python" if available() else "the native library was not built"
    note = f"the reference reader, which is slow, runs because {reason}"
    logger.warning("%s", note)
    return False, (note,)


def _make_reader(
    native: bool, description: ArrayDescription, engine: Engine, lease: CacheLease, config: StoreConfig
) -> RowReader:
    if not native:
        return ReferenceReader(description.layout, engine, lease.cache, config, lease.first_page_id)
    # Imported here: without the library there is nothing to import it for.
    from bam.array.native_reader import NativeReader
    from bam.cache.host import HostCache

    assert isinstance(engine, NativeEngine)
    assert isinstance(lease.cache, HostCache)
    return NativeReader(description.layout, engine, lease.cache, config, lease.first_page_id)
