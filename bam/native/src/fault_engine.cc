// Wrapper that shows the faults a file system can show, when its rules say so. Python twin: bam/storage/fault.py.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "bam/policy.h"
#include "guard.h"
#include "wrapper.h"

namespace bam {
namespace {

using Clock = std::chrono::steady_clock;

enum class FaultKind : uint32_t { error = 0, short_read = 1, delay = 2, corrupt = 3, silence = 4 };
enum class FaultWhen : uint32_t { nth = 0, every = 1, probability = 2 };

// One rule as the C ABI takes it. Each rule counts the reads of its file, from 1, in the order of submission.
struct FaultRule {
  FaultKind kind;
  FaultWhen when;
  uint64_t period;          // n of `nth`, k of `every`
  double probability;
  uint64_t seed;            // of `probability`, and of the bytes to corrupt
  uint64_t value;           // errno | bytes left of the read | delay in us | bytes to corrupt
  uint64_t max_injections;
  int32_t file;             // -1: every file
  uint32_t reserved;
};
static_assert(sizeof(FaultRule) == 56, "ABI");

struct FaultCount {
  uint64_t seen;
  uint64_t injected;
};

// A draw that depends on seed and number alone, so a test that failed can be run again.
uint64_t draw(uint64_t seed, uint64_t number) { return mix64(mix64(seed + 0x9e3779b97f4a7c15ull) ^ number); }

// A rule and what became of it; shared by all channels.
class RuleState {
 public:
  explicit RuleState(const FaultRule& rule) : rule(rule) {}

  // Counts a read of `file`; the number of the injection if there is one, else 0.
  uint64_t fires(uint32_t file) {
    if (rule.file >= 0 && static_cast<uint32_t>(rule.file) != file) return 0;
    uint64_t number = seen_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!chosen(number)) return 0;
    uint64_t before = injected_.load(std::memory_order_relaxed);
    do {
      if (before >= rule.max_injections) return 0;
    } while (!injected_.compare_exchange_weak(before, before + 1, std::memory_order_relaxed));
    return before + 1;
  }
  FaultCount count() const {
    return {seen_.load(std::memory_order_relaxed), injected_.load(std::memory_order_relaxed)};
  }

  const FaultRule rule;

 private:
  bool chosen(uint64_t number) const {
    switch (rule.when) {
      case FaultWhen::nth: return number == rule.period;
      case FaultWhen::every: return number % rule.period == 0;
      case FaultWhen::probability:
        return static_cast<double>(draw(rule.seed, number) >> 11) * 0x1p-53 < rule.probability;
    }
    return false;
  }
  std::atomic<uint64_t> seen_{0}, injected_{0};
};

// Releases completions in another order: `window` are held back, one of them is drawn.
struct Reorder {
  uint32_t window;  // 0 or 1: off
  uint64_t seed;
};

class FaultEngine final : public WrapperEngine {
 public:
  FaultEngine(std::shared_ptr<Engine> inner, const FaultRule* rules, uint32_t count, Reorder reorder)
      : WrapperEngine(std::move(inner)), reorder_(reorder) {
    for (uint32_t i = 0; i < count; i++) rules_.push_back(std::make_unique<RuleState>(rules[i]));
  }
  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  std::string describe() const override {
    return described("fault", JsonObject()
                                  .number("rules", static_cast<int64_t>(rules_.size()))
                                  .number("reorder_window", reorder_.window)
                                  .str());
  }
  const std::vector<std::unique_ptr<RuleState>>& rules() const { return rules_; }
  Reorder reorder() const { return reorder_; }

 private:
  std::vector<std::unique_ptr<RuleState>> rules_;
  Reorder reorder_;
};

// A read and what is to be done to it.
struct FaultyRead {
  uint64_t tag;
  uint8_t* destination;
  uint32_t length;
  int64_t error;          // 0 or an errno
  uint64_t longest;       // bytes to report at most
  uint64_t corrupt_bytes;
  uint64_t corrupt_seed;
  uint64_t delay_us;
  bool silent;            // is never reported
  int64_t result;
  Clock::time_point due;
};

class FaultChannel final : public Channel {
 public:
  FaultChannel(std::shared_ptr<FaultEngine> engine, std::unique_ptr<Channel> inner)
      : engine_(std::move(engine)), reads_(inner->depth()), inner_(std::move(inner)) {}

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return reads_.size(); }
  uint32_t in_flight() const override { return reads_.in_use(); }
  bool register_buffer(void* base, size_t bytes) override { return inner_.channel().register_buffer(base, bytes); }

 private:
  void decide(const ReadRequest& request, FaultyRead* read);
  void spoil(FaultyRead* read, int64_t result);
  void harvest(uint32_t wait_us);
  uint32_t release(ReadCompletion* completions, uint32_t capacity);
  size_t next_to_release();

  std::shared_ptr<FaultEngine> engine_;
  SlotPool<FaultyRead> reads_;
  InnerQueue inner_;
  std::vector<uint32_t> held_;  // slots of reads that are done and not yet reported
  uint64_t released_ = 0;
};

