"""`make test-nvme`: the NVMe driver against QEMU's drives, in virtual machines without KVM.

Usage: python tests/vm/run.py [name of a guest] [arguments of pytest]
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from guest_kernel import Kernel, unpack
from machine import QEMU, Drive, Machine, Namespace

from bam.native import library_path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("BAM_TEST_CACHE", REPOSITORY / "build" / "test-nvme"))
TIMEOUT_S = 280.0
MIB = 1 << 20


@dataclass(frozen=True)
class Guest:
    """A virtual machine and the tests that run in it.

    Attributes
    ----------
    name : str
        Also the folder under ``tests/vm/guest``.
    drives : tuple of Drive
    expected : int
        Tests that must have run: fewer mean that something was left out unnoticed.
    kernels : bool
        Whether the GPU's kernels, compiled for the host, are needed.
    """

    name: str
    drives: tuple[Drive, ...]
    expected: int
    kernels: bool = False


GUESTS = (
    Guest(
        "contracts",
        (
            Drive("D512", (Namespace(24 * MIB),)),
            Drive("D4096", (Namespace(24 * MIB, 4096),)),
            Drive("DTWO", (Namespace(24 * MIB), Namespace(16 * MIB, 4096)), "mdts=0"),
            Drive("DLAST", (Namespace(24 * MIB),), "max_ioqpairs=8"),
        ),
        expected=108,
        kernels=True,
    ),
    Guest(
        "faults",
        (
            Drive("BADBLOCK", (Namespace(16 * MIB, bad_sector=100),)),
            Drive("READONLY", (Namespace(16 * MIB, read_only=True),)),
            Drive("SLOW", (Namespace(16 * MIB, throttled=True),)),
            Drive("REMOVED", (Namespace(16 * MIB),)),
            Drive("SHARED0", (Namespace(8 * MIB),)),
            Drive("SHARED1", (Namespace(8 * MIB),), beside=True),
        ),
        expected=11,
    ),
)


@dataclass(frozen=True)
class Outcome:
    """How the tests of a guest ended."""

    guest: Guest
    ran: int
    failed: int
    seconds: float
    report: str


def main(arguments: list[str]) -> int:
    """Exit status."""
    chosen = [guest for guest in GUESTS if arguments[:1] == [guest.name]]
    pytest_arguments = arguments[len(chosen) :]
    if not find_qemu():
        return 0 if os.environ.get("CI") is None else 1
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel = unpack(CACHE)
    # Side by side: each guest is one emulated processor's worth of work most of the time.
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda guest: run_guest(guest, kernel, pytest_arguments), chosen or GUESTS))
    for outcome in outcomes:
        sys.stdout.write(outcome.report)
        sys.stdout.write(
            f"guest {outcome.guest.name}: {outcome.ran} tests ran, {outcome.guest.expected} expected, "
            f"{outcome.failed} failed, {outcome.seconds:.0f} s\n"
        )
    complete = bool(pytest_arguments) or all(outcome.ran >= outcome.guest.expected for outcome in outcomes)
    return 0 if complete and not any(outcome.failed for outcome in outcomes) else 1


def find_qemu() -> bool:
    """Whether QEMU is there, or could be installed."""
    if shutil.which(QEMU) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "qemu-system-x86"]
        for command in (["apt-get", "update", "-qq"], install):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if shutil.which(QEMU) is None:
        sys.stdout.write(f"SKIPPED: make test-nvme needs {QEMU} (Debian: apt-get install qemu-system-x86)\n")
        return False
    return True


def run_guest(guest: Guest, kernel: Kernel, pytest_arguments: list[str]) -> Outcome:
    """Boot it, run its tests, read their report."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bam-vm-") as folder:
        machine = Machine(kernel, Path(folder), guest.drives)
        kernels = Path(folder) / "kernels.so"
        if guest.kernels:
            compile_kernels(kernels)
        status = 1
        try:
            status = machine.run(guest_command(guest, pytest_arguments, kernels), TIMEOUT_S)
            text = (machine.share / "report.txt").read_text(errors="replace")
        except TimeoutError as error:
            text = f"{machine.console.read_text(errors='replace')[-20_000:]}\n{error}\n"
        ran, failed = count_tests(machine.share / "junit.xml")
    # A guest that dies or hangs after its last test has written a clean report.
    failed = failed or int(status != 0)
    return Outcome(guest, ran, failed, time.monotonic() - started, text)


def compile_kernels(target: Path) -> None:
    """The GPU's kernels for the host's processor, as the tests of arrays on a GPU compile them."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "bam" / "cache" / "device"))
    from emulated_gpu import compile_kernels as compile_for_host

    compile_for_host(target)


def guest_command(guest: Guest, pytest_arguments: list[str], kernels: Path) -> str:
    """What the guest's shell runs."""
    variables = {
        "BAM_TEST_GUEST": guest.name,
        "BAM_NATIVE_LIBRARY": str(library_path()),
        "BAM_TEST_KERNELS": str(kernels),
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TMPDIR": "/mnt/tmp",
        "HOME": "/mnt/tmp",
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    tests = REPOSITORY / "tests" / "vm" / "guest" / guest.name
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--durations=8"]
    pytest += ["--junitxml=/mnt/share/junit.xml", str(tests), *pytest_arguments]
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    command = f"{shlex.join(pytest)} >/mnt/share/report.txt 2>&1"
    return f"cd {shlex.quote(str(REPOSITORY))}; export {exports}; {command}\n"


def count_tests(report: Path) -> tuple[int, int]:
    """Tests that ran (skipped ones did not), and those that failed; a missing report is a failure."""
    if not report.exists():
        return 0, 1
    suites = ElementTree.parse(report).getroot().findall("testsuite")
    total = {
        name: sum(int(suite.get(name, "0")) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    return total["tests"] - total["skipped"], total["failures"] + total["errors"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
