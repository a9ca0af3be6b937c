// The Platform of the explorer: every atomic access first hands control to the scheduler.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "fiber.h"
#include "happens_before.h"

namespace explorer {

enum class Operation : uint8_t {
  load, store, exchange, compare_exchange_weak, compare_exchange_strong, add, subtract, bit_or, bit_and,
  plain_load, plain_store, note,
};

struct Request {
  void* address;
  uint64_t operand;
  uint64_t expected;  // compare-exchange
  std::memory_order order;
  std::memory_order failure_order;
  uint32_t bytes;
  Operation operation;
};

// One line of a trace.
struct Event {
  uint32_t thread;
  Request request;
  uint64_t before, after;
  bool failed, spurious;
  std::string text = "";  // of a note
};

// What the model's threads share with the scheduler.
class Runtime {
 public:
  // The weak compare-exchange a suspended thread is about to do, if any: it may fail for no reason.
  struct WeakExchange {
    void* address;
    uint64_t expected;
    uint32_t bytes;
  };

  uint32_t thread = 0;      // the one that runs
  bool spurious = false;    // this step's weak compare-exchange fails for no reason
  std::string violation;
  std::vector<Event>* trace = nullptr;  // null while searching
  WeakExchange weak[kMaxThreads]{};     // part of a checkpoint
  HappensBefore clocks;                 // part of a checkpoint and of the state
  std::vector<uint64_t> reached_counts;

  static Runtime& instance() {
    static Runtime runtime;
    return runtime;
  }

  void reset() {
    violation.clear();
    std::memset(weak, 0, sizeof weak);
    clocks.reset();
  }

  uint32_t n_words() const { return static_cast<uint32_t>(words_.size()); }
  void forget_words() { words_.clear(); }

  bool may_fail_spuriously(uint32_t t) const {
    return weak[t].address != nullptr && read(weak[t].address, weak[t].bytes) == weak[t].expected;
  }

  // A weak or strong compare-exchange that failed returns what it found in `expected`.
  __attribute__((noinline)) bool access(Request& request) {
    bool is_weak = request.operation == Operation::compare_exchange_weak;
    weak[thread] = is_weak ? WeakExchange{request.address, request.expected, request.bytes} : WeakExchange{};
    Fiber::suspend();
    bool done = perform(request);
    Fiber::scrub();
    return done;
  }

  void plain(Operation operation, const void* address, uint32_t bytes, uint64_t value) {
    bool ordered = operation == Operation::plain_load ? clocks.plain_load(thread, word_of(address))
                                                      : clocks.plain_store(thread, word_of(address));
    Request request{const_cast<void*>(address), value, 0, std::memory_order_relaxed, std::memory_order_relaxed, bytes,
                    operation};
    if (trace != nullptr) trace->push_back({thread, request, value, value, false, false});
    if (!ordered) fail("data race: this access is not ordered after another thread's");
  }

  void note(const std::string& text) {
    Request request{};
    request.operation = Operation::note;
    if (trace != nullptr) trace->push_back({thread, request, 0, 0, false, false, text});
  }

  // Ends the search. Never returns when called on a fiber.
  void fail(const std::string& message) {
    if (violation.empty()) violation = message;
    if (on_fiber) for (;;) Fiber::suspend();
  }
  bool on_fiber = false;

 private:
  static uint64_t read(const void* address, uint32_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, address, bytes);
    return value;
  }

  // Words are numbered as they are met; the numbers hold for the whole search.
  uint32_t word_of(const void* address) {
    uint32_t word = words_.try_emplace(address, n_words()).first->second;
    if (word >= HappensBefore::kMaxWords) fail("too many shared words for the explorer");
    return word;
  }

  bool perform(Request& request) {
    const uint64_t before = read(request.address, request.bytes);
    const uint32_t word = word_of(request.address);
    const std::memory_order order = request.order;
    uint64_t after = before;
    bool failed = false, is_spurious = false;
    switch (request.operation) {
      case Operation::load: clocks.atomic_load(thread, word, order); break;
      case Operation::store:
        after = request.operand;
        clocks.atomic_store(thread, word, order);
        break;
      case Operation::compare_exchange_weak:
      case Operation::compare_exchange_strong:
        is_spurious = spurious;
        failed = spurious || before != request.expected;
        if (!failed) after = request.operand;
        if (failed) clocks.atomic_load(thread, word, request.failure_order);
        else clocks.atomic_update(thread, word, order);
        break;
      default:
        after = updated(request.operation, before, request.operand);
        clocks.atomic_update(thread, word, order);
    }
    std::memcpy(request.address, &after, request.bytes);
    if (trace != nullptr)
      trace->push_back({thread, request, before, read(request.address, request.bytes), failed, is_spurious});
    if (clocks.overflowed()) fail("a thread has more epochs than the explorer's clocks can count");
    request.expected = before;
    return !failed;
  }

