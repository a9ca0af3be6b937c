// The launches of a mini-batch on a GPU. The logic is in the headers, which also compile for the host.
#include "bam/device_platform.h"
#include "device_team.cuh"
#include "pack.h"

using P = bam::DevicePlatform;

#define GIDS_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define GIDS_TEAM(team)          \
  __shared__ int64_t sums[32];   \
  gids::BlockTeam team(sums)

__device__ inline int64_t thread_number() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

GIDS_KERNEL(256) prepare(const __grid_constant__ gids::Plan plan) {
  gids::prepare(plan, thread_number(), all_threads());
}

GIDS_KERNEL(256) insert_seeds(const __grid_constant__ gids::Plan plan) {
  gids::insert_seeds<P>(plan, thread_number(), all_threads());
}

GIDS_KERNEL(1024) start(const __grid_constant__ gids::Plan plan) {
  GIDS_TEAM(team);
  gids::start<P>(plan, team);
}

GIDS_KERNEL(256) count(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::count<P>(plan, hop, team, blockIdx.x, gridDim.x);
}

GIDS_KERNEL(1024) plan_edges(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::plan_edges(plan, hop, team);
}

GIDS_KERNEL(256) place(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::place(plan, hop, team, blockIdx.x, gridDim.x);
}

GIDS_KERNEL(256) resolve(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::resolve<P>(plan, hop, team, blockIdx.x, gridDim.x);
}

GIDS_KERNEL(256) flag(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::flag(plan, hop, team, blockIdx.x, gridDim.x);
}

GIDS_KERNEL(1024) plan_nodes(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::plan_nodes(plan, hop, team);
}

GIDS_KERNEL(256) number(const __grid_constant__ gids::Plan plan, int64_t hop) {
  GIDS_TEAM(team);
  gids::number(plan, hop, team, blockIdx.x, gridDim.x);
}

GIDS_KERNEL(256) pack(const __grid_constant__ gids::Plan plan, const __grid_constant__ gids::Output output) {
  gids::pack(plan, output, thread_number(), all_threads());
}
