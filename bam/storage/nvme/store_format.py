"""How a store lies on raw namespaces.

Each namespace of a store begins with two copies of a *superblock* of 4,096 bytes, then a *description* (JSON:
the files of the store), then a CRC-32 of each chunk of the data, then the data. Numbers are little-endian.

    0            superblock; copy `generation % 2` is the newer one
    8,192        description
    table_offset CRC-32 of each chunk on this namespace
    data_offset  this namespace's share of the data

The *data* is the files of the store one after another, each from a multiple of 4,096 bytes on; of a `.npy`
file that holds for the data behind its header. Over n namespaces it is dealt in units of `stripe_bytes`: unit
k lies on namespace ``k % n`` as its unit ``k // n`` (a striped layout).

A superblock is written again, with the next generation, as the writing advances. It says how many chunks are
complete, so a writing that was cut off goes on from there, and a store that is not complete never opens.
"""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from dataclasses import dataclass, replace
from enum import Enum

from bam.errors import SourceError
from bam.storage.nvme.signatures import STORE_MAGIC

VERSION = 1
ALIGN = 4096
DESCRIPTION_OFFSET = 2 * ALIGN
CHUNK_BYTES = 1 << 20

_SUPERBLOCK = struct.Struct("<8sIIQ16s32sIIQQQQQQQII")
_CRC = struct.Struct("<I")


class StoreState(Enum):
    """How far a store has come."""

    WRITING = 1
    COMPLETE = 2


@dataclass(frozen=True)
class Member:
    """A file of a store.

    Attributes
    ----------
    name : str
        Relative path, with slashes.
    n_bytes : int
    offset : int
        Where it begins in the data.
    """

    name: str
    n_bytes: int
    offset: int


@dataclass(frozen=True)
class Superblock:
    """The beginning of a namespace that holds a store, or a share of one.

    Attributes
    ----------
    state : StoreState
    generation : int
    uuid : uuid.UUID
        Of the store; the same on all its namespaces.
    fingerprint : bytes
        SHA-256 of names, sizes and modification times of the source files, and of the layout.
    drive_index, n_drives : int
    stripe_bytes, logical_bytes : int
        Of the data.
    chunk_bytes : int
        Of this namespace's share; a multiple of `stripe_bytes`.
    n_chunks, chunks_done : int
        On this namespace.
    table_offset, data_offset : int
        In bytes from the beginning of the namespace.
    description_bytes : int
    description_crc : int
    """

    state: StoreState
    generation: int
    uuid: uuid.UUID
    fingerprint: bytes
    drive_index: int
    n_drives: int
    stripe_bytes: int
    logical_bytes: int
    chunk_bytes: int
    n_chunks: int
    chunks_done: int
    table_offset: int
    data_offset: int
    description_bytes: int
    description_crc: int

    def encode(self) -> bytes:
        """4,096 bytes that end with their own CRC-32."""
        packed = _SUPERBLOCK.pack(
            STORE_MAGIC,
            VERSION,
            self.state.value,
            self.generation,
            self.uuid.bytes,
            self.fingerprint,
            self.drive_index,
            self.n_drives,
            self.stripe_bytes,
            self.logical_bytes,
            self.chunk_bytes,
            self.n_chunks,
            self.chunks_done,
            self.table_offset,
            self.data_offset,
            self.description_bytes,
            self.description_crc,
        )
        body = packed.ljust(ALIGN - _CRC.size, b"\0")
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def decode(cls, block: bytes) -> Superblock | None:
        """None where there is none, or a torn one.

        Raises
        ------
        SourceError
            Of another version.
        """
        body, (crc,) = block[: ALIGN - _CRC.size], _CRC.unpack(block[ALIGN - _CRC.size :])
        if not body.startswith(STORE_MAGIC) or zlib.crc32(body) != crc:
            return None
        _, version, state, generation, identifier, fingerprint, *numbers = _SUPERBLOCK.unpack_from(body)
        if version != VERSION:
            raise SourceError("the namespace", f"a store of version {VERSION}", f"version {version}")
        return cls(StoreState(state), generation, uuid.UUID(bytes=identifier), fingerprint, *numbers)

    @property
    def place(self) -> int:
        """Where this generation goes, in bytes."""
        return self.generation % 2 * ALIGN

    def next(self, *, chunks_done: int, state: StoreState = StoreState.WRITING) -> Superblock:
        """The superblock to write after this one."""
        return replace(self, generation=self.generation + 1, chunks_done=chunks_done, state=state)

    @property
    def needed_bytes(self) -> int:
        """Size of a namespace that holds this share, its last chunk filled up."""
        return self.data_offset + self.n_chunks * self.chunk_bytes


def newest(blocks: bytes) -> Superblock | None:
    """The newer of the two superblocks in the first 8,192 bytes of a namespace."""
    found = [Superblock.decode(blocks[at : at + ALIGN]) for at in (0, ALIGN)]
    return max(
        (block for block in found if block is not None), key=lambda block: block.generation, default=None
    )


def encode_description(members: tuple[Member, ...]) -> bytes:
    """The files of a store, as JSON."""
    listed = [{"name": one.name, "bytes": one.n_bytes, "offset": one.offset} for one in members]
    return json.dumps({"format": "bam nvme store", "files": listed}, indent=1).encode()


def decode_description(text: bytes) -> tuple[Member, ...]:
    """What :func:`encode_description` wrote."""
    return tuple(Member(one["name"], one["bytes"], one["offset"]) for one in json.loads(text)["files"])


def plan(
    members: tuple[Member, ...], fingerprint: bytes, n_drives: int, stripe_bytes: int
) -> list[Superblock]:
    """First superblock of each namespace of a new store."""
    logical_bytes = max((round_up(one.offset + one.n_bytes, ALIGN) for one in members), default=0)
    description = encode_description(members)
    chunk_bytes = round_up(CHUNK_BYTES, stripe_bytes)
    n_chunks = -(-logical_bytes // (chunk_bytes * n_drives))
    table_offset = DESCRIPTION_OFFSET + round_up(len(description), ALIGN)
    first = Superblock(
        StoreState.WRITING,
        generation=0,
        uuid=uuid.uuid4(),
        fingerprint=fingerprint,
        drive_index=0,
        n_drives=n_drives,
        stripe_bytes=stripe_bytes,
        logical_bytes=logical_bytes,
        chunk_bytes=chunk_bytes,
        n_chunks=n_chunks,
        chunks_done=0,
        table_offset=table_offset,
        data_offset=table_offset + round_up(4 * n_chunks, ALIGN),
        description_bytes=len(description),
        description_crc=zlib.crc32(description),
    )
    return [replace(first, drive_index=index) for index in range(n_drives)]


def round_up(value: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-value // unit) * unit
