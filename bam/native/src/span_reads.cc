// C ABI: reads a list of logical ranges through a SpanReader and waits for all of them.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bam/span_reader.h"
#include "engine_registry.h"

namespace bam {
namespace {

constexpr uint32_t kWaitUs = 100'000;

struct RangeFailure {
  int32_t error;  // 0: the bytes are at their destination
  uint32_t file;
  uint64_t file_offset;
};

struct Batch {
  uint8_t* const* destinations;
  RangeFailure* failures;
};

void on_done(void* context, const RangeResult& result) {
  const Batch& batch = *static_cast<const Batch*>(context);
  batch.failures[result.tag] = {result.error, result.file, result.file_offset};
  if (result.error == 0 && result.length > 0) std::memcpy(batch.destinations[result.tag], result.bytes, result.length);
}

}  // namespace
}  // namespace bam

extern "C" {

// Reads range i (`lengths[i]` bytes at logical `offsets[i]`) to `destinations[i]`, up to `depth` at a time, and notes
// in `failures[i]` how that went. Returns 0, EBADF (handle not open) or EIO with a reason in `error`.
int32_t bam_span_reader_read(const void* handle, const bam::Layout* layout, uint32_t depth, uint64_t count,
                             const uint64_t* offsets, const uint32_t* lengths, uint8_t* const* destinations,
                             bam::RangeFailure* failures, bam::ReaderCounters* counters, char* error, size_t capacity) {
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
  for (uint64_t started = 0, done = 0; done < count;) {
    for (; started < count && reader->can_start(lengths[started]); started++)
      reader->start(offsets[started], lengths[started], started);
    done += reader->advance(bam::kWaitUs, bam::on_done, &batch);
  }
  *counters = reader->counters();
  return 0;
}

}  // extern "C"
