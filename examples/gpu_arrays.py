"""Your own CUDA kernels over arrays that stay on disk: a sum and a breadth-first search. Needs a GPU, CuPy.

    python examples/gpu_arrays.py

`bam::array<T>` reads an item whenever a thread asks for one; threads of a warp that want the same page share
the read.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import bam
from bam.native import nvrtc

KERNELS = r"""
#include "bam/array.cuh"

extern "C" __global__ void total(const bam::ArrayView* view, double* sum) {
  bam::array<float> items(*view);
  double mine = 0;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < items.size();
       i += uint64_t{gridDim.x} * blockDim.x)
    mine += items[i];
  atomicAdd(sum, mine);
}

// One level: every vertex at distance `level` gives its neighbours, which are on disk, the next one.
extern "C" __global__ void expand(const bam::ArrayView* view, const long long* indptr, int n_vertices,
                                  int level, int* distance, int* found) {
  bam::array<int> edges(*view);
  int step = gridDim.x * blockDim.x;
  for (int vertex = blockIdx.x * blockDim.x + threadIdx.x; vertex < n_vertices; vertex += step) {
    if (distance[vertex] != level) continue;
    for (long long edge = indptr[vertex]; edge < indptr[vertex + 1]; edge++) {
      int neighbour = edges[edge];
      if (atomicCAS(&distance[neighbour], -1, level + 1) == -1) *found = 1;
    }
  }
}
"""

#: A small cache, so that most pages are read; `lone_pages` are the reads that kernels can have under way.
SETTINGS = bam.GpuSettings(queue_pairs=16, queue_slots=256, staging="4MiB", lone_pages=4096)


def kernel(name: str) -> Any:
    """One of the kernels above."""
    import cupy

    return cupy.RawModule(code=KERNELS, options=nvrtc.user_options()).get_function(name)


def total(path: Path, cache: str = "4MiB") -> float:
    """Sum of a float32 array on disk."""
    import cupy

    with bam.open_array(path, device="cuda", cache=cache, gpu=SETTINGS) as array:
        view, result = array.view(), cupy.zeros(1, np.float64)
        kernel("total")((256,), (256,), (np.uint64(view.address), result))
        value = float(result[0])
        view.check()
        return value


def distances(
    indptr: npt.NDArray[np.int64], edges: Path, root: int, cache: str = "4MiB"
) -> npt.NDArray[np.int32]:
    """Edges from `root` to every vertex, -1 where there is no way; the graph's int32 edges stay on disk."""
    import cupy

    n_vertices = len(indptr) - 1
    distance = cupy.full(n_vertices, -1, np.int32)
    distance[root] = 0
    on_gpu, found = cupy.asarray(indptr), cupy.zeros(1, np.int32)
    expand = kernel("expand")
    with bam.open_array(edges, device="cuda", cache=cache, gpu=SETTINGS) as array:
        view = array.view()
        for level in range(n_vertices):
            found[0] = 0
            arguments = (
                np.uint64(view.address),
                on_gpu,
                np.int32(n_vertices),
                np.int32(level),
                distance,
                found,
            )
            expand((256,), (128,), arguments)
            if not int(found[0]):
                break
        view.check()
    return np.asarray(distance.get(), np.int32)


def main() -> int:
    """Sum 16 MiB through a cache of 4 MiB, and search a random graph."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        items = rng.random(2**22, dtype=np.float32)
        np.save(Path(folder) / "items.npy", items)
        found, expected = total(Path(folder) / "items.npy"), items.sum(dtype=np.float64)
        print(f"sum on the GPU {found:.3f}, by numpy {expected:.3f}")
        degrees = rng.integers(0, 12, 100_000)
        indptr = np.concatenate([[0], np.cumsum(degrees)])
        edges = rng.integers(0, len(degrees), indptr[-1]).astype(np.int32)
        np.save(Path(folder) / "edges.npy", edges)
        reached = distances(indptr, Path(folder) / "edges.npy", 0)
        print(f"{(reached >= 0).sum():,} of {len(reached):,} vertices reached, in {reached.max()} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
