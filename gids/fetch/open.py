"""Opens a data set's features for a loader: one cache for all node types, and the constant buffer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import bam
from bam.config import EngineKind, PolicyKind
from bam.errors import ConfigError
from bam.storage.bulk.settings import Destination
from bam.storage.engine import Engine
from gids.errors import did_you_mean
from gids.fetch.buffer_load import BULK_MERGE_BYTES, BufferLoad, BufferSource, FilledBuffer
from gids.fetch.bulk_rows import BulkRows, usable_settings
from gids.fetch.constant_buffer import ConstantBuffer, RowShape, choose_hot_rows, parse_share
from gids.fetch.device_model import SsdFacts
from gids.fetch.expected_requests import ExpectedRequests, load_expected_of
from gids.fetch.feature_store import FeatureStore
from gids.fetch.memory import available_memory_bytes
from gids.fetch.storage_model import storage_model
from gids.fetch.table import FeatureTable, MemoryTable, open_tables
from gids.fetch.window import RowIds
from gids.graph.dataset import Dataset, Features
from gids.graph.hotness import graph_degrees
from gids.graph.progress import Progress, no_progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeatureSettings:
    """How stored features are read; see docs/settings.md.

    Attributes
    ----------
    cache, cpu_buffer : int, str or float
        Bytes, a size, a share of the features, or ``"auto"``.
    engine : str
    page_bytes : int
    policy : str
    queue_depth : int
    contiguous : bool
        Whether pages that lie near each other are merged into longer reads.
    ssd : SsdFacts, optional
        In place of what `gids calibrate` measured.
    calibration : str
        Folder where it left that; empty: the data set's.
    bulk : BulkSettings, str or None
        How a constant buffer whose rows follow each other is filled. ``"auto"``: as `gids calibrate` found it
        best, else the defaults of :class:`bam.BulkSettings`. None: as other rows are read.
    wrap : callable, optional
        Takes each engine and returns the one to read through; see :func:`bam.open_array`.
    progress : Progress
        Of filling the constant buffer; called in the thread that does it.
    """

    cache: int | str | float = "auto"
    cpu_buffer: int | str | float = 0
    engine: str = "auto"
    page_bytes: int = 4096
    policy: str = "look_ahead_global"
    queue_depth: int = 256
    contiguous: bool = True
    ssd: SsdFacts | None = None
    calibration: str = ""
    bulk: bam.BulkSettings | str | None = "auto"
    wrap: Callable[[Engine], Engine] | None = None
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        """Raise ConfigError where a value cannot be, even if nothing will be opened with it."""
        if self.cache != "auto":
            parse_share(self.cache, 0, "cache")
        if self.cpu_buffer != "auto":
            parse_share(self.cpu_buffer, 0, "cpu_buffer")
        if self.bulk is not None and self.bulk != "auto" and not isinstance(self.bulk, bam.BulkSettings):
            raise ConfigError("bulk", self.bulk, "a bam.BulkSettings, 'auto', or None")
        for name, kinds in (("engine", EngineKind), ("policy", PolicyKind)):
            value, names = getattr(self, name), [kind.value for kind in kinds]
            if value not in names:
                expected = f"one of {', '.join(map(repr, names))}; {did_you_mean(str(value), names)}"
                raise ConfigError(name, value, expected)


def open_features(dataset: Dataset | None, settings: FeatureSettings) -> FeatureStore:
    """Features of all node types of a data set; without one, none.

    Raises
    ------
    ConfigError, StorageError
    """
    if dataset is None or not dataset.features:
        return FeatureStore({})
    in_memory, stored = _divided(dataset)
    requests = load_expected_of(dataset)
    if not stored:
        return FeatureStore(in_memory)
    total_bytes = sum(each.n_rows * each.row_bytes for each in stored.values())
    buffer_bytes = _buffer_bytes(settings, total_bytes)
    cache_bytes = _cache_bytes(settings, total_bytes)
    cache = bam.SharedCache(
        max(cache_bytes, settings.page_bytes), page_bytes=settings.page_bytes, policy=settings.policy
    )
    storage = storage_model(
        dataset.path,
        settings.page_bytes,
        contiguous=settings.contiguous,
        ssd=settings.ssd,
        calibration=settings.calibration,
    )
    tables = open_tables(
        stored,
        cache,
        engine=settings.engine,
        queue_depth=settings.queue_depth,
        merge_bytes=storage.rules.merge_bytes,
        bridge_bytes=storage.rules.bridge_bytes,
        wrap=settings.wrap,
    )
    try:
        buffers = _choose_buffers(dataset, tables, requests, buffer_bytes)
        load = start_load(stored, list(buffers.items()), settings, storage.bulk)
    except BaseException:
        for table in tables.values():
            table.close()
        raise
    n_pages = sum(-(-each.n_rows * each.row_bytes // settings.page_bytes) for each in stored.values())
    keeps_all = n_pages * settings.page_bytes <= cache_bytes
    return FeatureStore({**in_memory, **tables}, buffers, storage, keeps_all, requests, load)


def start_load(
    stored: Mapping[str, Features],
    buffers: Sequence[tuple[str, FilledBuffer]],
    settings: FeatureSettings,
    measured: Mapping[Destination, bam.BulkSettings],
) -> BufferLoad | None:
    """Fill buffers of tables by name.

    Long reads in file order, past the page cache, which is for what mini-batches ask for: rows that follow
    each other in bulk, as the settings say or as was measured to be best for that memory; else as any rows
    are read.
    """
    if not buffers:
        return None
    sources: list[BufferSource] = []
    try:
        for name, buffer in buffers:
            array = _load_from(stored[name], buffer, settings, measured)
            sources.append(BufferSource(buffer, array))
    except BaseException:
        for source in sources:
            source.array.close()
        raise
    return BufferLoad(sources, settings.progress)


def _load_from(
    features: Features,
    buffer: FilledBuffer,
    settings: FeatureSettings,
    measured: Mapping[Destination, bam.BulkSettings],
) -> bam.VirtualArray | BulkRows:
    description, first_row, destination = features.description, buffer.first_row, buffer.destination
    wrapped = settings.wrap is not None
    bulk = usable_settings(settings.bulk, measured.get(destination), wrapped=wrapped)
    if bulk is not None and first_row is not None and description.stored_dtype == description.dtype:
        return BulkRows(
            description,
            first_row,
            bulk,
            engine=settings.engine,
            wrap=settings.wrap,
            to_gpu=destination.on_gpu,
        )
    return bam.open_array(
        features.source,
        cache="1 lines",
        engine=settings.engine,
        page_bytes=settings.page_bytes,
        merge_bytes=max(BULK_MERGE_BYTES, settings.page_bytes),
        queue_depth=settings.queue_depth,
        wrap=settings.wrap,
    )


def _divided(dataset: Dataset) -> tuple[dict[str, FeatureTable], dict[str, Features]]:
    """Features that are in memory already, and those in files."""
    in_memory: dict[str, FeatureTable] = {}
    stored: dict[str, Features] = {}
    for name, each in dataset.features.items():
        if each.description.memory:
            rows = each.description.memory[0].view(each.dtype.stored).reshape(each.description.shape)
            in_memory[name] = MemoryTable(name, rows)
        else:
            stored[name] = each
    return in_memory, stored


def _buffer_bytes(settings: FeatureSettings, total_bytes: int) -> int:
    if settings.cpu_buffer == "auto":
        return min(available_memory_bytes() // 4, total_bytes)
    return parse_share(settings.cpu_buffer, total_bytes, "cpu_buffer")


def _cache_bytes(settings: FeatureSettings, total_bytes: int) -> int:
    if settings.cache == "auto":
        return min(available_memory_bytes() // 4, total_bytes + total_bytes // 4)
    return parse_share(settings.cache, total_bytes, "cache")


def _choose_buffers(
    dataset: Dataset,
    tables: Mapping[str, FeatureTable],
    requests: ExpectedRequests | None,
    buffer_bytes: int,
) -> dict[str, ConstantBuffer]:
    chosen = rows_to_hold(dataset, tables, requests, buffer_bytes)
    return {
        name: ConstantBuffer(tables[name], rows, load=False) for name, rows in chosen.items() if len(rows)
    }


def rows_to_hold(
    dataset: Dataset,
    tables: Mapping[str, RowShape],
    requests: ExpectedRequests | None,
    buffer_bytes: int,
) -> dict[str, RowIds]:
    """Constant rows of each stored table, within `buffer_bytes` of all."""
    if buffer_bytes == 0:
        return {}
    if requests is not None and all(name in requests.levels for name in tables):
        levels, degrees = {}, {name: requests.whole_counts(name) for name in tables}
    else:
        levels = {
            name: each.levels
            for name, each in dataset.features.items()
            if name in tables and each.levels is not None
        }
        degrees = {name: graph_degrees(dataset.graph, name) for name in tables if name not in levels}
    return choose_hot_rows(tables, levels, degrees, buffer_bytes)
