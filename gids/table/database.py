"""Results of queries as Arrow files: PostgreSQL and SQLite over ADBC, DuckDB by its own Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from bam.errors import ConfigError
from gids.errors import DatabaseError, PackageMissing, UnknownColumn
from gids.graph.progress import Progress, no_progress
from gids.table.pyarrow_import import import_pyarrow
from gids.table.write import BATCH_ROWS, even_batches, write_arrow


def import_query(
    uri: str,
    queries: str | Sequence[str],
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    stats: Sequence[str] = (),
    batch_rows: int = BATCH_ROWS,
    progress: Progress = no_progress,
) -> int:
    """Write what a query returns as one Arrow IPC file, which is there as a whole or not at all.

    Streamed: memory for a few batches. Several queries give one wide table, joined on `key` (PostgreSQL
    returns at most 1,664 columns a query): each must return the same keys in the same order, so order them by
    it.

    Parameters
    ----------
    uri : str
        ``postgresql://user@host/database``, ``sqlite:///file`` or ``duckdb:///file`` (opened for reading).
    queries : str or sequence of str
    path : path
    key : str, optional
        Column that all queries return; needed with several.
    stats : sequence of str
        Columns that get min/max statistics.
    batch_rows : int
        Rows of a record batch.
    progress : Progress
        Counts rows; a query's number of rows is not known before its end.

    Returns
    -------
    int
        Rows written.

    Raises
    ------
    DatabaseError
        The database cannot be reached, refuses a query, or the keys of the queries differ.
    ConfigError, UnknownColumn, TableError, PackageMissing
    """
    texts = [queries] if isinstance(queries, str) else list(queries)
    if not texts or (len(texts) > 1 and key is None):
        raise ConfigError("key", key, "a column that all queries return, to join them on")
    if batch_rows < 1:
        raise ConfigError("batch_rows", batch_rows, "a whole number from 1 on")
    connect, shown = _door(uri), without_password(uri)
    with ExitStack() as opened, _named(shown):
        readers = [opened.enter_context(connect(uri, text, batch_rows)) for text in texts]
        bar = progress(os.path.basename(path), 0, 0)
        schema = _joined_schema([reader.schema for reader in readers], key, shown)
        batches = _joined(readers, schema, key, batch_rows, shown, bar)
        rows = write_arrow(path, schema, batches, stats=stats)
        bar.close()
    return rows


def without_password(uri: str) -> str:
    """The address as it may stand in a message."""
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{place}"))


def _door(uri: str) -> Callable[[str, str, int], Any]:
    scheme = urlsplit(uri).scheme
    doors = {"postgresql": _adbc, "postgres": _adbc, "sqlite": _adbc, "duckdb": _duckdb}
    if scheme not in doors:
        raise ConfigError("uri", without_password(uri), "postgresql://…, sqlite:///file or duckdb:///file")
    return doors[scheme]


_DRIVERS = ("adbc_driver_manager", "duckdb", "_duckdb", "pyarrow")


@contextmanager
def _named(shown: str) -> Iterator[None]:
    """A driver's own errors, typed; with the address, and without its password."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _DRIVERS:
            raise
        raise DatabaseError(shown, " ".join(str(error).split())[:500]) from error


@contextmanager
def _adbc(uri: str, query: str, batch_rows: int) -> Iterator[Any]:
    is_sqlite = urlsplit(uri).scheme == "sqlite"
    package = "adbc_driver_sqlite" if is_sqlite else "adbc_driver_postgresql"
    driver = _imported(f"{package}.dbapi", package.replace("_", "-"))
    if is_sqlite:
        place = _local_file(uri)
        connection = driver.connect(f"file:{place}?mode=ro")
    else:
        connection = driver.connect(uri)
    with closing(connection), closing(connection.cursor()) as cursor:
        if is_sqlite:
            # A column's type is decided by the first rows, so by as many as make a batch.
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": batch_rows})
        cursor.execute(query)
        yield cursor.fetch_record_batch()


@contextmanager
def _duckdb(uri: str, query: str, batch_rows: int) -> Iterator[Any]:
    duckdb = _imported("duckdb", "duckdb")
    with closing(duckdb.connect(_local_file(uri), read_only=True)) as connection:
        result = connection.sql(query)
        stream = getattr(result, "to_arrow_reader", None) or result.fetch_arrow_reader
        yield stream(batch_rows)


def _local_file(uri: str) -> str:
    path = urlsplit(uri).path
    path = path[1:] if path.startswith("//") or not os.path.isabs(path) else path
    if not os.path.isfile(path):
        raise DatabaseError(uri, f"there is no file {path}")
    return path


def _imported(module: str, package: str) -> Any:
    import importlib

    import_pyarrow()
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = f"pip install 'gids-bam[databases]' (or {package})"
        raise PackageMissing(package, "reading this database", remedy) from error


def _joined_schema(schemas: Sequence[Any], key: str | None, shown: str) -> Any:
    if len(schemas) == 1:
        return schemas[0]
    fields: dict[str, Any] = {}
    for schema in schemas:
        if key not in schema.names:
            raise UnknownColumn(str(key), schema.names)
        for field in schema:
            if field.name in fields and field.name != key:
                raise DatabaseError(
                    shown, f"column {field.name!r} comes from two queries; name one differently"
                )
            fields.setdefault(field.name, field)
    return import_pyarrow().schema(list(fields.values()))


def _joined(
    readers: Sequence[Any], schema: Any, key: str | None, batch_rows: int, shown: str, bar: Any
) -> Iterator[Any]:
    """Batches of all queries side by side; their keys must be equal row by row."""
    streams = [
        even_batches(reader.schema, reader, batch_rows, bar if reader is readers[0] else None)
        for reader in readers
    ]
    row = 0
    for parts in zip_longest(*streams):
        if len({None if part is None else part.num_rows for part in parts}) > 1:
            raise DatabaseError(shown, f"the queries return different numbers of rows; {_ORDER}")
        columns: dict[str, Any] = {}
        for part in parts:
            if key is not None and not part.column(key).equals(parts[0].column(key)):
                where = f"within rows {row} to {row + part.num_rows}"
                raise DatabaseError(shown, f"values of {key!r} differ {where}; {_ORDER}")
            columns = {**dict(zip(part.schema.names, part.columns, strict=True)), **columns}
        yield import_pyarrow().record_batch([columns[name] for name in schema.names], schema=schema)
        row += parts[0].num_rows


_ORDER = "let all queries return the same keys, ORDER BY the key"
