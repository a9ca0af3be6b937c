"""A small piece of all that the kernels do, for compute-sanitizer, which slows them down a hundredfold.

compute-sanitizer ... python experiments/gpu/sanitized.py [arrays | views | groups | sampler | loader ...]
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import bam
from bam.cache.device.cupy_gpu import CupyGpu
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine

# The checks that the tests make, too.
TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS / "bam" / "cache" / "device"))

log = logging.getLogger("sanitized")


def arrays() -> None:
    """Rows of several sizes, with few of the reads failing."""
    rng = np.random.default_rng(0)
    for row_bytes, page_bytes, lines, policy in (
        (4096, 4096, 64, "clock"),
        (512, 512, 500, "look_ahead_global"),
        (1000, 512, 7, "sieve"),
        (3, 512, 1, "random"),
    ):
        rows = rng.integers(0, 256, (500, row_bytes), dtype=np.uint8)
        settings = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="256KiB")
        rule = FaultRule(FaultKind.ERROR, every=97, max_injections=2)
        with bam.open_array(
            rows,
            cache=f"{lines} lines",
            page_bytes=page_bytes,
            policy=policy,
            device="cuda",
            gpu=settings,
            timeout_s=120,
            wrap=lambda engine, rule=rule: NativeFaultEngine(engine, [rule]),
        ) as array:
            failed = 0
            for _ in range(6):
                ids = rng.integers(-500, 500, 120)
                try:
                    np.testing.assert_array_equal(array.gather(ids).get(), rows[ids])
                except bam.StorageError:
                    failed += 1
            assert failed <= 2, failed  # as many as were planted


def views() -> None:
    """Items that a kernel reads by itself, through a cache that is too small, beside a gather."""
    from device_arrays import open_on, read_items

    items = np.random.default_rng(0).integers(0, 2**32, 5_000, dtype=np.uint32)
    settings = {"page_bytes": 512, "cache_lines": 8, "lone_pages": 16, "timeout_s": 120.0}
    gpu = CupyGpu()
    with open_on(gpu, items, **settings) as array:
        indices = np.random.default_rng(1).integers(0, len(items), 300).astype(np.uint64)
        gather = array.begin(np.arange(500))
        found, view = read_items(gpu, array, indices)
        view.check()
        np.testing.assert_array_equal(found, items[indices])
        np.testing.assert_array_equal(gather.wait().get(), items[:500])


def groups() -> None:
    """Arrays that share a store: constant rows, counts, and what the cache is told of later uses."""
    from device_groups import check_constant_rows, check_group, check_next_uses

    for check in (check_group, check_constant_rows, check_next_uses):
        with tempfile.TemporaryDirectory() as folder:
            check(CupyGpu(), Path(folder))


def sampler() -> None:
    """Mini-batches of a small graph, equal to the CPU sampler's."""
    from gids.graph.graph import Graph
    from gids.sampling.cuda.sampler import CudaSampler
    from gids.sampling.neighbor import NeighborSampler

    rng = np.random.default_rng(0)
    edge_types = (("p", "cites", "p"), ("q", "writes", "p"), ("p", "by", "q"))
    num_nodes = {"p": 300, "q": 120}
    ends = {
        each: tuple((num_nodes[name] * rng.random(2_000) ** 2).astype(np.int64) for name in each[::2])
        for each in edge_types
    }
    graph = Graph.from_coo(ends, num_nodes)
    for replace in (False, True):
        plain = NeighborSampler([4, 3], replace=replace, return_edge_ids=True)
        for graph_bytes in (None, 0):
            on_gpu = CudaSampler(plain, graph, graph_bytes=graph_bytes)
            for batch in range(3):
                seeds = {"p": np.arange(batch, batch + 40)}
                found = on_gpu.sample(seeds, batch=batch).to_host()
                expected = plain.sample(graph, seeds, batch=batch)
                for name, nodes in expected.nodes.items():
                    np.testing.assert_array_equal(found.nodes[name], nodes)
                for block, own in zip(found.blocks, expected.blocks, strict=True):
                    for edge_type, edges in own.edges.items():
                        np.testing.assert_array_equal(block.edges[edge_type].indices, edges.indices)


def loader() -> None:
    """Two epochs, with constant rows in both memories and a window."""
    sys.path.insert(0, str(TESTS / "gids" / "loader"))
    import gpu_loaders as checks
    import torch

    from gids.fetch.cuda.open import GpuFeatureSettings, open_gpu_features
    from gids.fetch.open import FeatureSettings

    read_path = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="1MiB")

    def open_store(given: Any, *, gpu_buffer: Any = 0, **settings: Any) -> Any:
        chosen = GpuFeatureSettings(FeatureSettings(**settings), gpu_buffer, read_path)
        return open_gpu_features(given, chosen, torch.device("cuda", 0))

    machine = checks.Machine(open_store, lambda neighbor, graph: neighbor)
    settings = {"cache": "10%", "cpu_buffer": "10%", "gpu_buffer": "5%"}
    with tempfile.TemporaryDirectory() as folder:
        checks.check_epochs(machine, Path(folder), "measured", settings, 3)


PARTS = {part.__name__: part for part in (arrays, views, groups, sampler, loader)}


def main() -> int:
    """Run the parts that are named, or all."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    for name in sys.argv[1:] or PARTS:
        begin = time.monotonic()
        PARTS[name]()
        log.info("%s: all is right, %.1f s", name, time.monotonic() - begin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
