"""Bytes and codes of the NVMe structures against numbers taken by hand from the NVM Express specifications.

Base specification 2.0: common command format, completion queue entry layout, status field, status codes.
NVM command set specification 1.0: Read. PCIe transport specification 1.0: doorbells.
"""

from __future__ import annotations

import ctypes
import errno
from ctypes import byref, c_char_p, c_int32, c_uint16, c_uint32, c_uint64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bam.native import available, function

pytestmark = pytest.mark.skipif(not available(), reason="the native library is not built")


def read_command(cid: int, slba: int, n_blocks: int, destination: int) -> bytes:
    sqe = ctypes.create_string_buffer(64)
    call = function("bam_nvme_read_command", None, [c_uint16, c_uint64, c_uint32, c_uint64, c_char_p])
    call(cid, slba, n_blocks, destination, sqe)
    return sqe.raw


def decode_read(sqe: bytes) -> tuple[int, int]:
    slba, n_blocks = c_uint64(), c_uint32()
    types = [c_char_p, ctypes.POINTER(c_uint64), ctypes.POINTER(c_uint32)]
    function("bam_nvme_decode_read", None, types)(sqe, byref(slba), byref(n_blocks))
    return slba.value, n_blocks.value


def completion(dw0: int, dw1: int, sqhd: int, sqid: int, cid: int, status: int) -> bytes:
    cqe = ctypes.create_string_buffer(16)
    types = [c_uint32, c_uint32, c_uint16, c_uint16, c_uint16, c_uint16, c_char_p]
    function("bam_nvme_completion", None, types)(dw0, dw1, sqhd, sqid, cid, status, cqe)
    return cqe.raw


def status_field(status: int, do_not_retry: bool = False) -> int:
    return int(function("bam_nvme_status_field", c_uint16, [c_uint16, c_int32])(status, do_not_retry))


def status_of(field: int) -> int:
    return int(function("bam_nvme_status_of", c_uint16, [c_uint16])(field))


def status_name(status: int) -> str:
    return str(function("bam_nvme_status_name", c_char_p, [c_uint16])(status).decode())


def test_a_read_is_these_64_bytes() -> None:
    expected = bytes.fromhex(
        "02"  # opcode: Read
        "00"  # no fused operation, PRPs
        "3412"  # command identifier
        "01000000"  # namespace identifier
        "00000000 00000000"  # dwords 2 and 3
        "0000000000000000"  # metadata pointer
        "0055443322 11ff7f"  # PRP entry 1
        "0000000000000000"  # PRP entry 2
        "89674523 01000000"  # dwords 10 and 11: starting LBA
        "07000000"  # dword 12: number of logical blocks, from 0
        "00000000 00000000 00000000"  # dwords 13 to 15
    )
    assert len(expected) == 64
    assert read_command(0x1234, 0x1_2345_6789, 8, 0x7FFF_1122_3344_5500) == expected


@pytest.mark.parametrize(("n_blocks", "dword_12"), [(1, "00000000"), (256, "ff000000"), (65536, "ffff0000")])
def test_the_number_of_blocks_counts_from_zero(n_blocks: int, dword_12: str) -> None:
    assert read_command(0, 0, n_blocks, 0)[48:52].hex() == dword_12


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1), st.integers(1, 2**16), st.integers(0, 2**64 - 1))
def test_a_read_decodes_to_what_was_encoded(cid: int, slba: int, n_blocks: int, destination: int) -> None:
    sqe = read_command(cid, slba, n_blocks, destination)
    assert decode_read(sqe) == (slba, n_blocks)
    assert int.from_bytes(sqe[2:4], "little") == cid
    assert int.from_bytes(sqe[24:32], "little") == destination


def test_bits_above_the_number_of_blocks_are_not_part_of_it() -> None:
    sqe = bytearray(read_command(0, 5, 8, 0))
    sqe[50:52] = b"\x00\xc0"  # limited retry and force unit access: bits 31 and 30 of dword 12
    assert decode_read(bytes(sqe)) == (5, 8)


def test_a_completion_is_these_16_bytes() -> None:
    expected = bytes.fromhex(
        "05000000"  # dword 0: command specific
        "04030201"  # dword 1
        "1100"  # SQ head pointer
        "2200"  # SQ identifier
        "3412"  # command identifier
        "0305"  # phase 1, status code 81h in bits 8:1, type 2h in bits 11:9
    )
    cqe = completion(5, 0x01020304, 0x11, 0x22, 0x1234, 0x0503)
    assert cqe == expected
    decoded = ctypes.create_string_buffer(16)
    function("bam_nvme_decode_completion", None, [c_char_p, c_char_p])(cqe, decoded)
    assert decoded.raw == expected  # the structure has the layout of the entry, field by field


