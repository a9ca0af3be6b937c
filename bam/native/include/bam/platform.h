// The atomic word the shared headers are written against.
//
// Every header that holds lock-free logic is a template over a Platform:
//   HostPlatform       std::atomic_ref            (this file)
//   DevicePlatform     cuda::atomic_ref           (the CUDA build)
//   a scheduled word                              (the interleaving explorer)
// so one copy of the logic runs on the host, on the GPU and under every schedule.
//
// A Platform provides
//   template <class T> using Atomic   reference to a T in plain memory, interface of std::atomic_ref
//   template <class T> using System   the same, visible to every agent of the system (GPU, host, SSD)
//   relaxed, acquire, release, acq_rel   the memory orders those references take
//   kWritesAreCheap                   whether to write a word that may hold the value already, rather than look first
//   static void pause()               one turn of a bounded spin loop; the value awaited is re-read after it
#pragma once

#if defined(__CUDACC_RTC__)
#include <cuda/std/cstdint>
using cuda::std::int32_t;
using cuda::std::int64_t;
using cuda::std::uint16_t;
using cuda::std::uint32_t;
using cuda::std::uint64_t;
using cuda::std::uint8_t;
#else
#include <cstdint>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define BAM_HD __host__ __device__
#define BAM_UNROLL _Pragma("unroll")
#define BAM_NO_UNROLL _Pragma("unroll 1")
#define BAM_RARE __noinline__  // keeps registers for what is common
#else
#define BAM_HD
#define BAM_UNROLL
#define BAM_NO_UNROLL
#define BAM_RARE
#endif

#if !defined(__CUDACC_RTC__)
#include <atomic>
#include <thread>

namespace bam {

struct HostPlatform {
  template <class T>
  using Atomic = std::atomic_ref<T>;
  template <class T>
  using System = std::atomic_ref<T>;

  // A write takes the line from other cores; a look leaves it with them all.
  static constexpr bool kWritesAreCheap = false;
  static constexpr std::memory_order relaxed = std::memory_order_relaxed;
  static constexpr std::memory_order acquire = std::memory_order_acquire;
  static constexpr std::memory_order release = std::memory_order_release;
  static constexpr std::memory_order acq_rel = std::memory_order_acq_rel;

  // Yields at once: on a machine with few cores the thread that is awaited may need this one.
  static void pause() { std::this_thread::yield(); }
};

}  // namespace bam
#endif
