"""Kernels are compiled once, kept, and compiled again when the entry is damaged. Needs NVRTC, and no GPU."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bam.errors import ConfigError, EngineUnavailable
from bam.native import nvrtc

SOURCE = 'extern "C" __global__ void twice(int* x) { *x *= FACTOR; }'

pytestmark = pytest.mark.skipif(not nvrtc.available(), reason="NVRTC or libcu++ is not on this machine")


@pytest.fixture(autouse=True)
def kernel_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAM_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def compiled(factor: int = 2, salt: str = "", arch: str = "sm_90") -> bytes:
    return nvrtc.compiled(SOURCE, "twice.cu", arch, [f"-DFACTOR={factor}"], salt=salt)


def test_a_kernel_is_compiled_once(kernel_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compiled()
    assert b"twice" in first
    assert [path.name.startswith("twice-") for path in kernel_cache.iterdir()] == [True]
    monkeypatch.setattr(nvrtc, "_compile", None)  # whoever compiles now fails
    assert compiled() == first


def test_options_architecture_and_salt_are_part_of_the_key(kernel_cache: Path) -> None:
    for call in ({}, {"factor": 3}, {"salt": "cupy 14"}, {"arch": "sm_80"}):
        compiled(**call)
    assert len(list(kernel_cache.iterdir())) == 4


def test_headers_are_part_of_the_key(kernel_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "headers"
    folder.mkdir()
    source = '#include "factor.h"\n' + SOURCE
    found = []
    for factor in (2, 3):
        (folder / "factor.h").write_text(f"#define FACTOR {factor}\n")
        found.append(nvrtc.compiled(source, "twice.cu", "sm_90", include=[folder]))
    assert found[0] != found[1]


@pytest.mark.parametrize("damage", [b"", b"x", b"0" * 200])
def test_a_damaged_entry_is_compiled_again(
    kernel_cache: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first = compiled()
    (entry,) = kernel_cache.iterdir()
    whole = entry.read_bytes()
    entry.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert compiled() == first
    assert "compiled again" in caplog.text
    assert entry.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_only_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BAM_KERNEL_CACHE", str(tmp_path / "file" / "kernels"))
    with caplog.at_level(logging.WARNING):
        assert b"twice" in compiled()
    assert "cannot be written" in caplog.text


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(ConfigError, match="no_such_name"):
        nvrtc.compiled("__device__ int x = no_such_name;", "wrong.cu", "sm_90")


def test_without_cupy_loading_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(EngineUnavailable, match="cuda13"):
        nvrtc.load(tmp_path / "any.cu")


def test_your_own_kernels_find_the_headers() -> None:
    """With the options that are given to users, and nothing else."""
    source = (
        '#include "bam/array.cuh"\nextern "C" __global__ void first(const bam::ArrayView* view, float* out) {'
    )
    source += " *out = bam::array<float>(*view)[0]; }"
    folders = [option for option in nvrtc.user_options() if option.startswith("-I")]
    assert "-std=c++17" in nvrtc.user_options()
    assert b"first" in nvrtc.compiled(source, "own.cu", "sm_90", folders)
