"""Where an Arrow IPC file keeps its columns: pyarrow parses, nothing but metadata is read.

Source: Arrow columnar format, "IPC File Format". A record batch that is not compressed holds each buffer as
it is in memory, so a column of fixed width is a run of bytes of the file.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import open_regular
from gids.errors import TableError, UnknownColumn
from gids.table.arrow_blocks import BatchFacts, read_blocks
from gids.table.pyarrow_import import import_pyarrow

#: Rows of a batch, at most: counts beyond are lies, and would overflow sizes.
_MOST_ROWS = 2**48
#: Compressed batches are refused; those that say they are larger, without decompressing them first.
_MOST_DECOMPRESSED_BYTES = 2**24
_COMPRESSED = "compressed ones or of another byte order; write them uncompressed, or convert"


@dataclass(frozen=True)
class ColumnType:
    """Values of a column: `dtype`, and how many make one row (None: one, without a dimension of its own)."""

    dtype: np.dtype[Any]
    dim: int | None

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * (1 if self.dim is None else self.dim)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return () if self.dim is None else (self.dim,)


@dataclass(frozen=True)
class ColumnRun:
    """Values of one column in one record batch: `length` bytes at `offset` of the file, `n_rows` rows."""

    batch: int
    n_rows: int
    offset: int
    length: int


class ArrowFile:
    """One Arrow IPC file. Holds a map of it until it is closed; values are not touched.

    Parameters
    ----------
    path : path

    Raises
    ------
    TableError
        It is not an Arrow IPC file, or is damaged.
    bam.errors.SourceError
        It cannot be opened.
    PackageMissing
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._pa = import_pyarrow()
        self.path = os.fspath(path)
        with open_regular(self.path) as (descriptor, self.identity):
            if self.identity.bytes == 0:
                raise TableError(self.path, "an Arrow IPC file", "an empty file")
            self._map = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        self._map.madvise(mmap.MADV_RANDOM)  # or metadata would drag megabytes of values along
        self._buffer = self._pa.py_buffer(self._map)
        self.schema = self._reader(None).schema
        self._blocks = read_blocks(memoryview(self._map))
        if any(map(_is_large, self._blocks.dictionaries)):
            # They would be decompressed at the first look at any batch.
            raise TableError(self.path, "dictionaries as they are in memory", _COMPRESSED)
        try:
            names: list[str] = self.schema.names
        except UnicodeDecodeError as error:
            raise TableError(self.path, "names of columns in UTF-8", str(error)) from error
        self._doubled = {name for name, count in Counter(names).items() if count > 1}

    @cached_property
    def batch_rows(self) -> npt.NDArray[np.int64]:
        """Rows of each record batch."""
        reader, facts = self._reader(None), self._blocks.batches
        rows = []
        for number in range(reader.num_record_batches):
            known = facts[number] if number < len(facts) else None
            if known is not None and _is_large(known):
                rows.append(known.n_rows)
            else:
                rows.append(self._batch(reader, number).num_rows)
        for number, count in enumerate(rows):
            if not 0 <= count < _MOST_ROWS:
                raise TableError(self.path, f"fewer than 2^48 rows in record batch {number}", str(count))
        return np.array(rows, np.int64)

    @property
    def n_rows(self) -> int:
        return int(self.batch_rows.sum())

    def field(self, column: str) -> Any:
        """pyarrow's field of a column.

        Raises
        ------
        UnknownColumn
        TableError
            Several columns have the name.
        """
        if column in self._doubled:
            raise TableError(self.path, "one column of the name", "several; rename them", column)
        if self.schema.get_field_index(column) < 0:
            raise UnknownColumn(column, self.schema.names)
        return self.schema.field(column)

    def column_type(self, column: str) -> ColumnType:
        """Element type and length of a row.

        Raises
        ------
        TableError
            Rows of it are not of one size, or not of numbers.
        """
        found = column_type(self._pa, self.field(column).type)
        if found is None:
            expected = "numbers, or a fixed-size list of numbers"
            raise TableError(self.path, expected, f"type {self.field(column).type}", column)
        return found

    def runs(self, column: str, *, nulls: bool = False) -> list[ColumnRun]:
        """Where the column's values lie, batch by batch; with `nulls` also those that stand for nothing.

        Raises
        ------
        TableError
            A batch is compressed, of another byte order or damaged, or values are missing (null) in it.
        """
        kind = self.column_type(column)
        # Of all columns: pyarrow copies the values when it is asked for some of them.
        self._require_plain(column)
        reader = self._reader(None)
        numbers = range(reader.num_record_batches)
        return [self._run(reader, column, kind, number, nulls) for number in numbers]

    def _run(self, reader: Any, column: str, kind: ColumnType, number: int, nulls: bool) -> ColumnRun:
        values = self._batch(reader, number).column(self.schema.get_field_index(column))
        missing = values.null_count
        if kind.dim is not None:
            # The child of a list is not cut to the list's rows.
            missing += values.flatten().null_count if values.null_count == 0 else 0
        if missing and not nulls:
            raise TableError(self.path, "a value in every row", f"{missing} nulls; fill them", column, number)
        data = values.buffers()[-1]
        needed = len(values) * kind.row_bytes
        offset = 0 if data is None else data.address - self._buffer.address
        if needed == 0:
            return ColumnRun(number, len(values), 0, 0)
        if data is None or data.size < needed:
            found = f"{0 if data is None else data.size}"
            raise TableError(self.path, f"{needed} bytes of values", found, column, number)
        start = offset + values.offset * kind.row_bytes
        if start < 0 or start + needed > self.identity.bytes:
            raise TableError(self.path, "values as they are in memory", _COMPRESSED, column, number)
        return ColumnRun(number, len(values), start, needed)

    def batch_column(self, column: str, number: int) -> Any:
        """One column of one record batch as pyarrow's array, over the map of the file."""
        self.field(column)
        self._require_plain(column)
        reader = self._reader([self.schema.get_field_index(column)])
        return self._batch(reader, number).column(0)

    def _require_plain(self, column: str) -> None:
        """Compressed batches are refused by the addresses of values; large ones before those are made."""
        for number, batch in enumerate(self._blocks.batches):
            if _is_large(batch):
                raise TableError(self.path, "values as they are in memory", _COMPRESSED, column, number)

    def _reader(self, fields: Sequence[int] | None) -> Any:
        options = self._pa.ipc.IpcReadOptions(included_fields=fields)
        try:
            return self._pa.ipc.open_file(self._pa.BufferReader(self._buffer), options=options)
        except (self._pa.ArrowException, ValueError, OSError) as error:
            raise TableError(self.path, "an Arrow IPC file", _first_line(error)) from error

    def _batch(self, reader: Any, number: int) -> Any:
        try:
            batch = reader.get_batch(number)
            batch.validate()
        except (self._pa.ArrowException, ValueError, OSError, MemoryError) as error:
            raise TableError(self.path, "a whole record batch", _first_line(error), batch=number) from error
        return batch

    def close(self) -> None:
        """Let go of the map; pyarrow's arrays over it keep it until they are gone."""
        self._buffer = None


def column_type(pa: Any, kind: Any) -> ColumnType | None:
    """What rows of an Arrow type are, or None where they are not numbers of one size."""
    if pa.types.is_fixed_size_list(kind):
        item = column_type(pa, kind.value_type)
        return None if item is None or item.dim is not None else ColumnType(item.dtype, kind.list_size)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return ColumnType(np.dtype(np.int32), None)
    if pa.types.is_date64(kind) or pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return ColumnType(np.dtype(np.int64), None)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return ColumnType(np.dtype(kind.to_pandas_dtype()), None)
    return None


def _is_large(batch: BatchFacts | None) -> bool:
    return batch is not None and batch.decompressed_bytes > _MOST_DECOMPRESSED_BYTES


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0][:200] or type(error).__name__
