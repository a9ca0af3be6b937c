// Arrays that do not fit in memory, in your own CUDA kernels: a[i] from any thread, divergent ones too.
//
//   #include "bam/array.cuh"
//   extern "C" __global__ void total(const bam::ArrayView* view, double* sum) {
//     bam::array<float> a(*view);
//     double mine = 0;
//     for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.size(); i += gridDim.x * blockDim.x) mine += a[i];
//     atomicAdd(sum, mine);
//   }
//
// `view` is what bam.DeviceArray.view() has the address of. A read that misses is waited for; threads of a warp that
// want the same page at the same time share one look-up and one read. A read that fails gives T{}, and the host learns
// of it from view.check().
//
// Where rows of the array are gathered too (DeviceArray.begin), call view.before_kernel() before the launch: a page that
// a gather is reading is waited for, and the gather's kernels need room on the GPU beside yours.
#pragma once

#include "bam/device_lone.h"
#include "bam/device_platform.h"

namespace bam {

template <class T>
class array {
 public:
  static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0, "items of 1, 2, 4, 8 or 16 bytes");

  explicit __device__ array(const ArrayView& view) : view_(view) {}

  __device__ uint64_t size() const { return view_.n_items; }
  // Item i, which must be below size().
  __device__ T read(uint64_t i) const { return read_item<DevicePlatform, T>(view_, i); }
  __device__ T operator[](uint64_t i) const { return read(i); }
  // Whether any read of any thread has failed since the host last looked.
  __device__ bool failed() const {
    return DevicePlatform::Atomic<uint64_t>(view_.store.failure[0]).load(DevicePlatform::relaxed) != 0;
  }

 private:
  const ArrayView& view_;
};

}  // namespace bam
