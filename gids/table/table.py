"""A table over one or many files: columns as virtual arrays, and rows chosen by a condition."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bam
from bam.errors import ConfigError
from gids.errors import TableError
from gids.table.arrow_file import ArrowFile, column_type
from gids.table.arrow_source import describe_column
from gids.table.parquet_footer import ColumnChunk, check_pages, footer_bytes, read_chunks
from gids.table.predicate import Column, Predicate
from gids.table.pyarrow_import import import_pyarrow
from gids.table.statistics import UNKNOWN, Bounds, read_bounds

logger = logging.getLogger(__name__)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows that a condition chose, and what finding them took.

    Attributes
    ----------
    condition : str
    rows : int64 array
        Row numbers in the table, rising.
    batches_loaded, batches_skipped : int
        Record batches (Parquet: row groups) that were read, and that the statistics excluded.
    bytes_read, bytes_in_table : int
        Bytes of the values that were read (Parquet: as they are stored), and of all files.
    """

    condition: str
    rows: npt.NDArray[np.int64]
    batches_loaded: int
    batches_skipped: int
    bytes_read: int
    bytes_in_table: int

    def __str__(self) -> str:
        return (
            f"{self.condition}: {len(self.rows):,} rows\n"
            f"  record batches: {self.batches_loaded} loaded, {self.batches_skipped} skipped by min/max\n"
            f"  bytes: {self.bytes_read:,} read of {self.bytes_in_table:,}"
        )


class Table(ABC):
    """Rows of files of one schema, one file after the other."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""

    @property
    @abstractmethod
    def batch_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each batch of all files."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Bytes of all files."""

    @abstractmethod
    def bounds(self, column: str) -> list[Bounds]:
        """Smallest and largest value of a column in each batch.

        Raises
        ------
        UnknownColumn, TableError
        """

    @abstractmethod
    def read(self, columns: Sequence[str], batch: int) -> tuple[dict[str, Column], int]:
        """Values of columns in one batch, and how many bytes they took.

        Raises
        ------
        UnknownColumn, TableError, bam.errors.StorageError
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the files; calling it again does nothing."""

    def __len__(self) -> int:
        """Rows of all files."""
        return int(self.batch_rows.sum())

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def where(self, condition: str) -> Selection:
        """Rows for which `condition` holds: reads its columns, and of them the batches that can match.

        Parameters
        ----------
        condition : str
            See :mod:`gids.table.predicate`: ``"year >= 2018 and lang == 3"``.

        Raises
        ------
        ConfigError, UnknownColumn, TableError, bam.errors.StorageError
        """
        predicate = Predicate(condition)
        bounds = {name: self.bounds(name) for name in predicate.columns}
        starts = np.cumsum([0, *self.batch_rows])
        rows, loaded, n_bytes = [np.empty(0, np.int64)], 0, 0
        for number, count in enumerate(self.batch_rows):
            if count == 0 or not predicate.may_match({name: each[number] for name, each in bounds.items()}):
                continue
            columns, read = self.read(predicate.columns, number)
            rows.append(starts[number] + np.flatnonzero(predicate.rows(columns)))
            loaded, n_bytes = loaded + 1, n_bytes + read
        skipped = len(self.batch_rows) - loaded
        chosen = Selection(condition, np.concatenate(rows), loaded, skipped, n_bytes, self.n_bytes)
        logger.info("%s", chosen)
        return chosen


