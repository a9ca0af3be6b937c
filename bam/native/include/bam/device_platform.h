// The Platform of platform.h for GPU code (nvcc and NVRTC; headers of libcu++).
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

  static constexpr cuda::memory_order relaxed = cuda::memory_order_relaxed;
  static constexpr cuda::memory_order acquire = cuda::memory_order_acquire;
  static constexpr cuda::memory_order release = cuda::memory_order_release;
  static constexpr cuda::memory_order acq_rel = cuda::memory_order_acq_rel;

  // Long enough to leave the memory system to others, short beside a read from an SSD (about 80 us).
  static __device__ void pause() { __nanosleep(100); }
};

}  // namespace bam
