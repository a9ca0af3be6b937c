"""Bytes of admin commands, data pointers and ioctls, and register accesses, against numbers taken by hand.

They are from the NVM Express specifications (base 2.0, NVM command set 1.0, PCIe transport 1.0) and from
linux/vfio.h and linux/iommufd.h.
"""

from __future__ import annotations

import ctypes
import struct
from ctypes import c_char_p, c_int32, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_drive import Behaviour, ModelDrive, Namespace

from bam.native import available, function
from bam.storage.nvme import commands, vfio_codes
from bam.storage.nvme.commands import IdentifyKind
from bam.storage.nvme.controller import Controller
from bam.storage.nvme.identify import ControllerIdentity, NamespaceIdentity, namespace_list
from bam.storage.nvme.queues import QueueMemory
from bam.storage.nvme.registers import Access, Capabilities, Registers, configuration

native = pytest.mark.skipif(not available(), reason="the native library is not built")
PAGE = 4096


def entry(text: str) -> bytes:
    """64 bytes: the dwords given, in their order in memory; the rest zero."""
    return bytes.fromhex(text.replace("|", "")).ljust(64, b"\0")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # opcode, flags, command id | nsid | 2 dwords | metadata | PRP 1 | PRP 2 | dword 10 | dword 11
        (
            commands.identify(IdentifyKind.CONTROLLER, 0, 0x1_2345_6000),
            "06000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00604523 01000000 |"
            "00000000 00000000 | 01000000 | 00000000",
        ),
        (
            commands.identify(IdentifyKind.NAMESPACE, 3, 0x7000),
            "06000000 | 03000000 | 00000000 00000000 | 00000000 00000000 | 00700000 00000000 |"
            "00000000 00000000 | 00000000 | 00000000",
        ),
        (
            commands.identify(IdentifyKind.ACTIVE_NAMESPACES, 9, 0x7000),
            "06000000 | 09000000 | 00000000 00000000 | 00000000 00000000 | 00700000 00000000 |"
            "00000000 00000000 | 02000000 | 00000000",
        ),
        # Feature 07h; both counts from zero: 4 pairs are 0003h
        (
            commands.set_queue_count(4),
            "09000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00000000 00000000 |"
            "00000000 00000000 | 07000000 | 03000300",
        ),
        # Queue identifier, size from zero; physically contiguous, no interrupt
        (
            commands.create_completion_queue(2, 128, 0xABC000),
            "05000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00c0ab00 00000000 |"
            "00000000 00000000 | 02007f00 | 01000000",
        ),
        # The same; its completion queue in the upper half of dword 11
        (
            commands.create_submission_queue(2, 128, 0xABC000),
            "01000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00c0ab00 00000000 |"
            "00000000 00000000 | 02007f00 | 01000200",
        ),
        (
            commands.delete_submission_queue(5),
            "00000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00000000 00000000 |"
            "00000000 00000000 | 05000000",
        ),
        (
            commands.delete_completion_queue(5),
            "04000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00000000 00000000 |"
            "00000000 00000000 | 05000000",
        ),
        # Submission queue identifier, command identifier
        (
            commands.abort(1, 0x1234),
            "08000000 | 00000000 | 00000000 00000000 | 00000000 00000000 | 00000000 00000000 |"
            "00000000 00000000 | 01003412",
        ),
    ],
)
def test_admin_commands(found: bytes, expected: str) -> None:
    assert found == entry(expected)


def test_the_granted_number_of_queues_is_the_smaller_one_and_counts_from_zero() -> None:
    assert commands.granted_queue_count(0x0003_0007) == 4
    assert commands.granted_queue_count(0) == 1


# ---- registers


def test_capabilities() -> None:
    # MQES 07FFh, CQR, TO 0Fh, DSTRD 2, CSS bit 0, MPSMIN 0, MPSMAX 4
    value = 0x07FF | 1 << 16 | 0x0F << 24 | 2 << 32 | 1 << 37 | 4 << 52
    assert Capabilities.decode(value) == Capabilities(2048, True, 7.5, 2, True, 4096, 65536)
    assert not Capabilities.decode(1 << 44).nvm_command_set  # CSS bit 7: no I/O command set
    assert Capabilities.decode(1 << 43 | 1 << 37).nvm_command_set  # several command sets, this one too
    assert Capabilities.decode(1 << 48).min_page_bytes == 8192


def test_configuration() -> None:
    # IOSQES 6 in bits 19:16, IOCQES 4 in bits 23:20, MPS in bits 10:7, SHN in bits 15:14, EN in bit 0
    assert configuration(enable=True) == 0x0046_0001
    assert configuration(enable=True, page_bytes=8192) == 0x0046_0081
    assert configuration(enable=False, shutdown=True) == 0x0046_4000


