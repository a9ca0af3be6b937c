"""The GPU sampler's kernels, compiled by g++ and run by threads, so that tests need no GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gids.sampling.cuda.kernels import NATIVE_FOLDER, ONE_TEAM, Launch
from gids.sampling.cuda.structs import COutput, CPlan

SOURCE = Path(__file__).parent / "host_sampler.cc"
REPOSITORY = Path(__file__).resolve().parents[3]


@cache
def _compile(folder: Path) -> ctypes.CDLL:
    out = folder / "host_sampler.so"
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    command += ["-I", str(REPOSITORY / "bam/native/include"), "-I", str(NATIVE_FOLDER), "-o", str(out)]
    compiled = subprocess.run([*command, str(SOURCE)], capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr
    return ctypes.CDLL(str(out))


def host_library(folder: Path) -> ctypes.CDLL:
    """The steps as a library, compiled into `folder` once."""
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    return _compile(folder)


class HostPinnedArray:
    def __init__(self, shape: int, dtype: Any) -> None:
        self.array = np.empty(shape, dtype)
        self.address = self.array.ctypes.data


class HostKernels:
    """`Kernels` whose blocks are threads; `members` threads work on one tile."""

    device = torch.device("cpu")

    def __init__(self, library: ctypes.CDLL, blocks: int = 1, members: int = 1) -> None:
        self._run = library.run_kernel
        self._run.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        self._run.argtypes += [ctypes.c_int64, ctypes.c_int64]
        self._run.restype = None
        self._blocks, self._members = blocks, members
        self.launches: list[str] = []
        self.waits = 0

    def free_bytes(self) -> int:
        return 2**40

    def pinned(self, shape: int, dtype: Any) -> HostPinnedArray:
        return HostPinnedArray(shape, dtype)

    def current(self) -> AbstractContextManager[object]:
        return nullcontext()

    def launch(self, name: str, *arguments: ctypes.Structure | int) -> None:
        plan, *others = arguments
        assert isinstance(plan, CPlan)
        hop = next((each for each in others if isinstance(each, int)), 0)
        output = next((ctypes.addressof(each) for each in others if isinstance(each, COutput)), None)
        blocks = 1 if name in ONE_TEAM else self._blocks
        self._run(name.encode(), ctypes.addressof(plan), hop, output, blocks, self._members)
        self.launches.append(name)

    def recorded(self, launches: Sequence[Launch]) -> Callable[[], None]:
        copies = [
            (
                name,
                tuple(
                    each if isinstance(each, int) else type(each).from_buffer_copy(each) for each in arguments
                ),
            )
            for name, arguments in launches
        ]

        def replay() -> None:
            for name, arguments in copies:
                self.launch(name, *arguments)

        return replay

    def record(self) -> object:
        return len(self.launches)

    def follow(self, mark: object) -> None:
        assert isinstance(mark, int)

    def wait(self) -> None:
        self.waits += 1
