"""Virtual arrays: numpy's indexing over rows that stay in files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from bam.array.description import ArrayDescription
from bam.array.open_reader import OpenSettings, open_reader
from bam.array.outputs import as_output, check_vector
from bam.array.row_ids import IdArray, as_row_ids, select
from bam.array.shared_reader import SharedReader
from bam.cache.settings import checked_use
from bam.errors import ConfigError, RowOutOfRange
from bam.stats import ArrayInfo, ReaderStats

#: Rows of a slice that are read in one go: enough to keep a disk busy, little memory for their ids.
_ROWS_PER_READ = 65536
#: Rows that iteration reads ahead take about this much memory.
_ITERATION_BYTES = 2**20


class VirtualArray:
    """An array whose rows are read when they are asked for. Made and opened by :func:`bam.open_array`.

    Rows are selected as from a numpy array: ``a[i]``, ``a[i:j:k]``, ``a[ids]``, ``a[mask]``, and
    ``a[ids, ...]`` with anything numpy takes for the other dimensions. Results are new numpy arrays, owned by
    the caller.

    Safe to use from several threads. In a forked child, and where it was unpickled, the array opens its files
    again at the first use, and raises :class:`bam.errors.FileChangedError` if they are not the same any more.

    Raises
    ------
    RowOutOfRange
        From every selection: an id is not a row; says which and where in the list. Nothing has been read.
    RowIndexTypeError
        Something else than integers, slices or masks.
    StorageError
        Bytes that were asked for could not be read. The array stays usable.
    ClosedError
    """

    def __init__(self, description: ArrayDescription, settings: OpenSettings) -> None:
        self._description, self._settings = description, settings
        timeout_s = settings.config.timeout_s
        self._shared = SharedReader(lambda: open_reader(description, settings), timeout_s)
        self._dtype = description.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows first."""
        return self._description.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """In this machine's byte order, whatever the files have."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions, at least 1."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return self.size * self._dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self._description.row_bytes

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: object) -> Any:
        selection = select(key, self.shape)
        rows = np.empty((len(selection.rows), *self.shape[1:]), self._dtype)
        if isinstance(selection.rows, range):
            self._read_range(selection.rows, rows)
        else:
            self._read(selection.rows, rows)
        return rows[selection.index] if selection.index else rows

    def __iter__(self) -> Iterator[Any]:
        """Row after row; they are read in blocks."""
        block = max(1, _ITERATION_BYTES // max(1, self.row_bytes))
        for start in range(0, len(self), block):
            yield from self[start : start + block]

    def gather(self, ids: object, out: Any = None, *, next_use: object = None) -> Any:
        """Rows by id: ``numpy.take(array, ids, axis=0)``.

        Parameters
        ----------
        ids : array_like of integers
            Of any shape; lists and CPU tensors too. Duplicates and any order are fine; negative ids count
            from the end.
        out : numpy array or CPU tensor, optional
            Where to put them: shape (*ids.shape, *row_shape), this array's dtype, C-contiguous. After an
            error its contents are undefined.
        next_use : array_like of unsigned integers, optional
            One per id: when that row is needed again, in any unit of the caller's; what policy `look_ahead`
            orders by. Default: never.

        Returns
        -------
        `out`, or a new numpy array
        """
        row_ids = as_row_ids(ids, len(self))
        shape = (*row_ids.shape, *self.shape[1:])
        rows = np.empty(shape, self._dtype) if out is None else as_output(out, shape, self._dtype)
        if out is not None and np.may_share_memory(rows, row_ids):
            row_ids = row_ids.copy()
        uses = None if next_use is None else _as_next_use(next_use, row_ids.shape)
        self._read(row_ids.reshape(-1), rows, uses)
        return rows if out is None else out

    def gather_rows(
        self,
        ids: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        *,
        out_rows: npt.NDArray[np.int64] | None = None,
        next_use: npt.NDArray[np.uint64] | None = None,
    ) -> None:
        """Copy the bytes of rows to chosen rows of a larger output: what loaders build tensors with.

        Parameters
        ----------
        ids : int64, shape (n,)
            C-contiguous, not negative.
        out : uint8, shape (m, row_bytes)
            C-contiguous and writable. Bytes are in this machine's order.
        out_rows : int64, shape (n,), optional
            Row of `out` for each id, all different, each in ``[0, m)``; default: 0, 1, 2 ...
        next_use : uint64, shape (n,), optional
            As in :meth:`gather`.

        Raises
        ------
        ConfigError
            An array of another kind or shape; nothing is converted here.
        """
        check_vector("ids", ids, np.int64)
        as_output(out, (len(out), self.row_bytes), np.dtype(np.uint8))
        if next_use is not None:
            check_vector("next_use", next_use, np.uint64, len(ids))
        if out_rows is not None:
            check_vector("out_rows", out_rows, np.int64, len(ids))
        rows = np.arange(len(ids)) if out_rows is None else out_rows
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= len(out)):
            raise ConfigError(
                "out_rows", (int(rows.min()), int(rows.max())), f"rows of an output with {len(out)}"
            )
        with self._shared.use() as opened:
            if not self.row_bytes or not len(ids):
                return
            opened.reader.gather(ids, out, next_use, out_rows)
        if self._description.stored_dtype != self._dtype:
            swapped = np.ascontiguousarray(out[rows]).view(self._description.stored_dtype)
            out[rows] = swapped.astype(self._dtype).view(np.uint8).reshape(len(rows), -1)

    def note_next_use(self, ids: npt.NDArray[np.int64], next_use: npt.NDArray[np.uint64]) -> None:
        """Tell policy `look_ahead` when rows that are cached now are needed again; a sooner use stays.

        Parameters
        ----------
        ids : int64, shape (n,)
            C-contiguous, each in ``[0, len(self))``.
        next_use : uint64, shape (n,)

        Raises
        ------
        ConfigError, RowOutOfRange
        """
        check_vector("ids", ids, np.int64)
        check_vector("next_use", next_use, np.uint64, len(ids))
        wrong = (ids < 0) | (ids >= len(self))
        if wrong.any():
            raise RowOutOfRange(int(ids[wrong][0]), len(self), int(np.argmax(wrong)))
        with self._shared.use() as opened:
            if self.row_bytes and len(ids):
                opened.reader.note_next_use(ids, self.row_bytes, next_use)

    def forget_next_uses(self, horizon: int, instead: int) -> None:
        """End a look-ahead: uses foreseen before `horizon` become `instead`, in the whole cache."""
        horizon, instead = checked_use("horizon", horizon), checked_use("instead", instead)
        with self._shared.use() as opened:
            opened.reader.forget_next_uses(horizon, instead)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All rows, read now."""
        if copy is False:
            raise ConfigError("copy", copy, "True or None, as rows are read into new memory")
        rows: npt.NDArray[Any] = self[:]
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """All rows, read now, for :func:`torch.from_dlpack` and others."""
        if options.get("copy") is False:
            raise BufferError("rows are read into new memory, so copy=False cannot be kept")
        return self.__array__().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """CPU memory."""
        return 1, 0

    def stats(self) -> ReaderStats:
        """Counters since the array was opened in this process; subtract two snapshots for an interval."""
        with self._shared.use() as opened:
            return replace(opened.reader.stats(), info=opened.engine.info())

    def info(self) -> ArrayInfo:
        """Which path really runs."""
        with self._shared.use() as opened:
            return replace(opened.info, engine=opened.engine.info())

    def close(self) -> None:
        """Wait for calls under way and release files and memory; calling it again does nothing.

        Raises
        ------
        WaitTimeout
            Calls under way do not finish.
        """
        self._shared.close()

    def __enter__(self) -> VirtualArray:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Nobody sees an error here; and what __init__ did not make need not be closed.
        with suppress(Exception):
            self._shared.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return VirtualArray, (self._description, self._settings)

    def __repr__(self) -> str:
        files = self._description.layout.files
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        state = ", closed" if self._shared.closed else ""
        return f"<bam.VirtualArray {self.shape} {self._dtype} in {files[0]}{more}{state}>"

    def _read_range(self, row_ids: range, rows: npt.NDArray[Any]) -> None:
        for start in range(0, max(1, len(row_ids)), _ROWS_PER_READ):
            part = row_ids[start : start + _ROWS_PER_READ]
            ids = np.arange(part.start, part.stop, part.step, dtype=np.int64)
            self._read(ids, rows[start : start + _ROWS_PER_READ])

    def _read(
        self, ids: IdArray, rows: npt.NDArray[Any], next_use: npt.NDArray[np.uint64] | None = None
    ) -> None:
        """`rows` is C-contiguous and has len(ids) rows."""
        with self._shared.use() as opened:
            if rows.nbytes == 0:
                return
            stored = rows.reshape(-1).view(np.uint8).reshape(len(ids), -1)
            opened.reader.gather(ids, stored, next_use)
        _to_native_order(rows, self._description.stored_dtype)


def _to_native_order(rows: npt.NDArray[Any], stored: np.dtype[Any]) -> None:
    if stored == rows.dtype:
        return
    if stored.names is None:
        rows.byteswap(inplace=True)
    else:  # fields of either order
        rows[...] = rows.view(stored)


def _as_next_use(next_use: object, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
    expected = f"unsigned integers of shape {shape}, one for each id"
    found = np.asarray(next_use)
    if found.shape != shape or found.dtype.kind not in "iu" or (found.size and found.min() < 0):
        raise ConfigError("next_use", f"{found.dtype} of shape {found.shape}", expected)
    return np.ascontiguousarray(found, np.uint64).reshape(-1)
