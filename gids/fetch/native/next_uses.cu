// Kernels of the look-ahead on a GPU; a thread takes a row at a time.
#include "bam/device_platform.h"

#include "next_uses.h"

extern "C" __global__ void __launch_bounds__(256) gids_next_uses(const __grid_constant__ gids::UseRequest request) {
  uint64_t step = uint64_t{gridDim.x} * blockDim.x, n = request.firsts[request.n_tables];
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) gids::find_next_use(request, i);
}

extern "C" __global__ void __launch_bounds__(256) gids_count_requests(const __grid_constant__ gids::UseRequest request) {
  uint64_t step = uint64_t{gridDim.x} * blockDim.x, n = request.firsts[request.n_tables];
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) gids::count_request(request, i);
}
