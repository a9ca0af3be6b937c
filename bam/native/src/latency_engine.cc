// Wrapper that answers as late as a model of an SSD says. Python face: bam/storage/latency.py.
//
// The device serves reads in the order they are submitted, on all channels together. A read takes max(1 / iops,
// bytes / bandwidth) of the device's time, which limits the rate, and is done its latency (drawn from a table of
// quantiles by a hash of its number) after its turn came. With a queue depth limit it also waits for a place.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <queue>
#include <thread>

#include "bam/policy.h"
#include "guard.h"
#include "wrapper.h"

namespace bam {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kPsPerNs = 1000;
constexpr uint64_t kPsPerUs = 1'000'000;
// Sleeping wakes up late by about this much, so the last stretch of a wait yields instead.
constexpr uint64_t kSleepMarginPs = 80 * kPsPerUs;

// As the C ABI takes it.
struct LatencySettings {
  double read_ps;            // device time of a read, whatever its size: 1e12 / iops
  double byte_ps;            // device time of a byte: 1e12 / (bytes per second)
  uint32_t queue_depth;      // 0: no limit
  uint32_t manual_clock;     // 1: time passes only in waits: from one completion to the next
  uint64_t seed;
};

template <class T>
using EarliestFirst = std::priority_queue<T, std::vector<T>, std::greater<T>>;

class DeviceModel {
 public:
  DeviceModel(const LatencySettings& settings, const uint64_t* quantiles_ns, uint32_t count)
      : settings_(settings), quantiles_ns_(quantiles_ns, quantiles_ns + count) {}

  bool manual() const { return settings_.manual_clock != 0; }
  uint64_t now_ps() const {
    if (manual()) return manual_ps_.load(std::memory_order_relaxed);
    auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
    return static_cast<uint64_t>(passed) * kPsPerNs;
  }
  // Manual clock: moves on to `until_ps` if it is not there yet.
  void pass_until(uint64_t until_ps) {
    uint64_t now = manual_ps_.load(std::memory_order_relaxed);
    while (now < until_ps && !manual_ps_.compare_exchange_weak(now, until_ps, std::memory_order_relaxed)) {
    }
  }
  // When each of the reads, submitted together now, is done.
  void schedule(const ReadRequest* requests, uint32_t count, uint64_t* due_ps) {
    uint64_t now = now_ps();
    std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < count; i++) due_ps[i] = schedule_one(now, requests[i].length);
  }

 private:
  uint64_t schedule_one(uint64_t now, uint32_t bytes) {
    bool full = settings_.queue_depth > 0 && places_.size() >= settings_.queue_depth;
    uint64_t start = std::max({now, next_free_ps_, full ? places_.top() : 0});
    next_free_ps_ = start + static_cast<uint64_t>(std::max(settings_.read_ps, bytes * settings_.byte_ps));
    uint64_t hash = mix64(mix64(settings_.seed + 0x9e3779b97f4a7c15ull) ^ number_++);
    uint64_t due = start + quantiles_ns_[hash % quantiles_ns_.size()] * kPsPerNs;
    if (full) places_.pop();
    if (settings_.queue_depth > 0) places_.push(due);
    return due;
  }

  const LatencySettings settings_;
  const std::vector<uint64_t> quantiles_ns_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> manual_ps_{0};
  std::mutex mutex_;  // taken once per batch; guards all below
  uint64_t next_free_ps_ = 0;
  uint64_t number_ = 0;
  EarliestFirst<uint64_t> places_;  // when the places of the device's queue are free again
};

class LatencyEngine final : public WrapperEngine {
 public:
  LatencyEngine(std::shared_ptr<Engine> inner, const LatencySettings& settings, const uint64_t* quantiles_ns,
                uint32_t count)
      : WrapperEngine(std::move(inner)), model_(settings, quantiles_ns, count) {}
  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  std::string describe() const override {
    return described("latency", JsonObject().flag("manual_clock", model_.manual()).str());
  }
  DeviceModel& model() { return model_; }

 private:
  DeviceModel model_;
};

class LatencyChannel final : public Channel {
 public:
  LatencyChannel(std::shared_ptr<LatencyEngine> engine, std::unique_ptr<Channel> inner)
      : engine_(std::move(engine)), model_(engine_->model()), reads_(inner->depth()), due_ps_(inner->depth()),
        harvested_(inner->depth()), inner_(std::move(inner)) {}

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return reads_.size(); }
  uint32_t in_flight() const override { return reads_.in_use(); }
  bool register_buffer(void* base, size_t bytes) override { return inner_.channel().register_buffer(base, bytes); }

 private:
  struct Timed {
    uint64_t tag;
    int64_t result;
    bool read;  // the inner engine is done
    bool due;   // so is the model
  };
  struct Due {
    uint64_t at_ps;
    uint32_t slot;
    bool operator>(const Due& other) const { return at_ps > other.at_ps; }
  };
  void harvest(uint32_t wait_us);
  void collect_due(uint64_t now_ps);
  void wait_until(uint64_t deadline_ps);

  std::shared_ptr<LatencyEngine> engine_;
  DeviceModel& model_;
  SlotPool<Timed> reads_;
  std::vector<uint64_t> due_ps_;
  std::vector<ReadCompletion> harvested_;
  EarliestFirst<Due> waiting_;
  std::vector<uint32_t> ready_;
  InnerQueue inner_;
};

