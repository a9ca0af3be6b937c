// Kernels for tests: items by index through bam::array, and single steps of the page cache.
#include "bam/array.cuh"
#include "bam/device_cache.h"

extern "C" __global__ void bam_read_items(const bam::ArrayView* view, const uint64_t* indices, uint64_t n,
                                          uint32_t* out) {
  bam::array<uint32_t> items(*view);
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x)
    out[i] = items[indices[i]];
}

extern "C" __global__ void bam_cache_step(const __grid_constant__ bam::CacheState cache,
                                          const __grid_constant__ bam::CacheStep step, bam::Acquired* got) {
  bam::run_cache_step<bam::DevicePlatform>(cache, step, got);
}
