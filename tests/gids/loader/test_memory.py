"""Resident memory: what was asked for, and little more."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from bam.native import available

MIB = 2**20
CACHE, BUFFER = 48 * MIB, 24 * MIB
FIXED = 300 * MIB

SCRIPT = """
    import sys
    import numpy as np, torch, numba
    import bam, gids
    from gids.fetch.constant_buffer import ConstantBuffer
    from gids.fetch.table import as_table

    def peak():
        status = open("/proc/self/status").read()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    path, cache_bytes, buffer_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random = np.random.default_rng(0)
    n = 100_000
    graph = gids.Graph.from_coo((random.integers(0, n, 800_000), random.integers(0, n, 800_000)), n)
    before = peak()
    cache = bam.SharedCache(cache_bytes, policy="look_ahead")
    table = as_table("_N", bam.open_array(path, cache=cache))
    buffer = ConstantBuffer(table, np.arange(buffer_bytes // table.row_bytes))
    features = gids.FeatureStore({"_N": table}, {"_N": buffer})
    sampler = gids.NeighborSampler([8, 8])
    loader = gids.DataLoader(graph, np.arange(n), sampler, batch_size=256, features=features, window=8)
    largest = 0
    for number, batch in enumerate(loader):
        largest = max(largest, sum(tensor.nbytes for tensor in batch.features.values()))
        if number == 40:
            break
    print(peak() - before, largest)
"""


@pytest.mark.skipif(not available(), reason="the native library was not built")
def test_a_loader_takes_what_it_was_given_and_little_more(tmp_path: Path) -> None:
    """Cache, constant buffer, the mini-batch in use and the one ahead of it, and at most 300 MB more."""
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(1).standard_normal((100_000, 512)).astype(np.float32))
    arguments = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), str(CACHE), str(BUFFER)]
    found = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=300)
    taken, batch = map(int, found.stdout.split())
    assert path.stat().st_size > CACHE + BUFFER + 3 * batch
    assert taken <= CACHE + BUFFER + 2 * batch + FIXED
