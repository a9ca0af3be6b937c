"""Every CUDA source compiles for every GPU generation, without a GPU and with warnings as errors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
NATIVE = REPOSITORY / "bam" / "native"
SOURCES = [*sorted(NATIVE.glob("cuda/*.cu")), REPOSITORY / "gids/fetch/native/next_uses.cu"]
ARCHITECTURES = ("80", "90", "100", "120")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_every_source_compiles_for_every_gpu(tmp_path: Path) -> None:
    """As one translation unit, because most of the time goes into the headers of libcu++."""
    assert len(SOURCES) >= 4
    every = tmp_path / "every.cu"
    every.write_text("".join(f'#include "{source}"\n' for source in SOURCES))
    # C++20 because platform.h also gives the host its std::atomic_ref.
    command = ["nvcc", "-fatbin", "-std=c++20", "-Werror=all-warnings", "--threads=0"]
    command += [f"-gencode=arch=compute_{number},code=sm_{number}" for number in ARCHITECTURES]
    command += ["-I", str(NATIVE / "include"), "-o", str(tmp_path / "every.fatbin"), str(every)]
    compiled = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert compiled.returncode == 0, compiled.stderr
    found = (tmp_path / "every.fatbin").read_bytes()
    for kernel in (
        b"bam_submit_rows",
        b"bam_gather_rows",
        b"bam_plain_gather",
        b"bam_read_items",
        b"gids_next_uses",
    ):
        assert kernel in found
