"""Choosing what bulk reads go through."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from bam.config import EngineKind
from bam.errors import ConfigError, EngineUnavailable
from bam.layout import Layout
from bam.storage.bulk.kvikio_reader import KvikioBulkReader
from bam.storage.bulk.native import NativeBulkReader
from bam.storage.bulk.reader import BulkReader
from bam.storage.bulk.settings import BulkEngineKind, BulkSettings
from bam.storage.engine import Engine
from bam.storage.open import open_engine

logger = logging.getLogger(__name__)


def open_bulk_reader(
    layout: Layout,
    settings: BulkSettings,
    *,
    paths: Sequence[str] = (),
    opener: Callable[[], Engine] | None = None,
    engine: EngineKind = EngineKind.AUTO,
    wrap: Callable[[Engine], Engine] | None = None,
    to_gpu: bool = False,
) -> BulkReader:
    """Open what reads a layout's files in bulk.

    Parameters
    ----------
    layout : Layout
    settings : BulkSettings
    paths : sequence of str
        Its files, by number.
    opener : callable, optional
        Opens the engine, where it is not files that are read.
    engine : EngineKind
        Which engine of this package reads, where one does. ``auto``: the fastest for direct reads; through
        the page cache `file`, since a read that finds its bytes there needs no queue.
    wrap : callable, optional
        Takes that engine and returns the one to read through; it is closed with the reader.
    to_gpu : bool
        Whether the bytes are for a GPU's memory, for which ``auto`` takes kvikio.

    Returns
    -------
    BulkReader

    Raises
    ------
    EngineUnavailable
        The engine named cannot run here; says why and what to do.
    ConfigError
        kvikio reads files, and no wrappers of engines.
    SourceError
        A file cannot be read.
    """
    plain_files = bool(paths) and wrap is None
    notes: tuple[str, ...] = ()
    if settings.kind is BulkEngineKind.KVIKIO:
        if not plain_files:
            raise ConfigError("engine", "kvikio", "'native' for what is not in files, and with wrappers")
        return KvikioBulkReader(paths, layout, settings)
    if settings.kind is BulkEngineKind.AUTO and to_gpu and plain_files:
        try:
            return KvikioBulkReader(paths, layout, settings)
        except EngineUnavailable as refusal:
            notes = (f"'native' reads because kvikio is not available: {refusal.reason}. {refusal.remedy}",)
            logger.warning("%s", notes[0])
    if opener is None:
        kind = EngineKind.FILE if engine is EngineKind.AUTO and not settings.direct else engine
        opened = open_engine(kind, paths, direct=settings.direct, threads=1)
    else:
        opened = opener()
    try:
        if wrap is None:
            return NativeBulkReader(opened, layout, settings, notes)
        return NativeBulkReader(wrap(opened), layout, settings, notes, inner=opened)
    except BaseException:
        opened.close()
        raise
