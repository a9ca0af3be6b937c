#include "leftovers.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>

namespace bam {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPollUs = 20'000;

struct Leftover {
  std::unique_ptr<Staging> memory;
  std::unique_ptr<Channel> channel;
  Leftover* next;
};

struct Leftovers {
  std::mutex mutex;
  Leftover* first = nullptr;
};

// Never destroyed: threads left behind may outlive static objects at exit.
Leftovers* const leftovers = new Leftovers;

}  // namespace

uint32_t await_reads(Channel& channel, uint32_t wait_ms) {
  Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
  ReadCompletion dropped[64];
  while (channel.in_flight() > 0) {
    int64_t left = std::chrono::ceil<std::chrono::microseconds>(deadline - Clock::now()).count();
    uint32_t got = channel.poll(dropped, 64, static_cast<uint32_t>(std::clamp<int64_t>(left, 0, kPollUs)));
    if (got == 0 && left <= 0) break;
  }
  return channel.in_flight();
}

void leave_behind(std::unique_ptr<Channel> channel, std::unique_ptr<Staging> memory) noexcept {
  Leftover* leftover = new (std::nothrow) Leftover{std::move(memory), std::move(channel), nullptr};
  if (leftover == nullptr) {  // out of reach, but not given up
    (void)memory.release();
    (void)channel.release();
    return;
  }
  std::lock_guard lock(leftovers->mutex);
  leftover->next = leftovers->first;
  leftovers->first = leftover;
}

uint64_t bytes_left_behind() {
  std::lock_guard lock(leftovers->mutex);
  uint64_t bytes = 0;
  for (const Leftover* at = leftovers->first; at != nullptr; at = at->next) bytes += at->memory->bytes();
  return bytes;
}

}  // namespace bam
