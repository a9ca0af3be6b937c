"""`python -m bam info` says what works here; `bench` runs the benchmarks; `nvme` handles NVMe drives."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bam import __version__
from bam.config import EngineKind
from bam.errors import BamError, NativeLibraryMissing
from bam.native import ABI_VERSION, library, library_path
from bam.storage.engine import EngineInfo
from bam.storage.open import open_engine

PROBE_BYTES = 65536


@dataclass(frozen=True)
class Fact:
    """One line of the report."""

    name: str
    value: str


def main(arguments: list[str] | None = None) -> int:
    """Run the command given in `arguments` (default: those of the process); returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["bench"]:
        from bam.bench.__main__ import main as bench

        return bench(arguments[1:])
    if arguments[:1] == ["nvme"]:
        from bam.storage.nvme.cli import main as nvme

        return nvme(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bam", description="The storage layer on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="what works here: native library, io_uring, direct reads")
    info.add_argument(
        "--folder",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="engines are tried on a small file here; direct reads depend on the file system",
    )
    commands.add_parser("bench", help="benchmarks; the same as python -m bam.bench", add_help=False)
    commands.add_parser("nvme", help="NVMe drives that this process drives itself", add_help=False)
    chosen = parser.parse_args(arguments)
    if not os.access(chosen.folder, os.W_OK | os.X_OK):
        parser.error(f"--folder {chosen.folder}: no folder that files can be made in")
    for fact in facts(chosen.folder):
        sys.stdout.write(f"{fact.name:16}{fact.value}\n")
    return 0


def facts(folder: Path) -> Iterator[Fact]:
    """What the report says, line by line; engines are tried on a file in `folder`."""
    yield Fact("version", __version__)
    yield Fact("native library", native_library())
    with tempfile.NamedTemporaryFile(dir=folder, prefix="bam-probe-") as file:
        file.write(bytes(PROBE_BYTES))
        file.flush()
        for kind in (EngineKind.URING, EngineKind.FILE, EngineKind.AUTO):
            yield Fact(f"engine {kind.value}", engine(kind, file.name))
    yield Fact("tried in", str(folder))
    yield Fact("kernel", f"{platform.system()} {platform.release()} {platform.machine()}")
    yield Fact("cores", str(len(os.sched_getaffinity(0))))
    yield Fact("python", platform.python_version())


def native_library() -> str:
    """Path and ABI version of the native library, or why it cannot be used."""
    try:
        library()
    except NativeLibraryMissing as error:
        return f"no: {error.reason}. {error.remedy}"
    return f"{library_path()} (ABI {ABI_VERSION})"


def engine(kind: EngineKind, path: str) -> str:
    """What the engine that opens for `kind` really does, or why it does not open."""
    try:
        with open_engine(kind, [path]) as opened:
            return describe(opened.info())
    except BamError as error:
        return f"no: {error}"


def describe(info: EngineInfo) -> str:
    """One line: engine, implementation, direct or buffered, features, notes."""
    features = ", ".join(
        name if value is True else f"{name}={value}" for name, value in sorted(info.features.items())
    )
    parts = [f"{info.engine} ({info.implementation})", "direct" if info.direct else "buffered", features]
    return "; ".join(part for part in (*parts, *info.notes) if part)


if __name__ == "__main__":
    sys.exit(main())
