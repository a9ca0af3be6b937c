"""The shared headers compile for the GPU: nvcc makes device code of every template, without a GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_the_shared_headers_compile_for_the_gpu(tmp_path: Path) -> None:
    cubin = tmp_path / "compile_check.cubin"
    # C++20 because platform.h also gives the host its std::atomic_ref.
    command = ["nvcc", "-arch=sm_90", "-std=c++20", "-Werror=all-warnings", "-cubin"]
    command += ["-I", str(REPOSITORY / "bam/native/include"), "-o", str(cubin)]
    source = REPOSITORY / "tests/native/compile_check.cu"
    compiled = subprocess.run(
        [*command, str(source)], capture_output=True, text=True, timeout=300, check=False
    )
    assert compiled.returncode == 0, compiled.stderr
    found = cubin.read_bytes()
    for kernel in (b"submit", b"answer", b"read_through_cache"):
        assert kernel in found
