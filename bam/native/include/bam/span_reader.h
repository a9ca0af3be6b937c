// Reads logical ranges through a channel: one aligned read per run of file bytes, retries, and clear failures.
//
// Used by one thread at a time. start() queues a range; advance() keeps the channel full and reports ranges that
// are done, in any order, each exactly once. Bytes arrive in a staging slot owned by the reader and are valid only
// during the callback, which may start() other ranges but not advance(); or in memory of the caller's (start_into()).
//
// Each run of a range is one read of the aligned span around it. What comes back short is asked for again from where
// it stopped; EINTR, EAGAIN and reads without progress at most kMaxStalls times in a row. Bytes are handed out only
// after a look at their file, made after they arrived, shows that it was not rewritten (Engine::look).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "bam/engine.h"
#include "bam/extent.h"
#include "bam/read_buffers.h"

namespace bam {

constexpr uint32_t kMaxStalls = 64;
constexpr uint32_t kCloseWaitMs = 10'000;

struct RangeResult {
  uint64_t tag;
  const uint8_t* bytes;  // `length` bytes; null when `error` is set
  uint32_t length;
  int error;             // 0 or an errno. ENODATA: the file ends before the range does; ESTALE: it was rewritten;
                         // EIO also: it keeps coming back short; EINVAL: no such range; ECHILD: forked since
  uint32_t file;         // where it failed
  uint64_t file_offset;  // first byte needed that is not there
};

// Counters of one reader; plain numbers, written by its thread.
struct ReaderCounters {
  uint64_t reads = 0;         // requests completed by the engine, retries included
  uint64_t bytes_read = 0;
  uint64_t retries = 0;       // after a short read, EINTR or EAGAIN
  uint64_t failures = 0;
};

class SpanReader {
 public:
  // start() takes ranges up to `limits.max_range_bytes`. The layout's extents stay the caller's and must outlive the
  // reader; the engine is kept alive. Null and a reason in `error` when it cannot be made.
  static std::unique_ptr<SpanReader> create(Engine& engine, const Layout& layout, const ReadLimits& limits,
                                            std::string* error);
  // The same with all buffers for the longest range.
  static std::unique_ptr<SpanReader> create(Engine& engine, const Layout& layout, uint32_t depth,
                                            uint32_t max_range_bytes, std::string* error) {
    return create(engine, layout, {depth, max_range_bytes, 0, ~uint64_t{0}}, error);
  }
  // As close(kCloseWaitMs).
  virtual ~SpanReader() = default;
  // Waits at most `wait_ms` for the reads in flight and drops what they bring. Reads that have not ended by then are
  // left behind (leftovers.h) with the memory they go to. Returns how many. Afterwards nothing but the destructor.
  virtual uint32_t close(uint32_t wait_ms) = 0;

  virtual bool can_start(uint32_t length) const = 0;  // a staging slot for such a range is free
  virtual void start(uint64_t logical_offset, uint32_t length, uint64_t tag) = 0;
  // The same, but the bytes go straight to `destination`, of which `capacity` bytes may be written, where the range is
  // one run that starts and fits as its file wants. RangeResult::bytes says whether they did. It must stay valid until
  // the range is reported.
  virtual void start_into(uint64_t logical_offset, uint32_t length, uint64_t tag, uint8_t* destination,
                          uint32_t capacity) = 0;
  // Destinations in this memory may then be read into faster; see Channel::register_buffer().
  virtual void register_destinations(void* base, size_t bytes) = 0;
  // Submits, harvests and calls on_done(context, result) for every range that finished. Waits up to `wait_us` for
  // one to finish. Returns how many did.
  using OnDone = void (*)(void* context, const RangeResult& result);
  virtual uint32_t advance(uint32_t wait_us, OnDone on_done, void* context) = 0;
  virtual uint32_t in_flight() const = 0;  // ranges started and not yet reported
  virtual const ReaderCounters& counters() const = 0;
};

}  // namespace bam