@pytest.mark.parametrize(
    ("status", "do_not_retry", "field"),
    [
        (0x000, False, 0x0000),
        (0x001, False, 0x0002),
        (0x001, True, 0x8002),
        (0x080, True, 0x8100),
        (0x180, False, 0x0300),
        (0x281, False, 0x0502),
        (0x7FF, False, 0x0FFE),
    ],
)
def test_status_fields(status: int, do_not_retry: bool, field: int) -> None:
    assert status_field(status, do_not_retry) == field
    for other_bits in (0, 1, 0x1000, 0x2000, 0x4000, 0x8000, 0xF001):  # phase, CRD, more, do not retry
        assert status_of(field | other_bits) == status


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (0x000, "Successful Completion"),
        (0x001, "Invalid Command Opcode"),
        (0x002, "Invalid Field in Command"),
        (0x003, "Command ID Conflict"),
        (0x004, "Data Transfer Error"),
        (0x006, "Internal Error"),
        (0x007, "Command Abort Requested"),
        (0x008, "Command Aborted due to SQ Deletion"),
        (0x00B, "Invalid Namespace or Format"),
        (0x013, "PRP Offset Invalid"),
        (0x080, "LBA Out of Range"),
        (0x081, "Capacity Exceeded"),
        (0x082, "Namespace Not Ready"),
        (0x180, "Conflicting Attributes"),
        (0x280, "Write Fault"),
        (0x281, "Unrecovered Read Error"),
        (0x282, "End-to-end Guard Check Error"),
        (0x285, "Compare Failure"),
        (0x286, "Access Denied"),
        (0x287, "Deallocated or Unwritten Logical Block"),
        (0x07F, "Unknown Generic Command Status"),
        (0x1FF, "Unknown Command Specific Status"),
        (0x2FF, "Unknown Media and Data Integrity Error"),
        (0x010, "Metadata SGL Length Invalid"),
        (0x020, "Namespace is Write Protected"),
        (0x083, "Reservation Conflict"),
        (0x100, "Completion Queue Invalid"),
        (0x101, "Invalid Queue Identifier"),
        (0x102, "Invalid Queue Size"),
        (0x103, "Abort Command Limit Exceeded"),
        (0x108, "Invalid Interrupt Vector"),
        (0x10C, "Invalid Queue Deletion"),
        (0x182, "Attempted Write to Read Only Range"),
        (0x1BA, "Zone Is Read Only"),
        (0x283, "End-to-end Application Tag Check Error"),
        (0x284, "End-to-end Reference Tag Check Error"),
        (0x300, "Internal Path Error"),
        (0x301, "Asymmetric Access Persistent Loss"),
        (0x371, "Command Aborted By Host"),
        (0x017, "Unknown Generic Command Status"),
        (0x33F, "Unknown Path Related Status"),
        (0x700, "Vendor Specific Status"),
        (0x400, "Reserved Status Code Type"),
    ],
)
def test_status_names(status: int, name: str) -> None:
    assert status_name(status) == name


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, 0x000),
        (errno.EIO, 0x281),
        (errno.ENODATA, 0x287),
        (errno.ESTALE, 0x00B),
        (errno.EACCES, 0x286),
        (errno.EPERM, 0x286),
        (errno.EINVAL, 0x002),
        (errno.EFAULT, 0x004),
        (errno.ECANCELED, 0x007),
        (errno.EBUSY, 0x082),
        (errno.ENOMEM, 0x006),
        (errno.ENODEV, 0x006),
    ],
)
def test_every_errno_has_a_status(code: int, status: int) -> None:
    assert function("bam_nvme_status_of_errno", c_uint16, [c_int32])(code) == status


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (0x000, 0),
        (0x002, errno.EINVAL),
        (0x004, errno.EFAULT),
        (0x007, errno.ECANCELED),
        (0x00B, errno.ENODEV),
        (0x020, errno.EROFS),
        (0x021, errno.EAGAIN),
        (0x080, errno.EINVAL),
        (0x081, errno.ENOSPC),
        (0x281, errno.EIO),
        (0x282, errno.EILSEQ),
        (0x286, errno.EACCES),
        (0x7FF, errno.EIO),
    ],
)
def test_every_status_has_an_errno(status: int, code: int) -> None:
    assert function("bam_nvme_errno_of_status", c_int32, [c_uint16])(status) == code


@pytest.mark.parametrize(
    ("queue", "stride_exponent", "sq_tail", "cq_head"),
    [(0, 0, 0x00, 0x04), (1, 0, 0x08, 0x0C), (2, 0, 0x10, 0x14), (1, 4, 0x80, 0xC0), (3, 4, 0x180, 0x1C0)],
)
def test_doorbells(queue: int, stride_exponent: int, sq_tail: int, cq_head: int) -> None:
    offset = function("bam_nvme_doorbell_offset", c_uint64, [c_uint32, c_uint32, c_int32])
    assert offset(queue, stride_exponent, False) == sq_tail
    assert offset(queue, stride_exponent, True) == cq_head
