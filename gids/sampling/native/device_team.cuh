// A thread block as a team.
#pragma once

#include "team.h"

namespace gids {

class BlockTeam {
 public:
  // `sums` is shared memory, one entry for each warp.
  __device__ explicit BlockTeam(int64_t* sums) : sums_(sums) {}
  __device__ int64_t rank() const { return threadIdx.x; }
  __device__ int64_t size() const { return blockDim.x; }
  __device__ void sync() const { __syncthreads(); }

  __device__ int64_t exclusive_sum(int64_t value, int64_t& total) const {
    constexpr unsigned kAllLanes = 0xFFFFFFFFu;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    int64_t inclusive = value;
    for (int step = 1; step < 32; step *= 2) {
      int64_t below = __shfl_up_sync(kAllLanes, inclusive, step);
      if (lane >= step) inclusive += below;
    }
    if (lane == 31) sums_[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
      int64_t sum = lane < warps ? sums_[lane] : 0;
      for (int step = 1; step < 32; step *= 2) {
        int64_t below = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step) sum += below;
      }
      if (lane < warps) sums_[lane] = sum;
    }
    __syncthreads();
    int64_t before = warp == 0 ? 0 : sums_[warp - 1];
    total = sums_[warps - 1];
    __syncthreads();  // all have read before the next sum writes
    return before + inclusive - value;
  }

 private:
  int64_t* sums_;
};

}  // namespace gids
