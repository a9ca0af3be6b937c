"""What surrounds the compiled code: its cache between processes, its log line, quick imports."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from gids.sampling import launch

SAMPLE = """
from gids.graph.graph import Graph
from gids.sampling.batch_kernel import sample_batch
from gids.sampling.neighbor import NeighborSampler
graph = Graph.from_coo(([0, 1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 0, 0, 0, 2]), 8)
batch = NeighborSampler([2, 2], threads={threads}).sample(graph, [1, 2])
print(batch.nodes["_N"].tolist(), sum(sample_batch.stats.cache_hits.values()))
"""


def run_python(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return finished.stdout.strip()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_later_process_loads_what_was_compiled(threads: int) -> None:
    code = SAMPLE.format(threads=threads)
    nodes, _ = run_python(code).rsplit(" ", 1)
    assert run_python(code) == f"{nodes} 1"


def test_compilation_is_timed_once_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "_compiled", {})
    with caplog.at_level(logging.INFO):
        seconds = launch.compile_seconds(parallel=False)
        assert launch.compile_seconds(parallel=False) == seconds > 0
    [message] = [each.getMessage() for each in caplog.records if each.name == "gids.sampling.launch"]
    assert message.startswith("sampler (one thread) ")


def test_imports_bring_in_nothing_slow() -> None:
    code = """
import sys, gids, gids.graph.graph, gids.sampling.neighbor
gids.sampling.neighbor.NeighborSampler([10, 5])
print(sorted({"numba", "torch", "dgl", "torch_geometric", "cupy"} & set(sys.modules)))
"""
    assert run_python(code) == "[]"
