"""Opens what an array reads through: engine, cache and reader, for the description at hand."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from bam.array.description import ArrayDescription
from bam.array.reader import RowReader
from bam.array.reference_reader import ReferenceReader
from bam.array.shared_reader import OpenReader
from bam.cache.geometry import MAX_PAGE_ID, MAX_WAYS
from bam.cache.open import CacheKind, open_cache
from bam.cache.page_cache import PageCache
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
        Takes the engine and returns the one to read through, which owns it. Must be picklable if the array is
        to be sent to other processes.
    """

    config: StoreConfig
    reader: ReaderKind = ReaderKind.AUTO
    wrap: Callable[[Engine], Engine] | None = None


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
    engine = _open_engine(description, settings)
    try:
        # After the opening: so the files that are open are the ones described.
        description.check_files()
        native, notes = _choose_reader(engine, settings.reader)
        cache = open_cache(
            CacheKind.HOST if native else CacheKind.REFERENCE,
            # With twice as many lines as pages no set overflows; more would only take memory.
            n_lines=min(config.cache_lines, 2 * n_pages + MAX_WAYS),
            page_bytes=config.page_bytes,
            policy=config.policy,
            seed=config.seed,
        )
    except BaseException:
        engine.close()
        raise
    try:
        reader = _make_reader(native, description, engine, cache, config)
    except BaseException:
        cache.close()
        engine.close()
        raise
    info = ArrayInfo(
        reader="native" if native else "reference",
        cache="host" if native else "reference",
        policy=config.policy.value,
        page_bytes=cache.page_bytes,
        cache_lines=cache.n_lines,
        engine=engine.info(),
        notes=notes,
    )
    return OpenReader(reader, cache, engine, info)


def _open_engine(description: ArrayDescription, settings: OpenSettings) -> Engine:
    kind = settings.config.engine
    engine: Engine
    if description.files:
        engine = open_engine(kind, [file.path for file in description.files])
    elif kind not in (EngineKind.AUTO, EngineKind.MEMORY):
        raise ConfigError("engine", kind.value, "'auto' or 'memory' for an array in memory")
    else:
        engine = (NativeMemoryEngine if available() else MemoryEngine)(description.memory)
    if settings.wrap is None:
        return engine
    try:
        return settings.wrap(engine)
    except BaseException:
        engine.close()
        raise


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
    native: bool, description: ArrayDescription, engine: Engine, cache: PageCache, config: StoreConfig
) -> RowReader:
    if not native:
        return ReferenceReader(description.layout, engine, cache, config)
    # Imported here: without the library there is nothing to import it for.
    from bam.array.native_reader import NativeReader
    from bam.cache.host import HostCache

    assert isinstance(engine, NativeEngine)
    assert isinstance(cache, HostCache)
    return NativeReader(description.layout, engine, cache, config)