class ArrowTable(Table):
    """Arrow IPC files, read in place.

    Parameters
    ----------
    paths : sequence of path

    Raises
    ------
    TableError
        A file is no Arrow IPC file, or its columns are not those of the first.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self.files = [ArrowFile(path) for path in paths]
        first = self.files[0]
        for file in self.files[1:]:
            if not file.schema.equals(first.schema, check_metadata=False):
                found = f"{file.schema.names}, or other types of them"
                raise TableError(file.path, f"the columns of {first.path}: {first.schema.names}", found)
        counts = [file.batch_rows for file in self.files]
        self._batch_rows: npt.NDArray[np.int64] = np.concatenate(counts)
        self._ends = np.cumsum([len(each) for each in counts])
        self._arrays: dict[str, bam.VirtualArray] = {}

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.files[0].schema.names)

    @property
    def batch_rows(self) -> npt.NDArray[np.int64]:
        return self._batch_rows

    @property
    def n_bytes(self) -> int:
        return sum(file.identity.bytes for file in self.files)

    def column(self, name: str, **settings: Any) -> bam.VirtualArray:
        """A column as a virtual array, shape (rows,) or (rows, length of the list); the caller closes it.

        Parameters
        ----------
        name : str
        **settings
            See :func:`bam.open_array`.

        Raises
        ------
        UnknownColumn, TableError, bam.errors.StorageError
        """
        array: bam.VirtualArray = bam.open_array(self.source(name), **settings)
        return array

    def source(self, name: str) -> bam.Source:
        """A column as a source of :func:`bam.open_array`, checked now."""
        return _Described(describe_column(self.files, name))

    def bounds(self, column: str) -> list[Bounds]:
        found = []
        for file in self.files:
            kind = column_type(import_pyarrow(), file.field(column).type)
            if kind is None or kind.dim is not None:
                raise TableError(file.path, "a column of numbers", f"type {file.field(column).type}", column)
            found += read_bounds(file.field(column).metadata, kind.dtype, len(file.batch_rows))
        return found

    def read(self, columns: Sequence[str], batch: int) -> tuple[dict[str, Column], int]:
        number = int(np.searchsorted(self._ends, batch, side="right"))
        inside = batch - int(self._ends[number]) + len(self.files[number].batch_rows)
        found, n_bytes = {}, 0
        for name in columns:
            values = self.files[number].batch_column(name, inside)
            kind = self.files[number].column_type(name)
            if values.null_count:
                raw = values.fill_null(0).to_numpy(zero_copy_only=False).astype(kind.dtype, copy=False)
                valid = values.is_valid().to_numpy(zero_copy_only=False)
                found[name] = Column(raw, valid)
            else:
                found[name] = Column(self._values(name, batch))
            n_bytes += len(values) * kind.row_bytes
        return found, n_bytes

    def _values(self, name: str, batch: int) -> npt.NDArray[Any]:
        """A batch's values read through bam: pread and its errors in the place of a page fault and SIGBUS."""
        if name not in self._arrays:
            self._arrays[name] = bam.open_array(
                _Described(describe_column(self.files, name, nulls=True)),
                cache="1MiB",
                # Batches are read from one end to the other, one column after the other.
                merge_bytes="1MiB",
                queue_depth=4,
                staging_bytes="8MiB",
            )
        start = int(self._batch_rows[:batch].sum())
        values: npt.NDArray[Any] = self._arrays[name][start : start + int(self._batch_rows[batch])]
        return values

    def close(self) -> None:
        for array in self._arrays.values():
            array.close()
        self._arrays.clear()
        for file in self.files:
            file.close()


