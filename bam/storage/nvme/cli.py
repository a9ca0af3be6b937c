"""`python -m bam nvme`: find drives, take and give them back, write and verify stores."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bam.config import parse_bytes
from bam.errors import BamError, DriveUnavailable
from bam.storage.nvme.drive import NvmeDrive, open_drive
from bam.storage.nvme.pci import VFIO_DRIVER, PciFunction, nvme_functions, uses_of
from bam.storage.nvme.raw_namespace import RawNamespace
from bam.storage.nvme.store import NvmeStore
from bam.storage.nvme.store_writer import write_store

KERNEL_DRIVER = "nvme"


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    chosen = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        for line in chosen.run(chosen):
            sys.stdout.write(line + "\n")
    except (BamError, OSError) as error:
        sys.stderr.write(f"python -m bam nvme {chosen.command}: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bam nvme", description="NVMe drives that this process drives itself (docs/nvme.md)."
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(
        name: str, run: Callable[[argparse.Namespace], Iterator[str]], what: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=what)
        command.set_defaults(run=run)
        return command

    add("list", _list, "NVMe controllers of this machine, their drivers and IOMMU groups")
    bind = add("bind", _bind, "take drives from the kernel (root); nothing on them is changed")
    bind.add_argument("--serial", action="append", default=[], help="serial number of a drive that is in use")
    unbind = add("unbind", _unbind, "give drives back to the kernel (root)")
    info = add("info", _info, "what bound drives are: queues, limits, namespaces, stores")
    for command in (bind, unbind, info):
        command.add_argument("pci", nargs="+", help="PCI address, such as 0000:01:00.0")
    write = add("write", _write, "write a file or folder to bound drives; goes on if it was cut off")
    write.add_argument("store", type=Path, help="a file, or a folder with all files below it")
    write.add_argument(
        "--stripe-bytes", default="4096", help="unit dealt to the drives in turn (default 4096)"
    )
    write.add_argument(
        "--serial", action="append", default=[], help="serial number of a drive whose contents may be lost"
    )
    verify = add("verify", _verify, "read a store back and compare its checksums")
    for command in (write, verify):
        command.add_argument(
            "pci", nargs="+", help="PCI addresses of the drives, in the order of the stripes"
        )
        command.add_argument("--nsid", type=int, default=1, help="namespace on each drive (default 1)")
    return parser


def _list(_: argparse.Namespace) -> Iterator[str]:
    found = list(nvme_functions())
    if not found:
        yield "no NVMe controllers"
    for function in found:
        group = (
            "no IOMMU group: the IOMMU is off" if function.group is None else f"IOMMU group {function.group}"
        )
        neighbours = [] if function.group is None else function.group_neighbours()
        shared = f", shared with {', '.join(one.address for one in neighbours)}" if neighbours else ""
        disks = f" ({', '.join(function.block_devices())})" if function.block_devices() else ""
        yield f"{function.address}  {function.driver or 'no driver'}{disks}  {group}{shared}"


def _bind(chosen: argparse.Namespace) -> Iterator[str]:
    for address in chosen.pci:
        function = PciFunction.at(address)
        uses = uses_of(function, _text("/proc/mounts"), _text("/proc/swaps"))
        serial = _serial(function)
        if uses and serial not in chosen.serial:
            remedy = (
                f"Unmount it first; or, to take it all the same, type its serial number: --serial {serial}"
            )
            raise DriveUnavailable(function.address, f"it is in use: {'; '.join(uses)}", remedy)
        function.bind(VFIO_DRIVER)
        group = f"/dev/vfio/{function.group}"
        yield f"{function.address}  {VFIO_DRIVER}; to use it without root: chown USER {group}"


def _unbind(chosen: argparse.Namespace) -> Iterator[str]:
    for address in chosen.pci:
        function = PciFunction.at(address)
        function.bind(KERNEL_DRIVER)
        yield f"{function.address}  {KERNEL_DRIVER}"


def _info(chosen: argparse.Namespace) -> Iterator[str]:
    for address in chosen.pci:
        with open_drive(address) as drive:
            identity, limits = drive.identity, drive.capabilities
            longest = identity.max_transfer_bytes
            yield f"{drive.name}  {identity.model}, serial {identity.serial}, firmware {identity.firmware}"
            yield f"  opened through {drive.interface}; data pointers: {'SGL' if drive.use_sgl else 'PRP'}"
            yield f"  deepest queue {limits.max_queue_entries}, longest command {longest or 'any'} bytes"
            for namespace in drive.namespaces:
                size = f"{namespace.n_blocks} blocks of {namespace.block_bytes} bytes"
                metadata = (
                    f" with {namespace.metadata_bytes} bytes of metadata" if namespace.metadata_bytes else ""
                )
                yield f"  namespace {namespace.nsid}: {size}{metadata}{_store_on(drive, namespace.nsid)}"


def _write(chosen: argparse.Namespace) -> Iterator[str]:
    with ExitStack() as opened:
        drives = [opened.enter_context(open_drive(address)) for address in chosen.pci]
        targets = [RawNamespace(drive, chosen.nsid) for drive in drives]
        block = write_store(
            chosen.store,
            targets,
            stripe_bytes=parse_bytes(chosen.stripe_bytes, "stripe_bytes"),
            serials=chosen.serial,
            progress=_show("written"),
        )
        yield f"wrote store {block.uuid}: {block.logical_bytes} bytes on {block.n_drives} drives"
        NvmeStore(targets).verify(_show("verified"))
        yield "verified: every chunk reads back as it was written"


def _verify(chosen: argparse.Namespace) -> Iterator[str]:
    with NvmeStore.open(chosen.pci, nsid=chosen.nsid) as store:
        store.verify(_show("verified"))
        yield f"store {store.superblock.uuid}: every chunk reads back as it was written"
        for member in store.members:
            yield f"  {member.n_bytes:>15} {member.name}"


def _store_on(drive: NvmeDrive, nsid: int) -> str:
    try:
        store = NvmeStore([RawNamespace(drive, nsid)])
    except BamError:
        return ""
    return f", store {store.superblock.uuid} ({len(store.members)} files)"


def _serial(function: PciFunction) -> str:
    """As the kernel driver knows it; empty where it is not bound to that."""
    found = sorted(function.folder.glob("nvme/nvme*/serial"))
    return found[0].read_text().strip() if found else ""


def _show(what: str) -> Callable[[int, int], None]:
    """Progress in percent on a terminal, nothing elsewhere."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done >= total else ""
            sys.stderr.write(f"\r{what} {100 * done // max(1, total)} %{end}")

    return show


def _text(path: str) -> str:
    file = Path(path)
    return file.read_text() if file.exists() else ""