@native
def test_every_register_access_of_bringing_up_and_shutting_down() -> None:
    """In order; of the reads of CSTS between two others the last one, which ended the wait."""
    model = ModelDrive({1: Namespace(np.zeros(PAGE, np.uint8))}, Behaviour(doorbell_stride=1))
    model.enable_bus_master()
    seen: list[Access] = []
    controller = Controller("model", Registers(model.map_registers(0x3000), seen.append), model.space)
    asq, acq = controller._memory.sq.iova, controller._memory.cq.iova
    controller.enable()
    controller.shutdown()
    controller.close()
    model.close()

    csts = 0x1C
    last_looks = [
        access
        for access, after in zip(seen, [*seen[1:], None], strict=True)
        if access.offset != csts or after is None or after.offset != csts
    ]
    found = [("write" if one.write else "read", one.offset, one.value) for one in last_looks]
    (capabilities_low, capabilities_high) = (value for _, _, value in found[:2])
    assert found == [
        ("read", 0x00, capabilities_low),
        ("read", 0x04, capabilities_high),
        ("read", 0x14, 0),  # CC: disabled already
        ("read", 0x1C, 0),  # CSTS: not ready
        ("write", 0x24, 0x000F_000F),  # AQA: 16 entries each, from zero
        ("write", 0x28, asq & 0xFFFF_FFFF),  # ASQ
        ("write", 0x2C, asq >> 32),
        ("write", 0x30, acq & 0xFFFF_FFFF),  # ACQ
        ("write", 0x34, acq >> 32),
        ("write", 0x14, 0x0046_0001),  # CC: enable
        ("read", 0x1C, 1),  # CSTS.RDY
        ("read", 0x14, 0x0046_0001),
        ("write", 0x14, 0x0046_4001),  # CC.SHN: normal shutdown
        ("read", 0x1C, 1 | 2 << 2),  # CSTS.SHST: complete
        ("read", 0x14, 0x0046_4001),
        ("read", 0x1C, 1 | 2 << 2),  # CC.EN may be cleared: CSTS.RDY is set
        ("write", 0x14, 0x0046_4000),  # CC: disable
        ("read", 0x1C, found[-1][2]),
    ]
    assert not found[-1][2] & 1
    assert Capabilities.decode(capabilities_low | capabilities_high << 32).doorbell_stride == 1


@native
@pytest.mark.parametrize(
    ("stride", "expected"), [(0, (0x1008, 0x100C)), (2, (0x1020, 0x1030)), (4, (0x1080, 0x10C0))]
)
def test_doorbells_of_the_first_io_queue(stride: int, expected: tuple[int, int]) -> None:
    model = ModelDrive({1: Namespace(np.zeros(PAGE, np.uint8))})
    pair = QueueMemory.allocate(model.space, 1, 4).pair(0, stride)
    assert (pair.sq_doorbell, pair.cq_doorbell) == expected
    model.close()


# ---- Identify


def test_identify_controller() -> None:
    data = bytearray(PAGE)
    data[4:24] = b"S3RIAL              "
    data[24:64] = b"A model".ljust(40)
    data[64:72] = b"FW 1.2  "
    data[77] = 5  # MDTS
    data[258] = 3  # ACL
    data[516:520] = (7).to_bytes(4, "little")  # NN
    data[536:540] = (0x10001).to_bytes(4, "little")  # SGLS
    found = ControllerIdentity.decode(bytes(data), 8192)
    assert found == ControllerIdentity("S3RIAL", "A model", "FW 1.2", 8192 << 5, 4, 7, True)
    data[77], data[536] = 0, 0
    found = ControllerIdentity.decode(bytes(data), 4096)
    assert (found.max_transfer_bytes, found.sgl) == (None, False)


def test_identify_namespace() -> None:
    data = bytearray(PAGE)
    data[0:8] = (123456).to_bytes(8, "little")  # NSZE
    data[26] = 0x22  # FLBAS: format 2 in bits 3:0, 1 in bits 6:5: format 18
    data[99] = 1  # NSATTR: write protected
    data[128 + 4 * 18 :][:4] = b""
    struct.pack_into("<I", data, 128 + 4 * 18, 12 << 16 | 8)  # LBADS 12, MS 8
    assert NamespaceIdentity.decode(4, bytes(data)) == NamespaceIdentity(4, 123456, 4096, 8, True)


def test_namespace_list() -> None:
    listed = struct.pack("<3I", 1, 4, 9).ljust(PAGE, b"\0")
    assert namespace_list(listed) == [1, 4, 9]
    full = struct.pack("<1024I", *range(1, 1025))
    assert len(namespace_list(full)) == 1024


# ---- reads and their data pointers


