"""Marks of partition tables, file systems and other owners of a disk.

Offsets and bytes are those that the formats themselves define.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Of a store of ours; store_format.py.
STORE_MAGIC = b"BAMNVME\0"

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Signature:
    """Bytes at an offset that say what a disk holds; a negative offset counts from the end."""

    name: str
    offset: int
    magic: bytes


OURS = "a bam store"

_MD_RAID = bytes.fromhex("fc4e2ba9")

SIGNATURES = (
    Signature(OURS, 0, STORE_MAGIC),
    Signature(OURS, 4096, STORE_MAGIC),
    Signature("a GPT partition table", 512, b"EFI PART"),
    Signature("a GPT partition table", 4096, b"EFI PART"),
    Signature("a GPT partition table (its copy at the end)", -512, b"EFI PART"),
    Signature("a GPT partition table (its copy at the end)", -4096, b"EFI PART"),
    Signature("NTFS", 3, b"NTFS    "),
    Signature("exFAT", 3, b"EXFAT   "),
    Signature("BitLocker", 3, b"-FVE-FS-"),
    Signature("FAT", 54, b"FAT1"),
    Signature("FAT", 82, b"FAT32   "),
    Signature("an MBR partition table or boot sector", 510, b"\x55\xaa"),
    Signature("XFS", 0, b"XFSB"),
    Signature("LUKS", 0, b"LUKS\xba\xbe"),
    Signature("SquashFS", 0, b"hsqs"),
    Signature("Ceph BlueStore", 0, b"bluestore block device"),
    Signature("APFS", 32, b"NXSB"),
    Signature("Oracle ASM", 32, b"ORCLDISK"),
    *(Signature("an LVM physical volume", sector * 512, b"LABELONE") for sector in range(4)),
    Signature("ext2, ext3 or ext4", _KIB + 56, b"\x53\xef"),
    Signature("F2FS", _KIB, bytes.fromhex("1020f5f2")),
    Signature("EROFS", _KIB, bytes.fromhex("e2e1f5e0")),
    Signature("NILFS2", _KIB + 6, b"\x34\x34"),
    Signature("swap space", 4086, b"SWAPSPACE2"),
    Signature("bcache or bcachefs", 4096 + 24, bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")),
    Signature("an md RAID member", 0, _MD_RAID),
    Signature("an md RAID member", 4096, _MD_RAID),
    Signature("OCFS2", 8192, b"OCFSV2"),
    Signature("JFS", 32 * _KIB, b"JFS1"),
    Signature("ISO 9660", 32 * _KIB + 1, b"CD001"),
    Signature("UDF", 32 * _KIB + 1, b"BEA01"),
    Signature("GFS2", 64 * _KIB, bytes.fromhex("01161970")),
    Signature("ReiserFS", 64 * _KIB + 52, b"ReIsEr"),
    Signature("Btrfs", 64 * _KIB + 64, b"_BHRfS_M"),
    *(Signature("ZFS", 128 * _KIB + slot * _KIB, bytes.fromhex("0cb1ba00")) for slot in range(128)),
    Signature("VMFS", _MIB, bytes.fromhex("0dd001c0")),
)


def find_signature(
    read: Callable[[int, int], bytes], n_bytes: int, *, foreign_only: bool = False
) -> str | None:
    """What a disk of `n_bytes` holds, if it carries a known mark; `foreign_only`: of somebody else.

    Parameters
    ----------
    read : callable
        Takes offset and length, both multiples of 4,096 (or up to the end), and returns the bytes.
    """
    pages: dict[int, bytes] = {}

    def page(number: int) -> bytes:
        if number not in pages:
            at = number * 4096
            pages[number] = read(at, min(4096, n_bytes - at))
        return pages[number]

    for signature in (*SIGNATURES, *_raid_at_the_end(n_bytes)):
        if foreign_only and signature.name == OURS:
            continue
        offset = signature.offset + (n_bytes if signature.offset < 0 else 0)
        end = offset + len(signature.magic)
        if offset < 0 or end > n_bytes:
            continue
        found = b"".join(page(number) for number in range(offset // 4096, (end - 1) // 4096 + 1))
        if found[offset % 4096 :][: len(signature.magic)] == signature.magic:
            return signature.name
    return None


def _raid_at_the_end(n_bytes: int) -> Iterator[Signature]:
    """Places of md superblocks that depend on the size: versions 0.90 and 1.0."""
    yield Signature("an md RAID member", (n_bytes & ~0xFFFF) - 0x10000, _MD_RAID)
    yield Signature("an md RAID member", (n_bytes - 8 * _KIB) & ~0xFFF, _MD_RAID)
