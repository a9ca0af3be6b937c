// What the benchmarks compare with: the plainest kernel for the same bytes, without cache or queues.
#include <cuda/std/cstdint>

using cuda::std::int64_t;
using cuda::std::uint64_t;

// A warp copies a row of `vectors` times 16 bytes; `from` is in the GPU's memory or pinned in the host's.
extern "C" __global__ void bam_plain_gather(const int4* __restrict__ from, const int64_t* __restrict__ ids,
                                            int4* __restrict__ to, uint64_t n_rows, uint64_t vectors) {
  uint64_t warp = (uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  uint64_t n_warps = uint64_t{gridDim.x} * blockDim.x / 32;
  for (; warp < n_rows; warp += n_warps) {
    const int4* source = from + static_cast<uint64_t>(ids[warp]) * vectors;
    int4* target = to + warp * vectors;
    for (uint64_t i = lane; i < vectors; i += 32) target[i] = source[i];
  }
}

// A thread writes 64 bytes, as one command is, to a ring in pinned memory.
extern "C" __global__ void bam_write_entries(int4* ring, uint64_t n_entries, uint64_t n_slots) {
  uint64_t n_threads = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t entry = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; entry < n_entries; entry += n_threads) {
    int4* slot = ring + entry % n_slots * 4;
    int4 value = make_int4(static_cast<int>(entry), 1, 2, 3);
    for (int i = 0; i < 4; i++) slot[i] = value;
  }
}
