// The Platform of platform.h for GPU code (nvcc and NVRTC; headers of libcu++), and what threads of a GPU do together.
//
// The kernels in device_*.h are templates over this, too. The tests run them on the host, over a platform whose
// threads take turns (tests/native/emulated_gpu.h).
#pragma once

#include <cuda/atomic>

#include "bam/platform.h"

namespace bam {

struct DevicePlatform {
  // Among the threads of one GPU.
  template <class T>
  using Atomic = cuda::atomic_ref<T, cuda::thread_scope_device>;
  // Shared with the host and with other devices.
  template <class T>
  using System = cuda::atomic_ref<T, cuda::thread_scope_system>;

  // A warp waits for what it looks at, and not for what it writes.
  static constexpr bool kWritesAreCheap = true;
  static constexpr cuda::memory_order relaxed = cuda::memory_order_relaxed;
  static constexpr cuda::memory_order acquire = cuda::memory_order_acquire;
  static constexpr cuda::memory_order release = cuda::memory_order_release;
  static constexpr cuda::memory_order acq_rel = cuda::memory_order_acq_rel;

  // Long enough to leave the memory system to others, short beside a read from an SSD (about 80 us).
  static __device__ void pause() { __nanosleep(100); }
  static __device__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }

  // Where a thread is. Blocks and grids here have one dimension.
  static __device__ uint32_t lane() { return threadIdx.x & 31u; }
  static __device__ uint32_t thread() { return threadIdx.x; }
  static __device__ uint32_t threads() { return blockDim.x; }
  static __device__ uint32_t block() { return blockIdx.x; }
  static __device__ uint32_t blocks() { return gridDim.x; }

  // Of all 32 lanes of a warp together.
  static __device__ uint32_t ballot(bool vote) { return __ballot_sync(~0u, vote); }
  template <class T>
  static __device__ T shuffle(T value, uint32_t from) {
    return __shfl_sync(~0u, value, static_cast<int>(from));
  }
  template <class T>
  static __device__ T shuffle_among(uint32_t mask, T value, uint32_t from) {
    return __shfl_sync(mask, value, static_cast<int>(from));
  }
  // Of the lanes in `mask`: those that have the same value.
  static __device__ uint32_t match(uint32_t mask, uint64_t value) { return __match_any_sync(mask, value); }
  static __device__ void sync_warp(uint32_t mask = ~0u) { __syncwarp(mask); }
  static __device__ uint32_t converged() { return __activemask(); }
  // Of the whole block: waits for all of its threads.
  static __device__ bool any_in_block(bool vote) { return __syncthreads_or(vote) != 0; }

  // As it is in memory now, not as this processor's caches remember it: the host or another kernel wrote it.
  template <class T>
  static __device__ T load_fresh(const T* from) {
    if constexpr (sizeof(T) == 16) return as<T>(__ldcv(reinterpret_cast<const uint4*>(from)));
    else return __ldcv(from);
  }
  // What kernels of this GPU wrote before. Rows are read once and written once: they are the first to leave the caches,
  // where the state of lines and sets is wanted again.
  template <class T>
  static __device__ T load_once(const T* from) {
    if constexpr (sizeof(T) == 16) return as<T>(__ldcs(reinterpret_cast<const uint4*>(from)));
    else return __ldcs(from);
  }
  template <class T>
  static __device__ void store_once(T* to, const T& value) {
    static_assert(sizeof(T) == 16);
    uint4 bits;
    memcpy(&bits, &value, sizeof bits);
    __stcs(reinterpret_cast<uint4*>(to), bits);
  }

 private:
  template <class T>
  static __device__ T as(uint4 bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
  }
};

}  // namespace bam
