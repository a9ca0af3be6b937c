"""Writes Arrow IPC files with min/max statistics; the name leads to the old file or the whole new one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bam.errors import ConfigError
from gids.errors import TableError, UnknownColumn
from gids.graph.progress import Bar, Progress, no_progress
from gids.table.arrow_file import column_type
from gids.table.page_alignment import padding
from gids.table.pyarrow_import import import_pyarrow
from gids.table.statistics import MAX_KEY, MIN_KEY, Bounds, bounds_of, metadata_of

BATCH_ROWS = 65536


def write_arrow(
    path: str | os.PathLike[str], schema: Any, batches: Iterable[Any], *, stats: Sequence[str] = ()
) -> int:
    """Write record batches as one Arrow IPC file; returns its rows.

    With `stats` everything is written twice, since statistics stand before the batches. Memory: one batch.

    Parameters
    ----------
    path : path
        Replaced at once, when all is on disk.
    schema : pyarrow.Schema
    batches : iterable of pyarrow.RecordBatch
    stats : sequence of str
        Columns of numbers that get statistics.

    Raises
    ------
    UnknownColumn, TableError
        A column of `stats` is not there, or not of numbers. Nothing has been written.
    """
    kinds = {name: _statistics_type(str(path), schema, name) for name in stats}
    schema = _without_statistics(schema)
    first, second = _partial(path, 1), _partial(path, 2)
    try:
        found: dict[str, list[Bounds]] = {name: [] for name in stats}
        rows = _write(first, schema, _watched(batches, found, kinds))
        if stats:
            noted = _with_statistics(schema, found, kinds)
            _write(second, noted, (batch.cast(noted) for batch in _batches_of(first)))
        _publish(second if stats else first, Path(path))
    finally:
        for partial in (first, second):
            partial.unlink(missing_ok=True)
    return rows


def append_arrow(path: str | os.PathLike[str], batches: Iterable[Any]) -> int:
    """Add record batches to an Arrow IPC file; returns the rows it has then.

    Arrays that are open keep the old file; open them anew to see the rows. Columns with statistics keep them.
    A writer that dies leaves the old file. To add to a large table, add a file to its folder instead: this
    copies the file.

    Raises
    ------
    TableError
        The batches' columns are others.
    """
    pa = import_pyarrow()
    try:
        with pa.OSFile(os.fspath(path)) as file:
            schema = pa.ipc.open_file(file).schema
    except (pa.ArrowException, OSError) as error:
        raise TableError(os.fspath(path), "an Arrow IPC file", str(error)[:200]) from error
    stats = [field.name for field in schema if field.metadata and MIN_KEY in field.metadata]

    def both() -> Iterator[Any]:
        yield from _batches_of(Path(path))
        for batch in batches:
            if not batch.schema.equals(schema, check_metadata=False):
                raise TableError(os.fspath(path), f"columns {schema.names}", f"{batch.schema.names}")
            yield batch

    return write_arrow(path, schema, both(), stats=stats)


def convert_table(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    stats: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
    progress: Progress = no_progress,
) -> int:
    """Make an Arrow IPC file of Parquet, Arrow or CSV files; returns its rows. Memory: a few batches.

    Parameters
    ----------
    source : path
        A file, or a folder of files of one format (by suffix; without a known one: Arrow).
    path : path
    columns : sequence of str, optional
        Which, in this order; default all.
    stats : sequence of str
    batch_rows : int
        Rows of a record batch.
    progress : Progress
        Counts rows.

    Raises
    ------
    UnknownColumn, TableError, ConfigError
    """
    if batch_rows < 1:
        raise ConfigError("batch_rows", batch_rows, "a whole number from 1 on")
    pa = import_pyarrow()
    import pyarrow.dataset

    suffix = _suffix(Path(source))
    try:
        dataset = pyarrow.dataset.dataset(os.fspath(source), format=suffix)
        for name in columns or ():
            if name not in dataset.schema.names:
                raise UnknownColumn(name, dataset.schema.names)
        scanner = dataset.scanner(columns=None if columns is None else list(columns), batch_size=batch_rows)
        schema = scanner.projected_schema
        bar = progress(Path(path).name, dataset.count_rows(), 0)
        batches = even_batches(schema, scanner.to_batches(), batch_rows, bar)
        return write_arrow(path, schema, batches, stats=stats)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(os.fspath(source), f"{suffix} files", str(error)[:300]) from error


def even_batches(
    schema: Any, batches: Iterable[Any], batch_rows: int, bar: Bar | None = None
) -> Iterator[Any]:
    """Batches of `batch_rows` rows each, but for the last; `bar` counts rows."""
    held: list[Any] = []
    n_held = 0
    for batch in batches:
        while batch.num_rows:
            part = batch.slice(0, batch_rows - n_held)
            batch = batch.slice(part.num_rows)
            held.append(part)
            n_held += part.num_rows
            if bar is not None:
                bar.update(part.num_rows)
            if n_held == batch_rows:
                yield _joined(schema, held)
                held, n_held = [], 0
    if held:
        yield _joined(schema, held)


def _joined(schema: Any, parts: list[Any]) -> Any:
    table = import_pyarrow().Table.from_batches(parts, schema).combine_chunks()
    return table.to_batches()[0]


def _suffix(source: Path) -> str:
    names = [source] if source.is_file() else sorted(source.glob("*"))
    for name in names:
        if name.suffix in (".parquet", ".csv", ".arrow", ".feather"):
            return {".feather": "arrow"}.get(name.suffix, name.suffix[1:])
    return "arrow"


def _statistics_type(path: str, schema: Any, name: str) -> np.dtype[Any]:
    if schema.get_field_index(name) < 0:
        raise UnknownColumn(name, schema.names)
    kind = column_type(import_pyarrow(), schema.field(name).type)
    if kind is None or kind.dim is not None:
        raise TableError(path, "a column of numbers for statistics", f"type {schema.field(name).type}", name)
    return kind.dtype


def _watched(batches: Iterable[Any], found: dict[str, list[Bounds]], kinds: dict[str, Any]) -> Iterator[Any]:
    for batch in batches:
        for name, bounds in found.items():
            values = batch.column(batch.schema.get_field_index(name)).drop_null()
            numbers = values.to_numpy(zero_copy_only=False)
            bounds.append(bounds_of(numbers.astype(kinds[name], copy=False)))
        yield batch


def _without_statistics(schema: Any) -> Any:
    fields = []
    for field in schema:
        metadata = {
            key: text for key, text in (field.metadata or {}).items() if key not in (MIN_KEY, MAX_KEY)
        }
        fields.append(field.with_metadata(metadata or None) if field.metadata else field)
    return import_pyarrow().schema(fields, schema.metadata)


def _with_statistics(schema: Any, found: dict[str, list[Bounds]], kinds: dict[str, Any]) -> Any:
    for name, bounds in found.items():
        at = schema.get_field_index(name)
        field = schema.field(at)
        noted = {**(field.metadata or {}), **metadata_of(bounds, kinds[name])}
        schema = schema.set(at, field.with_metadata(noted or None))
    return schema


def _write(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    pa, rows = import_pyarrow(), 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for number, batch in enumerate(batches):
            writer.write_batch(batch, custom_metadata=padding(batch, file.tell() if number else None))
            rows += batch.num_rows
    return rows


def _batches_of(path: Path) -> Iterator[Any]:
    pa = import_pyarrow()
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


def _partial(path: str | os.PathLike[str], number: int) -> Path:
    target = Path(path)
    return target.with_name(f".{target.name}.{os.getpid()}.partial{number}")


def _publish(partial: Path, path: Path) -> None:
    """On disk first, then under its name: a power cut leaves one file or the other."""
    for place, flags in ((partial, os.O_RDONLY), (path.parent, os.O_RDONLY | os.O_DIRECTORY)):
        if place == path.parent:
            partial.replace(path)
        descriptor = os.open(place, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
