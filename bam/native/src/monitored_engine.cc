// Wrapper that counts reads, bytes and errors, and measures depth and latency. Python face: bam/storage/monitored.py.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "guard.h"
#include "wrapper.h"

namespace bam {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kLatencyBuckets = 976;  // 16 a power of two of nanoseconds: 6 % wide
constexpr uint32_t kDepthBuckets = 33;     // depth 0, then one a power of two

// As the C ABI gives it. Times are of the engine's life up to the snapshot.
struct MonitorCounters {
  uint64_t elapsed_ns;
  uint64_t reads;            // completed
  uint64_t bytes;
  uint64_t errors;           // completed with an errno
  uint64_t in_flight;        // now
  uint64_t max_in_flight;
  uint64_t in_flight_ns;     // sum over time of the reads in flight; divided by elapsed_ns: their mean
  uint64_t latency_sum_ns;
  uint64_t max_latency_ns;
  uint64_t depth_ns[kDepthBuckets];          // time spent with 0, 1, 2-3, 4-7, ... reads in flight
  uint64_t latency_reads[kLatencyBuckets];   // reads by latency
};

uint32_t log2_floor(uint64_t value) { return 63 - static_cast<uint32_t>(__builtin_clzll(value)); }

uint32_t latency_bucket(uint64_t ns) {
  if (ns < 16) return static_cast<uint32_t>(ns);
  uint32_t power = log2_floor(ns);
  return (power - 3) * 16 + static_cast<uint32_t>((ns >> (power - 4)) & 15);
}

uint32_t depth_bucket(uint64_t depth) { return depth == 0 ? 0 : 1 + std::min(log2_floor(depth), kDepthBuckets - 2); }

class Monitor {
 public:
  uint64_t now_ns() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count());
  }
  void submitted(uint64_t at_ns, uint32_t reads) {
    std::lock_guard lock(mutex_);
    pass_time(at_ns);
    counters_.in_flight += reads;
    counters_.max_in_flight = std::max(counters_.max_in_flight, counters_.in_flight);
  }
  // Latencies and results of reads that completed together.
  void completed(uint64_t at_ns, const uint64_t* latencies_ns, const ReadCompletion* reads, uint32_t count) {
    std::lock_guard lock(mutex_);
    pass_time(at_ns);
    counters_.in_flight -= count;
    counters_.reads += count;
    for (uint32_t i = 0; i < count; i++) {
      if (reads[i].result < 0) counters_.errors++;
      else counters_.bytes += static_cast<uint64_t>(reads[i].result);
      counters_.latency_sum_ns += latencies_ns[i];
      counters_.max_latency_ns = std::max(counters_.max_latency_ns, latencies_ns[i]);
      counters_.latency_reads[latency_bucket(latencies_ns[i])]++;
    }
  }
  MonitorCounters snapshot() {
    std::lock_guard lock(mutex_);
    pass_time(now_ns());
    return counters_;
  }

 private:
  // Clocks read before the lock was taken may be a little older than the last event.
  void pass_time(uint64_t at_ns) {
    uint64_t passed = at_ns > counters_.elapsed_ns ? at_ns - counters_.elapsed_ns : 0;
    counters_.elapsed_ns += passed;
    counters_.in_flight_ns += passed * counters_.in_flight;
    counters_.depth_ns[depth_bucket(counters_.in_flight)] += passed;
  }

  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;  // taken once per batch of reads
  MonitorCounters counters_{};
};

class MonitoredEngine final : public WrapperEngine {
 public:
  using WrapperEngine::WrapperEngine;
  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  std::string describe() const override { return described("monitored", "{}"); }
  Monitor& monitor() { return monitor_; }

 private:
  Monitor monitor_;
};

class MonitoredChannel final : public Channel {
 public:
  MonitoredChannel(std::shared_ptr<MonitoredEngine> engine, std::unique_ptr<Channel> inner)
      : engine_(std::move(engine)), reads_(inner->depth()), requests_(inner->depth()),
        latencies_(inner->depth()), inner_(std::move(inner)) {}

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return reads_.size(); }
  uint32_t in_flight() const override { return inner_->in_flight(); }
  bool register_buffer(void* base, size_t bytes) override { return inner_->register_buffer(base, bytes); }

 private:
  struct Timed {
    uint64_t tag;
    uint64_t start_ns;
  };
  std::shared_ptr<MonitoredEngine> engine_;
  SlotPool<Timed> reads_;
  std::vector<ReadRequest> requests_;
  std::vector<uint64_t> latencies_;
  std::unique_ptr<Channel> inner_;
};

uint32_t MonitoredChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t offered = std::min(count, reads_.room());
  if (offered == 0) return 0;
  uint64_t now = engine_->monitor().now_ns();
  for (uint32_t i = 0; i < offered; i++) {
    uint32_t slot = reads_.take();
    reads_[slot] = {requests[i].tag, now};
    requests_[i] = requests[i];
    requests_[i].tag = slot;
  }
  uint32_t taken = inner_->submit(requests_.data(), offered);
  for (uint32_t i = offered; i-- > taken;) reads_.give_back(static_cast<uint32_t>(requests_[i].tag));
  if (taken > 0) engine_->monitor().submitted(now, taken);
  return taken;
}

uint32_t MonitoredChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  uint32_t got = inner_->poll(completions, std::min(capacity, reads_.size()), wait_us);
  if (got == 0) return 0;
  uint64_t now = engine_->monitor().now_ns();
  for (uint32_t i = 0; i < got; i++) {
    uint32_t slot = static_cast<uint32_t>(completions[i].tag);
    latencies_[i] = now - reads_[slot].start_ns;
    completions[i].tag = reads_[slot].tag;
    reads_.give_back(slot);
  }
  engine_->monitor().completed(now, latencies_.data(), completions, got);
  return got;
}

std::unique_ptr<Channel> MonitoredEngine::open_channel(uint32_t depth, std::string* error) {
  auto channel = inner_->open_channel(depth, error);
  if (channel == nullptr) return nullptr;
  auto self = std::static_pointer_cast<MonitoredEngine>(shared_from_this());
  return std::make_unique<MonitoredChannel>(std::move(self), std::move(channel));
}

}  // namespace
}  // namespace bam

extern "C" {

void* bam_monitored_engine_create(const void* inner, char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::shared_ptr<bam::Engine> below = bam::find_engine(inner);
    std::shared_ptr<bam::Engine> engine;
    if (below != nullptr) engine = std::make_shared<bam::MonitoredEngine>(below);
    return bam::handle_or_failure(std::move(engine), bam::inner_closed(), error, capacity);
  });
}

// 0, or EBADF when the handle is not an open monitored engine.
int32_t bam_monitored_engine_snapshot(const void* handle, bam::MonitorCounters* counters) {
  auto engine = std::dynamic_pointer_cast<bam::MonitoredEngine>(bam::find_engine(handle));
  if (engine == nullptr) return EBADF;
  *counters = engine->monitor().snapshot();
  return 0;
}

}  // extern "C"