uint32_t LatencyChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t taken = std::min(count, reads_.room());
  if (taken == 0) return 0;
  model_.schedule(requests, taken, due_ps_.data());
  for (uint32_t i = 0; i < taken; i++) {
    uint32_t slot = reads_.take();
    reads_[slot] = {requests[i].tag, 0, false, false};
    waiting_.push({due_ps_[i], slot});
    ReadRequest passed = requests[i];
    passed.tag = slot;
    inner_.push(passed);
  }
  inner_.flush();
  return taken;
}

void LatencyChannel::harvest(uint32_t wait_us) {
  if (inner_.idle()) return;
  uint32_t got = inner_.poll(harvested_.data(), static_cast<uint32_t>(harvested_.size()), wait_us);
  for (uint32_t i = 0; i < got; i++) {
    uint32_t slot = static_cast<uint32_t>(harvested_[i].tag);
    Timed& read = reads_[slot];
    read.result = harvested_[i].result;
    read.read = true;
    if (read.due) ready_.push_back(slot);
  }
}

void LatencyChannel::collect_due(uint64_t now_ps) {
  while (!waiting_.empty() && waiting_.top().at_ps <= now_ps) {
    uint32_t slot = waiting_.top().slot;
    waiting_.pop();
    reads_[slot].due = true;
    if (reads_[slot].read) ready_.push_back(slot);
  }
}

// Lets time pass until something may be due, at most until `deadline_ps`.
void LatencyChannel::wait_until(uint64_t deadline_ps) {
  if (waiting_.empty()) {  // only the inner engine is awaited
    uint64_t now = model_.now_ps();
    uint64_t left_us = deadline_ps > now ? (deadline_ps - now) / kPsPerUs + 1 : 0;
    harvest(static_cast<uint32_t>(std::min<uint64_t>(left_us, 100'000)));
    if (model_.manual() && ready_.empty()) model_.pass_until(deadline_ps);
    return;
  }
  uint64_t until = std::min(deadline_ps, waiting_.top().at_ps);
  if (model_.manual()) return model_.pass_until(until);
  uint64_t now = model_.now_ps();
  if (until > now + kSleepMarginPs)
    std::this_thread::sleep_for(std::chrono::nanoseconds((until - now - kSleepMarginPs) / kPsPerNs));
  else
    std::this_thread::yield();
}

uint32_t LatencyChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  uint64_t now = model_.now_ps();
  uint64_t deadline = now + wait_us * kPsPerUs;
  harvest(0);
  collect_due(now);
  while (ready_.empty() && now < deadline && in_flight() > 0) {
    wait_until(deadline);
    harvest(0);
    collect_due(now = model_.now_ps());
  }
  uint32_t given = 0;
  for (; given < capacity && !ready_.empty(); given++) {
    uint32_t slot = ready_.back();
    ready_.pop_back();
    completions[given] = {reads_[slot].tag, reads_[slot].result};
    reads_.give_back(slot);
  }
  return given;
}

std::unique_ptr<Channel> LatencyEngine::open_channel(uint32_t depth, std::string* error) {
  auto channel = inner_->open_channel(depth, error);
  if (channel == nullptr) return nullptr;
  auto self = std::static_pointer_cast<LatencyEngine>(shared_from_this());
  return std::make_unique<LatencyChannel>(std::move(self), std::move(channel));
}

}  // namespace
}  // namespace bam

extern "C" {

// `quantiles_ns`: latencies of equal probability.
void* bam_latency_engine_create(const void* inner, const bam::LatencySettings* settings, const uint64_t* quantiles_ns,
                                uint32_t count, char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::shared_ptr<bam::Engine> below = bam::find_engine(inner);
    bam::Failure failure = bam::inner_closed();
    std::shared_ptr<bam::Engine> engine;
    if (count == 0) failure = bam::Failure::setting("quantiles", "0", "at least one latency");
    else if (below != nullptr) engine = std::make_shared<bam::LatencyEngine>(below, *settings, quantiles_ns, count);
    return bam::handle_or_failure(std::move(engine), failure, error, capacity);
  });
}

// The model's clock in nanoseconds, or -EBADF.
int64_t bam_latency_engine_now_ns(const void* handle) {
  auto engine = std::dynamic_pointer_cast<bam::LatencyEngine>(bam::find_engine(handle));
  return engine == nullptr ? -EBADF : static_cast<int64_t>(engine->model().now_ps() / bam::kPsPerNs);
}

}  // extern "C"
