// Compiles the shared headers for the GPU: every template is instantiated with DevicePlatform.
#include "bam/device_platform.h"
#include "bam/extent.h"
#include "bam/nvme.h"
#include "bam/page_cache.h"
#include "bam/queue_pair.h"

namespace {

using P = bam::DevicePlatform;

struct KeepStatus {
  uint16_t* status_of_cid;
  __device__ void operator()(const bam::Completion& completion) const {
    status_of_cid[completion.cid] = completion.status;
  }
};

}  // namespace

extern "C" __global__ void submit(bam::QueuePairState queue, const uint64_t* pages, uint32_t count, uint64_t staging,
                                  uint16_t* status_of_cid, uint32_t* failed) {
  KeepStatus keep{status_of_cid};
  auto drain = [&] { return bam::try_drain<P>(queue, queue.depth, keep); };
  for (uint32_t next = 0; next < count;) {
    bam::TicketRun run = bam::reserve<P>(queue, count - next, 1000, drain);
    if (run.count == 0) {
      *failed = count - next;
      return;
    }
    for (uint32_t i = 0; i < run.count; i++, next++) {
      uint64_t ticket = run.first + i;
      bam::write_sqe(queue, ticket,
                     bam::read_command(bam::cid_of(queue, ticket), pages[next] * 8, 8, staging + next * 4096ull));
    }
    if (!bam::publish<P>(queue, run, 1000)) *failed = run.count;
  }
}

extern "C" __global__ void answer(bam::QueuePairState queue, bam::ControllerCursor cursor) {
  while (bam::commands_waiting<P>(queue, cursor) != 0 && bam::can_post<P>(queue, cursor)) {
    bam::Sqe sqe = bam::fetch_command(queue, cursor);
    bam::post_completion<P>(queue, cursor, {sqe.cid, bam::status_field(bam::Status::success), 0, 0});
  }
}

extern "C" __global__ void read_through_cache(bam::CacheState cache, bam::Layout layout, const uint64_t* pages,
                                              uint32_t count, bam::FileRun* runs) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  bam::Acquired got = bam::acquire<P>(cache, pages[i], bam::kNever);
  runs[i] = bam::locate(layout, pages[i] * 4096, 4096);
  if (got.outcome == bam::Outcome::bypass) return;
  if (got.outcome == bam::Outcome::claimed) bam::publish<P>(cache.lines[got.line_id]);
  while (bam::await_once<P>(cache.lines[got.line_id]) == bam::LineState::reading) P::pause();
  bam::unpin<P>(cache.lines[got.line_id]);
}
