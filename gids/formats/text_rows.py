"""Numbers in CSV files without a header line, compressed or not, a few megabytes at a time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bam.array.description import open_regular
from gids.errors import DatasetError
from gids.formats.staging import Staging
from gids.table.pyarrow_import import import_pyarrow

#: Longest first line; a row of 100,000 numbers fits.
_MOST_LINE_BYTES = 4 * 2**20


def csv_file(folder: Path, name: str) -> Path | None:
    """``name.csv.gz`` or ``name.csv``, whichever is there."""
    found = [path for path in (folder / f"{name}.csv.gz", folder / f"{name}.csv") if path.is_file()]
    return found[0] if found else None


def require_csv(folder: Path, name: str) -> Path:
    """The same, and an error where there is neither.

    Raises
    ------
    DatasetError
    """
    found = csv_file(folder, name)
    if found is None:
        raise DatasetError(str(folder / f"{name}.csv.gz"), "a CSV file, compressed by gzip or not", "none")
    return found


def first_line(path: Path) -> list[str]:
    """Fields of the first line; none of an empty file.

    Raises
    ------
    DatasetError, bam.errors.SourceError
    """
    lines = first_lines(path, 1)
    return lines[0] if lines else []


def first_lines(path: Path, count: int) -> list[list[str]]:
    """Fields of the first lines that are not empty, at most `count` of them.

    Raises
    ------
    DatasetError, bam.errors.SourceError
    """
    found = []
    with open_regular(str(path)):
        pass
    try:
        with ExitStack() as opened:
            plain: IO[bytes] = opened.enter_context(open(path, "rb"))
            stream = opened.enter_context(gzip.open(plain)) if path.suffix == ".gz" else plain
            for _ in range(count):
                line = stream.readline(_MOST_LINE_BYTES)
                if len(line) >= _MOST_LINE_BYTES:
                    raise DatasetError(str(path), f"lines below {_MOST_LINE_BYTES} bytes", "a longer one")
                if text := line.decode("utf-8").strip():
                    found.append([field.strip() for field in text.split(",")])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DatasetError(str(path), "a CSV file", str(error)) from error
    return found


def csv_numbers(
    path: Path, dtype: npt.DTypeLike, columns: int, staging: Staging, *, header: bool = False
) -> Iterator[npt.NDArray[Any]]:
    """Rows of numbers, shape (n, columns) of `dtype`: int64 or float64. Empty floats are NaN.

    Raises
    ------
    DatasetError
        Another number of columns, something that is no number, or a file that is damaged.
    PackageMissing
    """
    pa = import_pyarrow()
    import pyarrow.csv

    kind = np.dtype(dtype)
    names = [f"f{number}" for number in range(columns)]
    types = dict.fromkeys(names, pa.int64() if kind.kind == "i" else pa.float64())
    block = max(2**16, min(staging.chunk_bytes, 4 * 2**20))
    try:
        if path.stat().st_size == 0:
            return
        with pyarrow.csv.open_csv(
            str(path),
            read_options=pyarrow.csv.ReadOptions(
                column_names=names, block_size=block, skip_rows=int(header), use_threads=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=False
            ),
        ) as reader:
            first = 0
            for batch in reader:
                rows = np.empty((batch.num_rows, columns), kind)
                for number, column in enumerate(batch.columns):
                    rows[:, number] = _values(path, column, kind, first, number)
                first += len(rows)
                yield rows
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, DatasetError):
            raise
        if "Empty CSV file" in str(error):
            return
        expected = f"{columns} {'whole numbers' if kind.kind == 'i' else 'numbers'} a line"
        raise DatasetError(str(path), expected, str(error).split("\n", 1)[0][:300]) from error


def csv_integers(path: Path, columns: int, staging: Staging) -> npt.NDArray[np.int64]:
    """All of a small file of whole numbers; int64, shape (lines, columns)."""
    parts = list(csv_numbers(path, np.int64, columns, staging))
    return np.concatenate(parts) if parts else np.empty((0, columns), np.int64)


def _values(path: Path, column: Any, kind: np.dtype[Any], first: int, number: int) -> npt.NDArray[Any]:
    if column.null_count:
        if kind.kind == "i":
            row = first + int(np.argmin(column.is_valid().to_numpy(zero_copy_only=False)))
            raise DatasetError(
                str(path), "a whole number in every field", f"none in column {number}, row {row}"
            )
        column = column.fill_null(float("nan"))
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
