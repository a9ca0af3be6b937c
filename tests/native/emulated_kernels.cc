// The kernels of bam/native/cuda on the host, behind a C ABI: the tests' stand-in for a GPU (emulated_gpu.py).
#include "emulated_gpu.h"

#include "bam/device_ahead.h"
#include "bam/device_cache.h"
#include "bam/device_gather.h"
#include "bam/device_lone.h"
#include "bam/device_submit.h"

namespace {

using P = emulated::EmulatedGpu;

template <class Kernel>
void run(uint64_t blocks, uint64_t threads, const Kernel& kernel) {
  emulated::run_grid(static_cast<uint32_t>(blocks), static_cast<uint32_t>(threads),
                     [](const void* call) { (*static_cast<const Kernel*>(call))(); }, &kernel);
}

}  // namespace

extern "C" {

void bam_draw_turns(uint64_t seed) { emulated::turn_seed() = seed; }
void bam_submit_rows(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const bam::RowBatch* batch) {
  run(blocks, threads, [&] { bam::submit_rows<P>(*store, *batch); });
}
void bam_drain_flight(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const uint64_t* flight) {
  run(blocks, threads, [&] { bam::drain_flight<P>(*store, static_cast<uint32_t>(*flight)); });
}
void bam_fill_lines(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const bam::RowBatch* batch) {
  run(blocks, threads, [&] { bam::fill_lines<P>(*store, *batch); });
}
void bam_gather_rows(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const bam::RowBatch* batch,
                     bam::FlightReport* const* report) {
  run(blocks, threads, [&] { bam::gather_rows<P>(*store, *batch, *report); });
}
void bam_count_rows(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const bam::RowBatch* batch,
                    bam::PartCounts* const* counts) {
  run(blocks, threads, [&] { bam::count_rows<P>(*store, *batch, *counts); });
}
void bam_note_uses(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const bam::RowBatch* batch,
                   const uint64_t* next_use) {
  run(blocks, threads, [&] { bam::note_uses<P>(*store, *batch, *next_use); });
}
void bam_forget_uses(uint64_t blocks, uint64_t threads, const bam::DeviceStore* store, const uint64_t* horizon,
                     const uint64_t* instead) {
  run(blocks, threads, [&] { bam::forget_all_uses<P>(store->cache, *horizon, *instead); });
}
void bam_read_items(uint64_t blocks, uint64_t threads, const bam::ArrayView* const* view,
                    const uint64_t* const* indices, const uint64_t* n, uint32_t* const* out) {
  run(blocks, threads, [&] {
    uint64_t step = uint64_t{P::blocks()} * P::threads();
    for (uint64_t i = uint64_t{P::block()} * P::threads() + P::thread(); i < *n; i += step)
      (*out)[i] = bam::read_item<P, uint32_t>(**view, (*indices)[i]);
  });
}
void bam_cache_step(uint64_t blocks, uint64_t threads, const bam::CacheState* cache, const bam::CacheStep* step,
                    bam::Acquired* const* got) {
  run(blocks, threads, [&] { bam::run_cache_step<P>(*cache, *step, *got); });
}
void bam_init_queues(uint64_t, uint64_t, const bam::DeviceStore* store) {
  for (uint32_t queue = 0; queue < store->n_queues; queue++) bam::init_queue_pair(store->queues[queue]);
}
}