def transfer(
    address: int, n_bytes: int, *, sgl: bool, list_address: int = 0x90_0000
) -> tuple[bytes, list[int]]:
    """Entry of a Read of 8 blocks, and the PRP list."""
    sqe, listed = ctypes.create_string_buffer(64), (c_uint64 * 4096)()
    types = [c_uint8, c_uint16, c_uint32, c_uint64, c_uint32, c_uint64, c_uint64, c_uint32, c_int32]
    call = function("bam_nvme_transfer_command", None, [*types, c_void_p, c_uint64, c_char_p])
    call(2, 0x1234, 7, 0x1_2345_6789, 8, address, n_bytes, PAGE, sgl, listed, list_address, sqe)
    return sqe.raw, list(listed)


@native
def test_a_read_with_two_prp_entries() -> None:
    found, _ = transfer(0x1_0000_0200, 4096, sgl=False)
    assert found == entry(
        "02003412 | 07000000 | 00000000 00000000 | 00000000 00000000 |"
        "00020000 01000000 | 00100000 01000000 |"
        "89674523 01000000 | 07000000"
    )


@native
def test_a_read_with_an_sgl() -> None:
    found, _ = transfer(0x1_0000_0204, 0x6000, sgl=True)
    # PSDT 01b in bits 7:6 of the second byte; descriptor: address, length, reserved, type 0 (data block)
    assert found == entry(
        "02403412 | 07000000 | 00000000 00000000 | 00000000 00000000 |"
        "04020000 01000000 | 00600000 00000000 |"
        "89674523 01000000 | 07000000"
    )


@native
@pytest.mark.parametrize(
    ("address", "n_bytes", "second", "listed"),
    [
        (0x10000, 4096, 0, []),
        (0x10000, 4097, 0x11000, []),
        (0x10FFC, 4, 0, []),
        (0x10FFC, 8, 0x11000, []),
        (0x10000, 8192, 0x11000, []),
        (0x10200, 8192, 0x900000, [0x11000, 0x12000]),
        (0x10000, 12288, 0x900000, [0x11000, 0x12000]),
        (0x10000, 12289, 0x900000, [0x11000, 0x12000, 0x13000]),
    ],
)
def test_prp_entries(address: int, n_bytes: int, second: int, listed: list[int]) -> None:
    sqe, found = transfer(address, n_bytes, sgl=False)
    assert struct.unpack_from("<QQ", sqe, 24) == (address, second)
    assert found[: len(listed) + 1] == [*listed, 0]


@native
def test_a_list_that_goes_on_in_another_page() -> None:
    """512 entries in a page: 511 pages and the address of the next page of the list."""
    _, exactly = transfer(0, 513 * PAGE, sgl=False)
    assert exactly[:513] == [(page + 1) * PAGE for page in range(512)] + [0]
    _, more = transfer(0, 514 * PAGE, sgl=False)
    assert more[510:514] == [511 * PAGE, 0x900000 + 512 * 8, 512 * PAGE, 513 * PAGE]
    assert more[514] == 0


