// Random reads straight through a channel: the ceiling an array is compared with.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "bam/engine.h"
#include "bam/policy.h"
#include "engine_registry.h"
#include "guard.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Reads {
  uint64_t completed;
  uint64_t failed;  // errors and short reads
  double seconds;
};

struct Target {
  uint32_t file;
  uint32_t block_bytes;
  uint64_t n_blocks;
  uint64_t seed;
};

// Keeps `channel` full until `seconds` have passed, then waits for the rest.
Reads read_randomly(bam::Channel& channel, uint8_t* staging, const Target& target, double seconds) {
  uint32_t depth = channel.depth();
  std::vector<uint32_t> free_slots(depth);
  for (uint32_t i = 0; i < depth; i++) free_slots[i] = i;
  std::vector<bam::ReadRequest> requests(depth);
  std::vector<bam::ReadCompletion> completions(depth);
  Reads reads = {0, 0, 0};
  uint64_t drawn = 0;
  auto begin = Clock::now(), end = begin + std::chrono::duration_cast<Clock::duration>(
                                               std::chrono::duration<double>(seconds));
  for (;;) {
    bool open = Clock::now() < end;
    uint32_t count = 0;
    for (; open && count < free_slots.size(); count++) {
      uint32_t slot = free_slots[free_slots.size() - 1 - count];
      uint64_t block = bam::mix64(target.seed + ++drawn * 0x9e3779b97f4a7c15ull) % target.n_blocks;
      requests[count] = {staging + uint64_t{slot} * target.block_bytes, block * target.block_bytes,
                         target.block_bytes, target.file, slot};
    }
    uint32_t taken = channel.submit(requests.data(), count);
    free_slots.resize(free_slots.size() - taken);
    if (!open && channel.in_flight() == 0) break;
    uint32_t done = channel.poll(completions.data(), depth, 1000);
    for (uint32_t i = 0; i < done; i++) {
      free_slots.push_back(static_cast<uint32_t>(completions[i].tag));
      if (completions[i].result == target.block_bytes) reads.completed++;
      else reads.failed++;
    }
  }
  reads.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return reads;
}

}  // namespace

extern "C" {

// Reads random blocks of the engine's file 0 for `seconds`. Returns 0, or -1 when the channel cannot be made.
int bam_bench_random_reads(void* engine, uint32_t depth, uint32_t block_bytes, uint64_t seed, double seconds,
                           uint64_t* completed, uint64_t* failed, double* elapsed) {
  return bam::guarded(-1, [&]() -> int {
    std::shared_ptr<bam::Engine> shared = bam::find_engine(engine);
    std::string error;
    if (!shared) return -1;
    std::unique_ptr<bam::Channel> channel = shared->open_channel(depth, &error);
    if (!channel) return -1;
    uint64_t bytes = uint64_t{channel->depth()} * block_bytes;
    std::unique_ptr<uint8_t, decltype(&std::free)> staging(
        static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)), &std::free);
    if (staging == nullptr) throw std::bad_alloc();
    std::memset(staging.get(), 0, bytes);
    channel->register_buffer(staging.get(), bytes);
    Target target = {0, block_bytes, shared->files()[0].bytes / block_bytes, seed};
    Reads reads = read_randomly(*channel, staging.get(), target, seconds);
    channel.reset();  // before its buffer goes
    *completed = reads.completed;
    *failed = reads.failed;
    *elapsed = reads.seconds;
    return 0;
  });
}

// Fills `words` 8-byte words with their own number, hashed: the content of benchmark files.
void bam_bench_fill(uint64_t* out, uint64_t first_word, uint64_t words) {
  for (uint64_t i = 0; i < words; i++) out[i] = bam::mix64(first_word + i);
}

}  // extern "C"
