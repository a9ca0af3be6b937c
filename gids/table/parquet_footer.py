"""What a Parquet file's footer says of its column chunks, read without trusting it.

pyarrow ends the process (an exception that nothing catches) where it is asked for the metadata of a chunk
whose size statistics are damaged; reading such a chunk raises as it should. So chunks are looked up here.

Source: parquet-format, ``parquet.thrift``; Apache Thrift, compact protocol.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from bam.array.description import open_regular
from gids.errors import TableError

MAGIC = b"PAR1"
#: Footers beyond are refused; pyarrow's own limit on what Thrift may hold is 100 MB.
MAX_FOOTER_BYTES = 100_000_000
_DEEPEST = 16
_INT32, _INT64 = 1, 2
#: Of the longest number with its levels; and what headers and the dictionary's share may add.
_MOST_NUMBER_BYTES, _MOST_PAGE_HEADER = 24, 2**20

Struct = dict[int, Any]


@dataclass(frozen=True)
class ColumnChunk:
    """One column of one row group.

    Attributes
    ----------
    path : tuple of str
        Names from the root to the column.
    offset, compressed_bytes : int
        Where its pages lie.
    uncompressed_bytes : int
        Of all pages together.
    physical : int
        Number of its type in ``parquet.thrift``.
    n_values, n_nulls : int
        Values, nulls among them; -1 where the file does not say.
    low, high : int or None
        Smallest and largest value, of columns that are stored as 4 or 8 byte integers; None: not known.
    """

    path: tuple[str, ...]
    offset: int
    compressed_bytes: int
    uncompressed_bytes: int
    physical: int
    n_values: int
    n_nulls: int
    low: int | None
    high: int | None


def read_chunks(path: str) -> list[list[ColumnChunk]]:
    """Column chunks of each row group.

    Raises
    ------
    TableError
        The footer is damaged.
    bam.errors.SourceError
    """
    try:
        groups = _Reader(_footer(path)).struct().get(4, [])
        return [[_chunk(column[3]) for column in group[1]] for group in groups]
    except TableError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise TableError(path, "a whole Parquet footer", f"{type(error).__name__}: {error}") from error


def check_pages(path: str, chunk: ColumnChunk, n_rows: int) -> None:
    """Go through the headers of a column chunk's pages: pyarrow allocates what each says it decompresses to.

    For columns of numbers that are not within structs or lists.

    Raises
    ------
    TableError
        They do not fill the chunk, or become more than `n_rows` numbers can be.
    """
    most = _MOST_NUMBER_BYTES * max(0, n_rows) + _MOST_PAGE_HEADER
    where = ".".join(chunk.path)
    if not 0 <= chunk.uncompressed_bytes <= most or chunk.n_values != n_rows:
        found = f"{chunk.n_values} values in {chunk.uncompressed_bytes} bytes"
        raise TableError(path, f"{n_rows} numbers", found, where)
    with open_regular(path) as (descriptor, identity):
        at, end, total = chunk.offset, chunk.offset + chunk.compressed_bytes, 0
        if not 4 <= at <= end <= identity.bytes:
            raise TableError(path, "pages within the file", f"bytes {at} to {end}", where)
        while at < end:
            try:
                reader = _Reader(os.pread(descriptor, min(_MOST_PAGE_HEADER, end - at), at))
                header = reader.struct()
                uncompressed, compressed = int(header[2]), int(header[3])
            except (KeyError, TypeError, IndexError, ValueError) as error:
                raise TableError(path, f"a page header at byte {at}", str(error), where) from error
            total += uncompressed
            if compressed < 0 or uncompressed < 0 or total > chunk.uncompressed_bytes:
                found = f"{total} bytes or more"
                raise TableError(path, f"pages of {chunk.uncompressed_bytes} bytes", found, where)
            at += reader.at + compressed


def footer_bytes(path: str) -> int:
    """Bytes of the footer.

    Raises
    ------
    TableError, bam.errors.SourceError
    """
    return len(_footer(path))


def _footer(path: str) -> bytes:
    """The Thrift part at the end of the file."""
    with open_regular(path) as (descriptor, identity):
        tail = os.pread(descriptor, 8, max(0, identity.bytes - 8))
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length > min(identity.bytes - 12, MAX_FOOTER_BYTES):
            raise TableError(path, "a Parquet footer that is not encrypted", f"{tail!r} at the end")
        return os.pread(descriptor, length, identity.bytes - 8 - length)


def _chunk(metadata: Struct) -> ColumnChunk:
    found: Struct = metadata.get(12, {})
    low, high = (_integer(found.get(new, found.get(old)), metadata[1]) for new, old in ((6, 2), (5, 1)))
    name = tuple(part.decode("utf-8") for part in metadata[3])
    n_nulls = found.get(3, -1)
    dictionary = metadata.get(11, -1)
    offset = dictionary if dictionary >= 4 else metadata[9]
    compressed, uncompressed, physical, n_values = (int(metadata[key]) for key in (7, 6, 1, 5))
    return ColumnChunk(
        name, int(offset), compressed, uncompressed, physical, n_values, int(n_nulls), low, high
    )


def _integer(stored: bytes | None, physical: int) -> int | None:
    """A value as statistics hold it, of the two physical types that are whole numbers."""
    width = {_INT32: 4, _INT64: 8}.get(physical)
    if width is None or stored is None or len(stored) != width:
        return None
    return int.from_bytes(stored, "little", signed=True)


class _Reader:
    """Thrift's compact protocol: fields by number. Raises what `read_chunks` expects.

    Attributes
    ----------
    at : int
        Position in the data.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int = 0) -> Struct:
        """Fields up to the stop mark."""
        if depth > _DEEPEST:
            raise ValueError("structs within structs without end")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            kind, step = head & 15, head >> 4
            number = number + step if step else self._signed()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 8:
            return self._bytes(self._unsigned())
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth)
        if kind in (1, 2, 3):  # booleans and bytes within lists take a byte
            return self._byte()
        if kind == 7:
            return self._bytes(8)
        if kind == 11:
            return self._map(depth)
        raise ValueError(f"type {kind}")

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        length, kind = head >> 4, head & 15
        if length == 15:
            length = self._unsigned()
        # Every item takes a byte at least, so a length that lies is known before anything is made.
        if depth > _DEEPEST or length > len(self._data) - self.at:
            raise ValueError(f"a list of {length}")
        return [self._value(kind, depth + 1) for _ in range(length)]

    def _map(self, depth: int) -> None:
        """No field that is looked at is a map; it is passed over."""
        length = self._unsigned()
        kinds = self._byte() if length else 0
        if depth > _DEEPEST or length > len(self._data) - self.at:
            raise ValueError(f"a map of {length}")
        for _ in range(length):
            self._value(kinds >> 4, depth + 1)
            self._value(kinds & 15, depth + 1)

    def _byte(self) -> int:
        found = self._data[self.at]
        self.at += 1
        return found

    def _bytes(self, length: int) -> bytes:
        found = self._data[self.at : self.at + length]
        if len(found) < length:
            raise ValueError(f"{length} bytes that are not there")
        self.at += length
        return found

    def _unsigned(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number without end")

    def _signed(self) -> int:
        found = self._unsigned()
        return (found >> 1) ^ -(found & 1)
