// Items by index through bam::array, for tests of it: every thread reads on its own.
#include "bam/array.cuh"

extern "C" __global__ void bam_read_items(const bam::ArrayView* view, const uint64_t* indices, uint64_t n,
                                          uint32_t* out) {
  bam::array<uint32_t> items(*view);
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += uint64_t{gridDim.x} * blockDim.x)
    out[i] = items[indices[i]];
}
