// The kernels of the GPU's read path; all logic is in the headers. Structures are passed by value.
#include "bam/device_platform.h"

#include "bam/device_ahead.h"
#include "bam/device_gather.h"
#include "bam/device_submit.h"

using P = bam::DevicePlatform;

extern "C" __global__ void __launch_bounds__(512, 1) bam_submit_rows(const __grid_constant__ bam::DeviceStore store,
                                                                  const __grid_constant__ bam::RowBatch batch) {
  bam::submit_rows<P>(store, batch);
}

extern "C" __global__ void __launch_bounds__(1024) bam_drain_flight(const __grid_constant__ bam::DeviceStore store,
                                                                    uint64_t flight) {
  bam::drain_flight<P>(store, static_cast<uint32_t>(flight));
}

extern "C" __global__ void __launch_bounds__(256) bam_fill_lines(const __grid_constant__ bam::DeviceStore store,
                                                                 const __grid_constant__ bam::RowBatch batch) {
  bam::fill_lines<P>(store, batch);
}

extern "C" __global__ void __launch_bounds__(256, 2) bam_gather_rows(const __grid_constant__ bam::DeviceStore store,
                                                                  const __grid_constant__ bam::RowBatch batch,
                                                                  bam::FlightReport* report) {
  bam::gather_rows<P>(store, batch, report);
}

extern "C" __global__ void __launch_bounds__(256) bam_count_rows(const __grid_constant__ bam::DeviceStore store,
                                                                 const __grid_constant__ bam::RowBatch batch,
                                                                 bam::PartCounts* counts) {
  bam::count_rows<P>(store, batch, counts);
}

extern "C" __global__ void __launch_bounds__(256) bam_note_uses(const __grid_constant__ bam::DeviceStore store,
                                                                const __grid_constant__ bam::RowBatch batch,
                                                                uint64_t next_use) {
  bam::note_uses<P>(store, batch, next_use);
}

extern "C" __global__ void __launch_bounds__(256) bam_forget_uses(const __grid_constant__ bam::DeviceStore store,
                                                                  uint64_t horizon, uint64_t instead) {
  bam::forget_all_uses<P>(store.cache, horizon, instead);
}

// Before the first use, one thread for each command id of each queue.
extern "C" __global__ void bam_init_queues(const __grid_constant__ bam::DeviceStore store) {
  for (uint32_t queue = blockIdx.x; queue < store.n_queues; queue += gridDim.x)
    for (uint32_t cid = threadIdx.x; cid < store.queues[queue].depth; cid += blockDim.x)
      store.queues[queue].free_cids[cid] = static_cast<uint16_t>(cid);
}