@native
@settings(max_examples=200)
@given(first=st.integers(0, 1023), n_bytes=st.integers(1, 6 << 20))
def test_any_list_names_every_page_once_and_fits_its_room(first: int, n_bytes: int) -> None:
    address = 0x40_0000 + 4 * first
    sqe, listed = transfer(address, n_bytes, sgl=False)
    prp1, prp2 = struct.unpack_from("<QQ", sqe, 24)
    pages, entry_number = [prp1 // PAGE * PAGE], 0
    wanted = -(-(address % PAGE + n_bytes) // PAGE)
    if wanted == 2:
        pages.append(prp2)
    while len(pages) < wanted:
        value = listed[entry_number]
        if entry_number % 512 == 511 and wanted - len(pages) > 1:
            assert value == 0x900000 + (entry_number + 1) * 8
        else:
            pages.append(value)
        entry_number += 1
    assert pages == [address // PAGE * PAGE + number * PAGE for number in range(wanted)]
    room = function("bam_nvme_prp_list_bytes", c_uint32, [c_uint64, c_uint32])(n_bytes, PAGE)
    assert 8 * entry_number <= room
    assert room % PAGE == 0 or PAGE % room == 0


# ---- VFIO and iommufd


def encoded(kind: int, unmap: bool) -> tuple[int, bytes]:
    number, argument = c_uint64(), ctypes.create_string_buffer(64)
    types = [c_uint32, c_int32, c_uint32, c_uint64, c_uint64, c_uint64, c_void_p, c_char_p]
    call = function("bam_dma_encode", c_uint32, types)
    n_bytes = call(kind, unmap, 5, 0x7F00_0000_1000, 0x20_0000, 0x4000_0000, ctypes.byref(number), argument)
    return number.value, argument.raw[:n_bytes]


@native
@pytest.mark.parametrize(
    ("kind", "unmap", "number", "argument"),
    [
        # struct vfio_iommu_type1_dma_map: argsz, flags (read, write), vaddr, iova, size
        (1, False, 0x3B71, struct.pack("<IIQQQ", 32, 3, 0x7F00_0000_1000, 0x4000_0000, 0x20_0000)),
        # struct vfio_iommu_type1_dma_unmap: argsz, flags, iova, size
        (1, True, 0x3B72, struct.pack("<IIQQ", 24, 0, 0x4000_0000, 0x20_0000)),
        # struct iommu_ioas_map: size, flags (fixed, write, read), ioas, reserved, user_va, length, iova
        (2, False, 0x3B85, struct.pack("<IIIIQQQ", 40, 7, 5, 0, 0x7F00_0000_1000, 0x20_0000, 0x4000_0000)),
        # struct iommu_ioas_unmap: size, ioas, iova, length
        (2, True, 0x3B86, struct.pack("<IIQQ", 24, 5, 0x4000_0000, 0x20_0000)),
    ],
)
def test_mappings(kind: int, unmap: bool, number: int, argument: bytes) -> None:
    assert encoded(kind, unmap) == (number, argument)


def test_ioctl_numbers() -> None:
    vfio, iommufd = 100, 0x80
    for code, expected in (
        (vfio_codes.Vfio.GET_API_VERSION, vfio),
        (vfio_codes.Vfio.CHECK_EXTENSION, vfio + 1),
        (vfio_codes.Vfio.SET_IOMMU, vfio + 2),
        (vfio_codes.Vfio.GROUP_GET_STATUS, vfio + 3),
        (vfio_codes.Vfio.GROUP_SET_CONTAINER, vfio + 4),
        (vfio_codes.Vfio.GROUP_GET_DEVICE_FD, vfio + 6),
        (vfio_codes.Vfio.DEVICE_GET_REGION_INFO, vfio + 8),
        (vfio_codes.Vfio.DEVICE_SET_IRQS, vfio + 10),
        (vfio_codes.Vfio.IOMMU_GET_INFO, vfio + 12),
        (vfio_codes.Vfio.DEVICE_BIND_IOMMUFD, vfio + 18),
        (vfio_codes.Vfio.DEVICE_ATTACH_IOMMUFD_PT, vfio + 19),
        (vfio_codes.Iommufd.IOAS_ALLOC, iommufd + 1),
        (vfio_codes.Iommufd.IOAS_IOVA_RANGES, iommufd + 4),
    ):
        assert code == ord(";") << 8 | expected


def test_ioctl_arguments() -> None:
    assert vfio_codes.group_status() == struct.pack("<II", 8, 0)
    assert vfio_codes.region_info(7) == struct.pack("<IIIIQQ", 32, 0, 7, 0, 0, 0)
    # struct vfio_irq_set: argsz, flags (eventfd, trigger), index, start, count, descriptor
    assert vfio_codes.set_eventfd(4, 9) == struct.pack("<IIIIIi", 24, 4 | 32, 4, 0, 1, 9)
    assert vfio_codes.bind_iommufd(6) == struct.pack("<IIiI", 16, 0, 6, 0)
    assert vfio_codes.attach_ioas(3) == struct.pack("<III", 12, 0, 3)
    assert vfio_codes.ioas_alloc() == struct.pack("<III", 12, 0, 0)
    assert vfio_codes.allocated_ioas(struct.pack("<III", 12, 0, 3)) == 3
    argument = vfio_codes.ioas_iova_ranges(3, 64, 0x1000)
    assert argument == struct.pack("<IIIIQQ", 32, 3, 64, 0, 0x1000, 0)
    assert vfio_codes.range_count(struct.pack("<IIIIQQ", 32, 3, 2, 0, 0x1000, 4096)) == 2


def test_the_list_of_usable_addresses() -> None:
    info = struct.pack("<IIQI4x", 24, 3, 4096, 24)  # page sizes and capabilities; the first one at byte 24
    other = struct.pack("<HHI8x", 3, 1, 24 + 16)  # another capability
    ranges = struct.pack("<HHIII4Q", 1, 1, 0, 2, 0, 0, 0xFEDFFFFF, 0xFEF00000, 2**39 - 1)
    found = vfio_codes.iova_ranges(info + other + ranges)
    assert found == [(0, 0xFEDFFFFF), (0xFEF00000, 2**39 - 1)]
    assert vfio_codes.iova_ranges(struct.pack("<IIQI4x", 24, 1, 4096, 0)) == []
    assert len(vfio_codes.iommu_info(200)) == 200
