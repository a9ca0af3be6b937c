"""What the record batches of an Arrow IPC file would be decompressed to, found without decompressing any.

pyarrow allocates what each compressed buffer says its length is: in a file that lies, any amount.

Source: Arrow columnar format, "IPC File Format", its ``File.fbs`` and ``Message.fbs``; FlatBuffers internals.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Fields by number in the tables of the schemas above.
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3
_MESSAGE_KIND, _MESSAGE_HEADER = 1, 2
_BATCH_ROWS, _BATCH_BUFFERS, _BATCH_COMPRESSION, _DICTIONARY_DATA = 0, 2, 3, 1
_DICTIONARY_MESSAGE = 2
_BLOCK_BYTES, _BUFFER_BYTES, _TAIL_BYTES, _CONTINUATION = 24, 16, 10, 0xFFFFFFFF


@dataclass(frozen=True)
class Block:
    """Where a message and its body begin."""

    message: int
    body: int


@dataclass(frozen=True)
class BatchFacts:
    """Rows of a batch, and bytes that its compressed buffers say they become."""

    n_rows: int
    decompressed_bytes: int


@dataclass(frozen=True)
class BlockFacts:
    """Record batches and dictionary batches in the order of the footer; None: its metadata makes no sense."""

    batches: tuple[BatchFacts | None, ...] = ()
    dictionaries: tuple[BatchFacts | None, ...] = ()


def read_blocks(file: memoryview) -> BlockFacts:
    """Look into the metadata of every block of a file that pyarrow has opened.

    What makes no sense is left out: pyarrow refuses it by itself.
    """
    try:
        footer_bytes = _number(file, "<i", len(file) - _TAIL_BYTES)
        footer = _table(file, len(file) - _TAIL_BYTES - footer_bytes)
        batches, dictionaries = (
            tuple(_facts(file, block) for block in _blocks(footer, field))
            for field in (_FOOTER_BATCHES, _FOOTER_DICTIONARIES)
        )
    except (struct.error, ValueError):
        return BlockFacts()
    return BlockFacts(batches, dictionaries)


def batch_places(file: memoryview) -> list[Block]:
    """Where the record batches of a whole file lie.

    Raises
    ------
    ValueError, struct.error
        It is none.
    """
    footer_bytes = _number(file, "<i", len(file) - _TAIL_BYTES)
    return _blocks(_table(file, len(file) - _TAIL_BYTES - footer_bytes), _FOOTER_BATCHES)


@dataclass(frozen=True)
class _Table:
    """A FlatBuffers table: where it begins in `data`."""

    data: memoryview
    at: int

    def field(self, number: int) -> int | None:
        """Where a field lies; None: it has its default."""
        table = self.at - _number(self.data, "<i", self.at)
        if 4 + 2 * number >= _number(self.data, "<H", table):
            return None
        offset = _number(self.data, "<H", table + 4 + 2 * number)
        return self.at + offset if offset else None

    def child(self, number: int) -> _Table | None:
        """The table that a field points to."""
        at = self.field(number)
        return None if at is None else _table(self.data, at)

    def vector(self, number: int, item_bytes: int) -> range:
        """Where each item of a field's list begins."""
        at = self.field(number)
        if at is None:
            return range(0)
        at += _number(self.data, "<I", at)
        count = _number(self.data, "<I", at)
        if count * item_bytes > len(self.data):
            raise ValueError(f"a list of {count}")
        return range(at + 4, at + 4 + count * item_bytes, item_bytes)


def _table(data: memoryview, at: int) -> _Table:
    return _Table(data, at + _number(data, "<I", at))


def _number(data: memoryview, kind: str, at: int) -> int:
    if not 0 <= at < len(data):  # negative ones would count from the end
        raise ValueError(f"position {at}")
    found: int = struct.unpack_from(kind, data, at)[0]
    return found


def _blocks(footer: _Table, field: int) -> list[Block]:
    found = []
    for at in footer.vector(field, _BLOCK_BYTES):
        begin = _number(footer.data, "<q", at)
        found.append(Block(begin, begin + _number(footer.data, "<i", at + 8)))
    return found


def _facts(file: memoryview, block: Block) -> BatchFacts | None:
    try:
        # Versions before 0.15 have no mark before the length.
        head = 8 if _number(file, "<I", block.message) == _CONTINUATION else 4
        message = _table(file, block.message + head)
        batch, kind = message.child(_MESSAGE_HEADER), message.field(_MESSAGE_KIND)
        if batch is not None and kind is not None and file[kind] == _DICTIONARY_MESSAGE:
            batch = batch.child(_DICTIONARY_DATA)
        if batch is None:
            return None
        rows = batch.field(_BATCH_ROWS)
        n_rows = 0 if rows is None else _number(file, "<q", rows)
        return BatchFacts(n_rows, _decompressed_bytes(file, batch, block.body))
    except (struct.error, ValueError, IndexError):
        return None


def _decompressed_bytes(file: memoryview, batch: _Table, body: int) -> int:
    """Each buffer of a batch that is marked so begins with its length; -1 where compressing did not pay."""
    if batch.field(_BATCH_COMPRESSION) is None:
        return 0
    total = 0
    for at in batch.vector(_BATCH_BUFFERS, _BUFFER_BYTES):
        offset, length = _number(file, "<q", at), _number(file, "<q", at + 8)
        if length:
            total += max(0, _number(file, "<q", body + offset))
    return total
