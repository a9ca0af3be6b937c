"""What Identify says (NVM Express base specification 2.0 and NVM command set specification 1.0)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

IDENTIFY_BYTES = 4096


@dataclass(frozen=True)
class ControllerIdentity:
    """Fields of the Identify Controller data structure.

    Attributes
    ----------
    serial, model, firmware : str
    max_transfer_bytes : int or None
        MDTS; None: no limit.
    abort_limit : int
        Aborts that may be outstanding at once (ACL and one).
    n_namespaces : int
        NN: highest namespace identifier.
    sgl : bool
        Data may be described by an SGL (SGLS).
    """

    serial: str
    model: str
    firmware: str
    max_transfer_bytes: int | None
    abort_limit: int
    n_namespaces: int
    sgl: bool

    @classmethod
    def decode(cls, data: bytes, min_page_bytes: int) -> ControllerIdentity:
        """From the 4,096 bytes; MDTS counts in the smallest memory pages (CAP.MPSMIN)."""
        (sgls,) = struct.unpack_from("<I", data, 536)
        (n_namespaces,) = struct.unpack_from("<I", data, 516)
        mdts = data[77]
        return cls(
            serial=_text(data[4:24]),
            model=_text(data[24:64]),
            firmware=_text(data[64:72]),
            max_transfer_bytes=min_page_bytes << mdts if mdts else None,
            abort_limit=data[258] + 1,
            n_namespaces=n_namespaces,
            sgl=sgls & 3 in (1, 2),
        )


@dataclass(frozen=True)
class NamespaceIdentity:
    """A namespace, from the Identify Namespace data structure.

    Attributes
    ----------
    nsid : int
    n_blocks : int
        NSZE.
    block_bytes : int
        Of the LBA format in use.
    metadata_bytes : int
        Of a block, in the format in use; this driver reads namespaces without metadata only.
    read_only : bool
        NSATTR bit 0: currently write protected.
    """

    nsid: int
    n_blocks: int
    block_bytes: int
    metadata_bytes: int = 0
    read_only: bool = False

    @property
    def n_bytes(self) -> int:
        return self.n_blocks * self.block_bytes

    @property
    def is_usable(self) -> bool:
        """Whether this driver reads it: no metadata, and blocks no larger than what commands are cut into."""
        return self.metadata_bytes == 0 and 512 <= self.block_bytes <= 4096

    @classmethod
    def decode(cls, nsid: int, data: bytes) -> NamespaceIdentity:
        """From the 4,096 bytes."""
        (n_blocks,) = struct.unpack_from("<Q", data, 0)
        flbas = data[26]
        chosen = flbas & 0xF | flbas >> 1 & 0x30  # bits 6:5 are the upper bits where there are more than 16
        (lbaf,) = struct.unpack_from("<I", data, 128 + 4 * chosen)
        return cls(
            nsid=nsid,
            n_blocks=n_blocks,
            block_bytes=1 << (lbaf >> 16 & 0xFF),
            metadata_bytes=lbaf & 0xFFFF,
            read_only=bool(data[99] & 1),
        )


def namespace_list(data: bytes) -> list[int]:
    """Identifiers in a namespace list: ascending, ended by 0, at most 1,024."""
    found = struct.unpack(f"<{IDENTIFY_BYTES // 4}I", data)
    return list(found[: found.index(0)] if 0 in found else found)


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace").strip(" \0")
