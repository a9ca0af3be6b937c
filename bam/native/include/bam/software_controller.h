// Answers NVMe queue pairs from an engine (host only).
//
// The namespace is the logical address space of a layout in blocks of 512 bytes; a last block that reaches past its
// end is filled with zeros. Submitters are host threads or GPU threads; the controller sees their queue pairs only.
//
// Reads with PRP entry 1 as the address of one contiguous destination in this process (so the rules for PRP entry
// 2 and PRP lists do not apply), a multiple of 4 as the specification wants. The destination must stay valid until
// the command completes; for good if it completes as aborted with ETIMEDOUT, because a disk that did not answer may yet. Anything else in a command that cannot be served is completed with a status.
//
// Each thread owns a share of the queue pairs and a SpanReader of its own. A thread that has nothing to do yields,
// then sleeps, longer and longer up to kLongestSleepUs.
//
// Merging (merge_bytes). A submitter such as a GPU asks for one page a command. A thread then takes what its queues
// hold, orders it by first block and reads neighbours, with holes up to bridge_bytes, together; then it takes the next.
// The bytes go to the commands' destinations, straight if these are one piece of memory too. A read of several commands
// that fails is made again for each alone, so every status is that of the command's own blocks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bam/engine.h"
#include "bam/extent.h"
#include "bam/queue_pair.h"

namespace bam {

constexpr uint32_t kLongestSleepUs = 1000;

struct ControllerConfig {
  uint32_t n_threads;
  uint32_t read_depth;          // reads in flight of one thread
  uint32_t max_transfer_bytes;  // longest command; a multiple of 512, at most 32 MiB
  uint32_t close_wait_ms;       // stop() waits so long for reads in flight
  uint32_t n_cores;             // 0: threads run anywhere; else thread i on cores[i % n_cores]
  const int32_t* cores;         // used by create() alone
  void* destinations;           // memory that most commands read into, if any: reads go straight there
  uint64_t destination_bytes;
  uint32_t merge_bytes = 0;     // longest read that neighbours are merged into; up to max_transfer_bytes: none are
  uint32_t bridge_bytes = 0;    // longest hole between them, read along and dropped
};

// Why a command failed. Its number is dw1 of the CQE, its errno is dw0.
struct ErrorRecord {
  uint64_t slba;
  uint64_t file_offset;
  uint32_t n_blocks;
  uint32_t file;
  uint32_t number;  // from 1
  int32_t error;    // errno
};
static_assert(sizeof(ErrorRecord) == 32, "ABI");

// Counted since start().
struct ControllerCounters {
  uint64_t commands;           // fetched
  uint64_t errors;             // completed with another status than success
  uint64_t aborted;            // of these, not read when the controller stopped
  uint64_t reads;              // of the engine, retries included
  uint64_t bytes_read;
  uint64_t invalid_doorbells;  // tails that are no slot of their queue; ignored
  uint64_t idle_sleeps;
  uint64_t max_in_flight;      // most commands being read at once, of one thread
  uint64_t left_behind;        // reads that had not ended when the controller stopped (leftovers.h)
  uint64_t commands_read;      // completed with success
  uint64_t bytes_useful;       // that they asked for
  uint64_t commands_merged;    // of all reads of more than one
};
constexpr uint32_t kControllerCounters = sizeof(ControllerCounters) / sizeof(uint64_t);

// The last kErrorRecords failed reads. Thread-safe.
class ErrorLog {
 public:
  static constexpr uint32_t kErrorRecords = 1024;
  uint32_t add(ErrorRecord record);
  // False when the record was overwritten or never was.
  bool find(uint32_t number, ErrorRecord* record) const;

 private:
  mutable std::mutex mutex_;
  uint32_t last_ = 0;
  std::vector<ErrorRecord> records_ = std::vector<ErrorRecord>(kErrorRecords);
};

class ControllerWorker;

class SoftwareController {
 public:
  // Starts answering. Null and a reason in `error` when it cannot. The queue pairs' memory must outlive the object.
  static std::unique_ptr<SoftwareController> create(std::shared_ptr<Engine> engine, const Layout& layout,
                                                    std::vector<QueuePairState> queues, const ControllerConfig& config,
                                                    std::string* error);
  ~SoftwareController();
  SoftwareController(const SoftwareController&) = delete;
  SoftwareController& operator=(const SoftwareController&) = delete;

  // Finishes reads in flight, for at most close_wait_ms, completes the commands of others and those not yet fetched as
  // aborted, and joins the threads. Idempotent.
  void stop();

  const ErrorLog& errors() const { return errors_; }
  ControllerCounters counters() const;

 private:
  SoftwareController(std::shared_ptr<Engine> engine, const Layout& layout, std::vector<QueuePairState> queues);
  bool start(const ControllerConfig& config, std::string* error);

  std::shared_ptr<Engine> engine_;
  std::vector<Extent> extents_;
  Layout layout_;
  std::vector<QueuePairState> queues_;
  ErrorLog errors_;
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  std::vector<std::unique_ptr<ControllerWorker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace bam
