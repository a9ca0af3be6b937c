"""A column of Arrow files as a source of `bam.open_array`: record batches are extents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from bam.array.description import ArrayDescription, check_shape
from bam.array.sources import Source
from bam.errors import ConfigError
from bam.layout import Extent, Layout
from gids.errors import TableError
from gids.table.arrow_file import ArrowFile, ColumnType


@dataclass(frozen=True)
class ArrowSource(Source):
    """One column of one or more Arrow IPC files, read in place.

    Rows are the values of a numeric column, shape (rows,), or of a fixed-size list, shape (rows, length).

    Attributes
    ----------
    paths : path or sequence of path
        One table: rows of the files follow each other.
    column : str
    """

    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    column: str

    def describe(self) -> ArrayDescription:
        """See :meth:`bam.array.sources.Source.describe`.

        Raises
        ------
        TableError, UnknownColumn
        """
        given = [self.paths] if isinstance(self.paths, (str, os.PathLike)) else list(self.paths)
        if not given:
            raise ConfigError("paths", given, "at least one file")
        files = [ArrowFile(path) for path in given]
        try:
            return describe_column(files, self.column)
        finally:
            for file in files:
                file.close()


def describe_column(files: Sequence[ArrowFile], column: str, *, nulls: bool = False) -> ArrayDescription:
    """The column over all files; see :class:`ArrowSource`. With `nulls` values may stand for nothing."""
    kinds = [file.column_type(column) for file in files]
    for file, kind in zip(files, kinds, strict=True):
        if kind != kinds[0]:
            raise TableError(file.path, f"{_text(kinds[0])}, as in {files[0].path}", _text(kind), column)
    extents, n_rows, position = [], 0, 0
    for number, file in enumerate(files):
        for run in file.runs(column, nulls=nulls):
            n_rows += run.n_rows
            if run.length:
                extents.append(Extent(position, run.length, number, run.offset))
                position += run.length
    shape = (n_rows, *kinds[0].row_shape)
    check_shape(files[0].path, shape, kinds[0].dtype)
    layout = Layout(tuple(file.path for file in files), position, tuple(extents))
    return ArrayDescription(shape, kinds[0].dtype, layout, tuple(file.identity for file in files))


def _text(kind: ColumnType) -> str:
    return f"{kind.dtype}" + ("" if kind.dim is None else f"[{kind.dim}]")
