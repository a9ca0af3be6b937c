// C ABI: reads a list of logical ranges through a SpanReader and waits for all of them.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "bam/span_reader.h"
#include "engine_registry.h"
#include "guard.h"

namespace bam {
namespace {

constexpr uint32_t kWaitUs = 20'000;

using Clock = std::chrono::steady_clock;

struct RangeFailure {
  int32_t error;  // 0: the bytes are at their destination
  uint32_t file;
  uint64_t file_offset;
};

struct Batch {
  uint8_t* const* destinations;
  RangeFailure* failures;
};

// What stands for a range until it is done.
RangeFailure not_yet(const Layout& layout, uint64_t offset, uint32_t length) {
  if (length == 0 || offset >= layout.logical_bytes) return {ETIMEDOUT, 0, 0};
  FileRun run = locate(layout, offset, length);
  return {ETIMEDOUT, run.file, run.file_offset};
}

void on_done(void* context, const RangeResult& result) {
  const Batch& batch = *static_cast<const Batch*>(context);
  batch.failures[result.tag] = {result.error, result.file, result.file_offset};
  if (result.error == 0 && result.length > 0) std::memcpy(batch.destinations[result.tag], result.bytes, result.length);
}

}  // namespace
}  // namespace bam

extern "C" {

// Reads range i (`lengths[i]` bytes at logical `offsets[i]`) to `destinations[i]`, up to `depth` at a time, and notes
// in `failures[i]` how that went; ETIMEDOUT when no read ended for `timeout_ms`. Returns 0, EBADF (handle not open) or EIO with a reason in `error`.
int32_t bam_span_reader_read(const void* handle, const bam::Layout* layout, uint32_t depth, uint32_t timeout_ms,
                             uint64_t count, const uint64_t* offsets, const uint32_t* lengths, uint8_t* const* destinations,
                             bam::RangeFailure* failures, bam::ReaderCounters* counters, char* error, size_t capacity) {
  return bam::guarded(int32_t{ENOMEM}, [&]() -> int32_t {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    if (engine == nullptr) return EBADF;
    uint32_t longest = count == 0 ? 1 : std::max(1u, *std::max_element(lengths, lengths + count));
    std::string reason;
    auto reader = bam::SpanReader::create(*engine, *layout, depth, longest, &reason);
    if (reader == nullptr) {
      bam::copy_text(reason, error, capacity);
      return EIO;
    }
    bam::Batch batch{destinations, failures};
    for (uint64_t i = 0; i < count; i++) failures[i] = bam::not_yet(*layout, offsets[i], lengths[i]);
    auto progress = bam::Clock::now();
    for (uint64_t started = 0, done = 0; done < count;) {
      for (; started < count && reader->can_start(lengths[started]); started++)
        reader->start(offsets[started], lengths[started], started);
      uint64_t reads = reader->counters().reads;
      done += reader->advance(bam::kWaitUs, bam::on_done, &batch);
      if (reader->counters().reads != reads) progress = bam::Clock::now();
      else if (bam::Clock::now() - progress > std::chrono::milliseconds(timeout_ms)) break;
    }
    *counters = reader->counters();
    reader->close(timeout_ms);
    return 0;
  });
}

}  // extern "C"
