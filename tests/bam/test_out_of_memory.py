"""No C++ exception leaves the native library: what fails for lack of memory is a MemoryError."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bam.errors import NativeFailure
from bam.native import _raise_failure, available, function, library
from bam.storage.queues import MAX_DEPTH, MAX_PAIRS, HostQueues

pytestmark = pytest.mark.skipif(not available(), reason="the native library was not built")


def test_more_than_there_is() -> None:
    with pytest.raises(MemoryError, match="bam_queues_create"):
        HostQueues(MAX_PAIRS, MAX_DEPTH)  # 137 TB
    HostQueues(1, 2).close()  # the failure is not told again


def test_other_exceptions_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        __name__ = "bam_store_gather"

    answers = {"bam_take_failure": lambda: 5, "bam_failure_text": lambda: b"surprise"}
    monkeypatch.setattr("bam.native._declared", lambda name, result: answers[name])
    with pytest.raises(NativeFailure, match="bam_store_gather: surprise"):
        _raise_failure(None, Failed(), ())


def test_functions_that_allocate_are_asked() -> None:
    for name in ("bam_store_gather", "bam_engine_read", "bam_cache_create", "bam_queues_read"):
        declared = getattr(library(), name)  # one object for all who call it: its signature must stay
        assert function(name, declared.restype, declared.argtypes or []).errcheck is _raise_failure


SOURCES = sorted((Path(__file__).parents[2] / "bam/native/src").glob("*.cc"))
ABI_FUNCTION = re.compile(r"^(?!//|extern|[} ])[^\n]*?(bam_\w+)\(", re.M)
ALLOCATES = re.compile(r"\bnew \w|std::string|std::vector|make_shared|make_unique|push_back")
#: It only moves an empty list.
EXCEPT = {"bam_engine_destroy"}


def test_functions_that_allocate_are_guarded() -> None:
    """Whoever adds a function to the C ABI is told here that no exception may leave it (guard.h)."""
    seen = set()
    for source in SOURCES:
        _, _, abi = source.read_text().partition('extern "C" {')
        found = list(ABI_FUNCTION.finditer(abi))
        ends = [function.start() for function in found[1:]] + [len(abi)]
        for declared, end in zip(found, ends, strict=False):
            body = abi[declared.start() : end]
            seen.add(declared[1])
            safe = "guarded(" in body or not ALLOCATES.search(body) or declared[1] in EXCEPT
            assert safe, f"{declared[1]} in {source.name}"
    assert {"bam_store_gather", "bam_queues_create", "bam_store_counters"} <= seen


STARVED = """
import resource, sys
import numpy as np
import bam

path = sys.argv[1]
rows = np.load(path)
array = bam.open_array(path, cache="4 lines", engine=sys.argv[2])
ids = np.random.default_rng(0).permutation(len(rows))
out = np.empty_like(rows)
array.gather(ids[:10])
unlimited = resource.getrlimit(resource.RLIMIT_AS)
failed = 0
for spare_mib in range(0, 60, 2):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare_mib * 2**20, unlimited[1]))
    try:
        array.gather(ids, out)
    except (MemoryError, bam.EngineUnavailable):
        failed += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
array.gather(ids, out)
assert (out == rows[ids]).all()
array.close()
print(failed)
"""


@pytest.mark.parametrize("engine", ["file", "uring"])
def test_gathers_in_a_process_without_memory(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (4000, 600), np.uint8))
    ran = subprocess.run([sys.executable, "-c", STARVED, str(path), engine], capture_output=True, text=True)
    if "EngineUnavailable" in ran.stderr and "uring" in ran.stderr:
        pytest.skip(ran.stderr.splitlines()[-1])
    assert ran.returncode == 0, ran.stderr
    assert 0 < int(ran.stdout) < 30