class ParquetTable(Table):
    """Parquet files; row groups are read as a whole, column by column.

    Parameters
    ----------
    paths : sequence of path

    Raises
    ------
    TableError
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._pa = import_pyarrow()
        import pyarrow.parquet

        self.files = []
        for path in paths:
            try:
                # Lists and texts of the metadata are no longer than all of it: others are refused unmade.
                limit = max(2**16, footer_bytes(os.fspath(path)))
                opened = pyarrow.parquet.ParquetFile(
                    os.fspath(path),
                    thrift_container_size_limit=limit,
                    thrift_string_size_limit=max(2**20, limit),
                )
                self.files.append(opened)
            except (self._pa.ArrowException, OSError, ValueError) as error:
                raise TableError(os.fspath(path), "a Parquet file", str(error)[:200]) from error
        self._paths = [os.fspath(path) for path in paths]
        self._groups = [
            (number, group) for number, file in enumerate(self.files) for group in range(file.num_row_groups)
        ]
        first = self.files[0].schema_arrow
        for path, file in zip(self._paths, self.files, strict=True):
            if not file.schema_arrow.equals(first, check_metadata=False):
                raise TableError(path, f"the columns of {self._paths[0]}", "others, or other types")
        self.schema = first

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.schema.names)

    @property
    def batch_rows(self) -> npt.NDArray[np.int64]:
        counts = [self.files[file].metadata.row_group(group).num_rows for file, group in self._groups]
        return np.array(counts, np.int64)

    @property
    def n_bytes(self) -> int:
        return sum(os.path.getsize(path) for path in self._paths)

    @cached_property
    def _chunks(self) -> list[dict[str, ColumnChunk]]:
        """Column chunks of each row group of all files; those within structs are left out."""
        groups = [group for path in self._paths for group in read_chunks(path)]
        if len(groups) != len(self._groups):
            expected = f"{len(self._groups)} row groups, as pyarrow finds"
            raise TableError(self._paths[0], expected, f"{len(groups)}")
        return [{each.path[0]: each for each in group if len(each.path) == 1} for group in groups]

    def bounds(self, column: str) -> list[Bounds]:
        self._kind(column)
        kind = self.schema.field(column).type
        return [_parquet_bounds(self._chunk(group, column), kind) for group in range(len(self._groups))]

    def read(self, columns: Sequence[str], batch: int) -> tuple[dict[str, Column], int]:
        file, group = self._groups[batch]
        kinds = {name: self._kind(name) for name in columns}
        n_rows = self.files[file].metadata.row_group(group).num_rows
        for name in columns:
            check_pages(self._paths[file], self._chunk(batch, name), n_rows)
        try:
            read = self.files[file].read_row_group(group, columns=list(columns))
        except (self._pa.ArrowException, OSError) as error:
            raise TableError(self._paths[file], "a whole row group", str(error)[:200], batch=group) from error
        if read.num_rows != n_rows:
            found_rows = f"{read.num_rows}"
            raise TableError(self._paths[file], f"{n_rows} rows, as the footer says", found_rows, batch=group)
        found = {}
        for name, kind in kinds.items():
            values = read.column(name).combine_chunks()
            valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
            raw = (values.fill_null(0) if values.null_count else values).to_numpy(zero_copy_only=False)
            found[name] = Column(raw.astype(kind, copy=False), valid)
        n_bytes = sum(self._chunk(batch, name).compressed_bytes for name in columns)
        return found, n_bytes

    def _kind(self, column: str) -> np.dtype[Any]:
        from gids.errors import UnknownColumn

        if column not in self.schema.names:
            raise UnknownColumn(column, self.schema.names)
        kind = column_type(self._pa, self.schema.field(column).type)
        if kind is None or kind.dim is not None:
            found = f"type {self.schema.field(column).type}"
            raise TableError(self._paths[0], "a column of numbers", found, column)
        return kind.dtype

    def _chunk(self, batch: int, column: str) -> ColumnChunk:
        found = self._chunks[batch].get(column)
        if found is None:
            file, group = self._groups[batch]
            raise TableError(self._paths[file], "the column in every row group", "none", column, group)
        return found

    def close(self) -> None:
        for file in self.files:
            file.close()


@dataclass(frozen=True, eq=False)
class _Described(bam.Source):
    """A source that was described already."""

    description: Any

    def describe(self) -> Any:
        return self.description


def _parquet_bounds(chunk: ColumnChunk, kind: Any) -> Bounds:
    """Of whole numbers only: of floating point the format leaves zero's sign open, and NaN is skipped."""
    if 0 <= chunk.n_values == chunk.n_nulls:
        return Bounds(None, None)
    types = import_pyarrow().types
    if chunk.low is None or chunk.high is None or not types.is_signed_integer(kind) or chunk.low > chunk.high:
        return UNKNOWN
    return Bounds(chunk.low, chunk.high)


def open_table(paths: Paths) -> Table:
    """Open a file, a list of files, or a folder: its ``.arrow`` or ``.parquet`` files by name.

    Raises
    ------
    TableError, bam.errors.SourceError, ConfigError
    """
    listed = list(_listed(paths))
    if not listed:
        raise ConfigError("paths", str(paths), "at least one .arrow or .parquet file")
    kinds = {_is_parquet(path) for path in listed}
    if len(kinds) != 1:
        raise ConfigError("paths", str(paths), "files of one format")
    return ParquetTable(listed) if kinds.pop() else ArrowTable(listed)


def _listed(paths: Paths) -> Iterator[str]:
    for path in [paths] if isinstance(paths, (str, os.PathLike)) else paths:
        if Path(path).is_dir():
            names = [*Path(path).glob("*.arrow"), *Path(path).glob("*.parquet")]
            yield from sorted(map(str, names))
        else:
            yield os.fspath(path)


def _is_parquet(path: str) -> bool:
    """By content: the suffix of a name says nothing."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    except OSError as error:
        raise TableError(path, "a readable file", error.strerror or "an error") from error
