// One thread of the software controller: its queue pairs, its reader, its commands in flight.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bam/queue_pair.h"
#include "bam/software_controller.h"
#include "bam/span_reader.h"
#include "merge_queue.h"

namespace bam {

// Written by the worker's thread alone, read by anybody.
class Counter {
 public:
  void add(uint64_t amount) { value_.store(get() + amount, std::memory_order_relaxed); }
  void at_least(uint64_t value) { if (get() < value) value_.store(value, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// ControllerCounters of one worker.
struct WorkerCounters {
  Counter commands, errors, aborted, reads, bytes_read, invalid_doorbells, idle_sleeps, max_in_flight, left_behind;
  Counter commands_read, bytes_useful, commands_merged;
};

// A queue pair as its worker sees it.
struct ServedQueue {
  QueuePairState state;
  ControllerCursor cursor{};
  std::vector<bool> cid_in_flight = std::vector<bool>(1u << 16);
  // Completions a submitter that overruns its credit left no room for. Nothing is fetched meanwhile.
  std::deque<Completion> unposted;
  bool doorbell_reported = false;
};

class ControllerWorker {
 public:
  // `errors` and `stopping` belong to the controller.
  ControllerWorker(const Layout& layout, const ControllerConfig& config, ErrorLog& errors,
                   const std::atomic<bool>& stopping)
      : layout_(layout), config_(config), errors_(errors), stopping_(stopping),
        waiting_(commands_, config.merge_bytes / kBlockBytes, config.bridge_bytes / kBlockBytes) {}

  void add_queue(const QueuePairState& queue) { queues_.emplace_back().state = queue; }
  const WorkerCounters& counters() const { return counters_; }

  // In the worker's own thread, and in this order.
  bool open_reader(Engine& engine, std::string* error);
  void run();  // until `stopping`; then finishes what is in flight, for a bounded time, and aborts what waits

 private:
  bool merges() const { return config_.merge_bytes > config_.max_transfer_bytes; }
  uint32_t serve_queues();
  uint32_t serve_queue(uint32_t index);
  bool can_begin() const;
  uint32_t commands_to_fetch(ServedQueue& queue);
  void begin(uint32_t index, const Sqe& sqe);
  void start_waiting();
  void start_alone(uint32_t tag);
  void start_run(const ReadRun& run);
  uint32_t length_of(uint64_t slba, uint64_t end) const;
  Status check(const Sqe& sqe) const;
  void on_read(const RangeResult& result);
  void on_failure(uint32_t tag, const RangeResult& result);
  void deliver(const Command& command, const uint8_t* bytes, uint64_t there);
  void finish(uint32_t tag, Completion completion);
  void complete(ServedQueue& queue, const Completion& completion);
  void answer(ServedQueue& queue, const Completion& completion);
  bool post_waiting(ServedQueue& queue);
  uint32_t advance(uint32_t wait_us);
  uint32_t rest(uint32_t quiet_rounds);
  void serve();
  void finish_reads();
  void abort_unread();
  void abort_all();
  void abort_waiting(ServedQueue& queue);

  const Layout layout_;
  const ControllerConfig config_;
  ErrorLog& errors_;
  const std::atomic<bool>& stopping_;
  WorkerCounters counters_;
  std::unique_ptr<SpanReader> reader_;
  std::vector<ServedQueue> queues_;
  uint32_t first_queue_ = 0;         // whose turn is first
  uint32_t most_commands_ = 0;
  uint32_t reading_ = 0;             // commands
  CommandTable commands_;
  MergeQueue waiting_;
  std::vector<uint32_t> again_;      // tags of commands whose merged read failed
};

}  // namespace bam
