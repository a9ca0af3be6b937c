"""Admin commands as 64-byte entries (NVM Express base specification 2.0, "Admin Command Set").

Command identifiers are left 0: the queue fills them in.
"""

from __future__ import annotations

import struct
from enum import IntEnum

#: Feature "Number of Queues".
FEATURE_QUEUES = 0x07


class AdminOpcode(IntEnum):
    """Opcodes of the admin commands that are used."""

    DELETE_IO_SQ = 0x00
    CREATE_IO_SQ = 0x01
    DELETE_IO_CQ = 0x04
    CREATE_IO_CQ = 0x05
    IDENTIFY = 0x06
    ABORT = 0x08
    SET_FEATURES = 0x09


class IdentifyKind(IntEnum):
    """CNS values of Identify."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE_NAMESPACES = 0x02


def _entry(opcode: AdminOpcode, nsid: int = 0, prp1: int = 0, cdw10: int = 0, cdw11: int = 0) -> bytes:
    return struct.pack("<BBHI8xQQQ6I", opcode, 0, 0, nsid, 0, prp1, 0, cdw10, cdw11, 0, 0, 0, 0)


def identify(kind: IdentifyKind, nsid: int, address: int) -> bytes:
    """Identify; 4,096 bytes come to `address`, the beginning of a memory page."""
    return _entry(AdminOpcode.IDENTIFY, nsid=nsid, prp1=address, cdw10=kind)


def set_queue_count(n_pairs: int) -> bytes:
    """Set Features, Number of Queues: ask for `n_pairs` submission and completion queues."""
    return _entry(AdminOpcode.SET_FEATURES, cdw10=FEATURE_QUEUES, cdw11=n_pairs - 1 | n_pairs - 1 << 16)


def granted_queue_count(dw0: int) -> int:
    """Queue pairs that the completion of :func:`set_queue_count` grants."""
    return min(dw0 & 0xFFFF, dw0 >> 16) + 1


def create_completion_queue(queue_id: int, depth: int, address: int) -> bytes:
    """Create I/O Completion Queue: physically contiguous for the drive, without interrupts."""
    return _entry(AdminOpcode.CREATE_IO_CQ, prp1=address, cdw10=queue_id | depth - 1 << 16, cdw11=1)


def create_submission_queue(queue_id: int, depth: int, address: int) -> bytes:
    """Create I/O Submission Queue for the completion queue of the same number."""
    return _entry(
        AdminOpcode.CREATE_IO_SQ, prp1=address, cdw10=queue_id | depth - 1 << 16, cdw11=1 | queue_id << 16
    )


def delete_submission_queue(queue_id: int) -> bytes:
    """Delete I/O Submission Queue."""
    return _entry(AdminOpcode.DELETE_IO_SQ, cdw10=queue_id)


def delete_completion_queue(queue_id: int) -> bytes:
    """Delete I/O Completion Queue; its submission queue must have been deleted."""
    return _entry(AdminOpcode.DELETE_IO_CQ, cdw10=queue_id)


def abort(queue_id: int, cid: int) -> bytes:
    """Abort command `cid` of submission queue `queue_id`."""
    return _entry(AdminOpcode.ABORT, cdw10=queue_id | cid << 16)
