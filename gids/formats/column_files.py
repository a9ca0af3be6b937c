"""Columns of CSV, Parquet and Arrow files, a batch at a time, by pyarrow's datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gids.errors import DatasetError, TableError, UnknownColumn
from gids.table.pyarrow_import import import_pyarrow

SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
_BATCH_ROWS = 32768


class ColumnFiles:
    """One table in one or more files of one format.

    Parameters
    ----------
    files : sequence of Path
    text : sequence of str
        Columns that are taken as text where the format leaves that open (CSV): "007" stays that.

    Raises
    ------
    TableError
    PackageMissing
    """

    def __init__(self, files: Sequence[Path], text: Sequence[str] = ()) -> None:
        self._pa = import_pyarrow()
        import pyarrow.csv
        import pyarrow.dataset

        self.where = str(files[0])
        kinds = {SUFFIXES.get(file.suffix.lower(), "") for file in files}
        if len(kinds) != 1 or "" in kinds:
            raise TableError(self.where, f"files of one format: {', '.join(SUFFIXES)}", "others")
        kind: Any = kinds.pop()
        if kind == "csv":
            types = {name: self._pa.string() for name in text}
            convert = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            kind = pyarrow.dataset.CsvFileFormat(convert_options=convert)
        try:
            self._dataset = pyarrow.dataset.dataset([str(file) for file in files], format=kind)
            self.names: list[str] = self._dataset.schema.names
        except (self._pa.ArrowException, OSError, ValueError) as error:
            raise TableError(self.where, "a table", _short(error)) from error

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of some columns, in the order of rows.

        Raises
        ------
        UnknownColumn, TableError
        """
        for name in columns:
            if name not in self.names:
                raise UnknownColumn(name, self.names)
        try:
            # One batch at a time, one file after the other: order and memory are kept.
            scanner = self._dataset.scanner(
                columns=list(columns),
                batch_size=_BATCH_ROWS,
                use_threads=False,
                batch_readahead=1,
                fragment_readahead=1,
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch
        except (self._pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, DatasetError):
                raise
            raise TableError(self.where, "a table that can be read", _short(error)) from error

    def count(self) -> int:
        """Rows.

        Raises
        ------
        TableError
        """
        try:
            return int(self._dataset.count_rows())
        except (self._pa.ArrowException, OSError, ValueError) as error:
            raise TableError(self.where, "a table that can be read", _short(error)) from error

    def kind(self, column: str) -> Any:
        """pyarrow's type of a column.

        Raises
        ------
        UnknownColumn
        """
        if column not in self.names:
            raise UnknownColumn(column, self.names)
        return self._dataset.schema.field(column).type

    def width(self, column: str) -> int:
        """Numbers of a column in a row.

        Raises
        ------
        TableError
            It is neither a number nor a fixed-size list.
        """
        kind, types = self.kind(column), self._pa.types
        if types.is_fixed_size_list(kind):
            return int(kind.list_size)
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
            return 1
        raise TableError(self.where, "numbers, or a fixed-size list of numbers", f"type {kind}", column)

    def rows(self, columns: Sequence[str], dtype: npt.DTypeLike) -> Iterator[npt.NDArray[Any]]:
        """Columns side by side: shape (n, sum of widths)."""
        widths = [self.width(name) for name in columns]
        first = 0
        for batch in self.batches(columns):
            rows = np.empty((batch.num_rows, sum(widths)), dtype)
            at = 0
            for name, values, width in zip(columns, batch.columns, widths, strict=True):
                rows[:, at : at + width] = self._numbers(name, values, width, first)
                at += width
            first += len(rows)
            yield rows

    def _numbers(self, name: str, values: Any, width: int, first: int) -> npt.NDArray[Any]:
        flat = values.flatten() if self._pa.types.is_fixed_size_list(values.type) else values
        if values.null_count or flat.null_count or len(flat) != len(values) * width:
            expected = "a value in every row"
            raise TableError(self.where, expected, f"nulls from row {first} on; fill them", name)
        found: npt.NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(values), width)
        if found.dtype.kind not in "fiub":
            raise TableError(self.where, "numbers", str(found.dtype), name)
        return found


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