void FaultChannel::decide(const ReadRequest& request, FaultyRead* read) {
  *read = {request.tag, static_cast<uint8_t*>(request.destination), request.length, 0, UINT64_MAX, 0, 0, 0, false, 0, {}};
  for (const auto& state : engine_->rules()) {
    uint64_t injection = state->fires(request.file);
    if (injection == 0) continue;
    const FaultRule& rule = state->rule;
    switch (rule.kind) {
      case FaultKind::error:
        if (read->error == 0) read->error = static_cast<int64_t>(rule.value);
        break;
      case FaultKind::short_read: read->longest = std::min(read->longest, rule.value); break;
      case FaultKind::delay: read->delay_us += rule.value; break;
      case FaultKind::silence: read->silent = true; break;
      case FaultKind::corrupt:
        read->corrupt_bytes = rule.value;
        read->corrupt_seed = draw(rule.seed, injection);
        break;
    }
  }
}

uint32_t FaultChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t taken = std::min(count, reads_.room());
  for (uint32_t i = 0; i < taken; i++) {
    uint32_t slot = reads_.take();
    FaultyRead& read = reads_[slot];
    decide(requests[i], &read);
    if (read.silent) continue;  // its slot stays in use
    if (read.error != 0) {
      read.result = -read.error;
      read.due = Clock::now() + std::chrono::microseconds(read.delay_us);
      held_.push_back(slot);
    } else {
      ReadRequest passed = requests[i];
      passed.tag = slot;
      inner_.push(passed);
    }
  }
  inner_.flush();
  return taken;
}

// Does to a completed read what was decided. Bytes past a short read are undefined, so they are made wrong.
void FaultChannel::spoil(FaultyRead* read, int64_t result) {
  if (result > 0 && static_cast<uint64_t>(result) > read->longest) {
    std::memset(read->destination + read->longest, 0xa5, read->length - read->longest);
    result = static_cast<int64_t>(read->longest);
  }
  for (uint64_t i = 0; i < read->corrupt_bytes && result > 0; i++)
    read->destination[draw(read->corrupt_seed, i) % static_cast<uint64_t>(result)] ^= 0xff;
  read->result = result;
  read->due = Clock::now() + std::chrono::microseconds(read->delay_us);
}

void FaultChannel::harvest(uint32_t wait_us) {
  ReadCompletion done[64];
  uint32_t got = inner_.poll(done, 64, wait_us);
  for (uint32_t i = 0; i < got; i++) {
    spoil(&reads_[done[i].tag], done[i].result);
    held_.push_back(static_cast<uint32_t>(done[i].tag));
  }
}

// Index in held_ of the completion to hand out now; held_.size() when there is none.
size_t FaultChannel::next_to_release() {
  Reorder reorder = engine_->reorder();
  if (reorder.window > 1) {
    if (held_.size() < reorder.window && !inner_.idle()) return held_.size();
    if (held_.size() > 1) std::swap(held_[0], held_[draw(reorder.seed, released_) % held_.size()]);
  }
  Clock::time_point now = Clock::now();
  for (size_t i = 0; i < held_.size(); i++)
    if (reads_[held_[i]].due <= now) return i;
  return held_.size();
}

uint32_t FaultChannel::release(ReadCompletion* completions, uint32_t capacity) {
  uint32_t given = 0;
  while (given < capacity && !held_.empty()) {
    size_t next = next_to_release();
    if (next == held_.size()) break;
    uint32_t slot = held_[next];
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(next));
    completions[given++] = {reads_[slot].tag, reads_[slot].result};
    reads_.give_back(slot);
    released_++;
  }
  return given;
}

uint32_t FaultChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  Clock::time_point deadline = Clock::now() + std::chrono::microseconds(wait_us);
  for (uint32_t wait = 0;;) {
    harvest(wait);
    uint32_t given = release(completions, capacity);
    if (given > 0 || in_flight() == 0 || Clock::now() >= deadline) return given;
    // A read that is done may be held back by a delay: look again soon.
    if (inner_.idle()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - Clock::now()).count();
    wait = static_cast<uint32_t>(std::clamp<int64_t>(left, 0, held_.empty() ? 100'000 : 50));
  }
}

std::unique_ptr<Channel> FaultEngine::open_channel(uint32_t depth, std::string* error) {
  auto channel = inner_->open_channel(depth, error);
  if (channel == nullptr) return nullptr;
  return std::make_unique<FaultChannel>(std::static_pointer_cast<FaultEngine>(shared_from_this()), std::move(channel));
}

}  // namespace
}  // namespace bam

extern "C" {

void* bam_fault_engine_create(const void* inner, const bam::FaultRule* rules, uint32_t count, uint32_t reorder_window,
                              uint64_t reorder_seed, char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::shared_ptr<bam::Engine> below = bam::find_engine(inner);
    std::shared_ptr<bam::Engine> engine;
    if (below != nullptr)
      engine = std::make_shared<bam::FaultEngine>(below, rules, count, bam::Reorder{reorder_window, reorder_seed});
    return bam::handle_or_failure(std::move(engine), bam::inner_closed(), error, capacity);
  });
}

// How often each rule's reads were seen and how often it fired. Returns the number of rules, -1 for another engine.
int64_t bam_fault_engine_counts(const void* handle, bam::FaultCount* counts, uint64_t capacity) {
  auto engine = std::dynamic_pointer_cast<bam::FaultEngine>(bam::find_engine(handle));
  if (engine == nullptr) return -1;
  uint64_t rules = engine->rules().size();
  for (uint64_t i = 0; i < rules && i < capacity; i++) counts[i] = engine->rules()[i]->count();
  return static_cast<int64_t>(rules);
}

}  // extern "C"