  static uint64_t updated(Operation operation, uint64_t before, uint64_t operand) {
    switch (operation) {
      case Operation::exchange: return operand;
      case Operation::add: return before + operand;
      case Operation::subtract: return before - operand;
      case Operation::bit_or: return before | operand;
      default: return before & operand;
    }
  }

  std::unordered_map<const void*, uint32_t> words_;
};

// The interface of std::atomic_ref, as far as the shared headers use it.
template <class T>
class ScheduledRef {
  static_assert(std::is_integral_v<T> && sizeof(T) <= 8);
  using Order = std::memory_order;

 public:
  explicit ScheduledRef(T& target) : target_(&target) {}

  T load(Order order = Order::seq_cst) const { return request(Operation::load, 0, order); }
  void store(T value, Order order = Order::seq_cst) const { request(Operation::store, value, order); }
  T exchange(T value, Order order = Order::seq_cst) const { return request(Operation::exchange, value, order); }
  T fetch_add(T value, Order order = Order::seq_cst) const { return request(Operation::add, value, order); }
  T fetch_sub(T value, Order order = Order::seq_cst) const { return request(Operation::subtract, value, order); }
  T fetch_or(T value, Order order = Order::seq_cst) const { return request(Operation::bit_or, value, order); }
  T fetch_and(T value, Order order = Order::seq_cst) const { return request(Operation::bit_and, value, order); }

  bool compare_exchange_weak(T& expected, T value, Order success, Order failure) const {
    return compare_exchange(Operation::compare_exchange_weak, expected, value, success, failure);
  }
  bool compare_exchange_weak(T& expected, T value, Order order = Order::seq_cst) const {
    return compare_exchange_weak(expected, value, order, failure_order(order));
  }
  bool compare_exchange_strong(T& expected, T value, Order success, Order failure) const {
    return compare_exchange(Operation::compare_exchange_strong, expected, value, success, failure);
  }
  bool compare_exchange_strong(T& expected, T value, Order order = Order::seq_cst) const {
    return compare_exchange_strong(expected, value, order, failure_order(order));
  }

 private:
  static Order failure_order(Order order) {
    if (order == Order::acq_rel) return Order::acquire;
    return order == Order::release ? Order::relaxed : order;
  }

  T request(Operation operation, T operand, Order order) const {
    Request request{target_, operand, 0, order, order, sizeof(T), operation};
    Runtime::instance().access(request);
    return static_cast<T>(request.expected);
  }

  bool compare_exchange(Operation operation, T& expected, T value, Order success, Order failure) const {
    Request request{target_, value, expected, success, failure, sizeof(T), operation};
    bool exchanged = Runtime::instance().access(request);
    if (!exchanged) expected = static_cast<T>(request.expected);
    return exchanged;
  }

  T* target_;
};

struct ScheduledPlatform {
  static constexpr bool kWritesAreCheap = EXPLORED_WRITES_ARE_CHEAP;  // as on a GPU, or not: both are explored
  template <class T>
  using Atomic = ScheduledRef<T>;
  template <class T>
  using System = ScheduledRef<T>;

  static constexpr std::memory_order relaxed = std::memory_order_relaxed;
  static constexpr std::memory_order acquire = std::memory_order_acquire;
  static constexpr std::memory_order release = std::memory_order_release;
  static constexpr std::memory_order acq_rel = std::memory_order_acq_rel;

  // No scheduling point: any thread may run before the next access anyway, and a turn of a spin loop that changed
  // nothing leads back to a state that is known already, so the search does not follow it twice (explorer.h).
  static void pause() { Fiber::scrub(); }
};

// A plain word of the model: no scheduling point, but a race with another thread's access is a violation.
template <class T>
class Plain {
 public:
  T load() const {
    Runtime::instance().plain(Operation::plain_load, this, sizeof(T), static_cast<uint64_t>(value_));
    return value_;
  }
  void store(T value) {
    Runtime::instance().plain(Operation::plain_store, this, sizeof(T), static_cast<uint64_t>(value));
    value_ = value;
  }
  // Before the search starts.
  void preset(T value) { value_ = value; }

 private:
  T value_{};
};

// In a model: ends the search with a trace when `holds` is false.
inline void expect(bool holds, const char* message) {
  if (!holds) Runtime::instance().fail(message);
}
// In a model: a remark for the trace.
inline void note(const char* text, uint64_t value) {
  if (Runtime::instance().trace != nullptr) Runtime::instance().note(text + std::to_string(value));
}
// In a model: counts that something a scenario must reach was reached.
template <class Event>
void reached(Event what) {
  Runtime::instance().reached_counts[static_cast<size_t>(what)]++;
}

}  // namespace explorer
