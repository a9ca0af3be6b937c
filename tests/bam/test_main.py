"""`python -m bam`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bam
from bam.__main__ import main
from bam.native import available, library_path


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return {line[:16].strip(): line[16:] for line in lines}


def run_module(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter: what is loaded is decided once a process."""
    package_folder = str(Path(bam.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package_folder, **variables}
    command = [sys.executable, "-m", "bam", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_info_tries_the_engines_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", "--folder", str(tmp_path)]) == 0
    found = report(capsys)
    implementation = "native" if available() else "python"
    assert found["engine file"].startswith(f"file ({implementation}); ")
    assert found["version"] == bam.__version__
    assert found["tried in"] == str(tmp_path)
    assert int(found["cores"]) >= 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_info_names_the_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["info", "--folder", str(tmp_path)])
    assert report(capsys)["native library"].startswith(str(library_path()))


def test_info_without_the_library_says_so_and_what_to_do() -> None:
    done = run_module("info", BAM_NATIVE_LIBRARY="")
    assert done.returncode == 0
    assert "native library  no: the native library was not built. Install a C++20 compiler" in done.stdout
    assert "engine uring    no: engine 'uring' is not available" in done.stdout
    assert "engine file     file (python)" in done.stdout


def test_info_says_why_a_library_cannot_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "libbam_native.so"
    broken.write_bytes(b"not a library")
    done = run_module("info", BAM_NATIVE_LIBRARY=str(broken))
    assert done.returncode == 0
    assert f"native library  no: {broken} cannot be loaded: " in done.stdout


def test_info_refuses_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["info", "--folder", str(tmp_path / "absent")])
    assert "no folder that files can be made in" in capsys.readouterr().err


def test_bench_is_dispatched(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "io", "--help"])
    assert stopped.value.code == 0
    assert "python -m bam.bench io" in capsys.readouterr().out
