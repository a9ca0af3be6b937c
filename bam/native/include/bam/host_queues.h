// Queue pairs in host memory, and host threads that read through them (host only).
//
// Any number of threads may call read() and command() at once. A thread that waits drains the queues it uses, for
// itself and for whoever else has commands there, so no thread of its own is needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "bam/queue_pair.h"

namespace bam {

// `count` reads of `n_blocks` each: number i from block slbas[i] to out + i * out_stride.
struct BlockReads {
  const uint64_t* slbas;
  uint64_t count;
  uint8_t* out;
  uint64_t out_stride;
  uint32_t n_blocks;
  uint32_t timeout_ms;  // without any progress
};

enum class BatchState : uint32_t {
  done = 0,      // every command succeeded
  failed = 1,    // every command completed; the one that failed and comes first in the batch is told of
  timed_out = 2, // commands are still outstanding, and may still write to the destination
  closed = 3,    // the queues were closed; nothing will write to the destination any more
};

struct BatchOutcome {
  BatchState state;
  uint16_t status;    // of the failed command: field of its CQE
  uint16_t reserved;
  uint32_t dw0;
  uint32_t dw1;
  uint64_t position;  // of the failed command in the batch; closed or timed out: commands that were completed
};
static_assert(sizeof(BatchOutcome) == 24, "ABI");

struct QueueCounters {
  uint64_t commands;             // published
  uint64_t sq_doorbell_writes;   // one a run of commands
  uint64_t cq_doorbell_writes;   // one a drain that found something
  uint64_t max_outstanding;      // in one queue pair
  uint64_t timeouts;             // batches
};
constexpr uint32_t kQueueCounters = sizeof(QueueCounters) / sizeof(uint64_t);

// Who will answer: somebody, perhaps; nobody new commands; nobody at all.
enum class QueueLife : uint32_t { open = 0, closing = 1, dead = 2 };

struct Batch;

class HostQueues {
 public:
  // `depth` as valid_depth() wants it.
  HostQueues(uint32_t n_pairs, uint32_t depth);
  ~HostQueues();
  HostQueues(const HostQueues&) = delete;
  HostQueues& operator=(const HostQueues&) = delete;

  const std::vector<QueuePairState>& pairs() const { return pairs_; }

  BatchOutcome read(const BlockReads& reads);
  // One command as it is, but for its command id, through queue pair number `pair`.
  BatchOutcome command(uint32_t pair, const Sqe& sqe, uint32_t timeout_ms);

  // closing: calls submit nothing more, and return once what they submitted has completed.
  // dead: the controller is gone for good, so they return at once. Lives only advance.
  void set_life(QueueLife life);
  QueueCounters counters() const;

 private:
  struct Owner;
  template <class Encode>
  BatchOutcome run_batch(uint64_t count, uint32_t first_pair, uint32_t n_pairs, uint32_t timeout_ms, Encode&& encode);
  template <class Encode>
  uint32_t submit_run(uint32_t pair, uint64_t first, uint64_t count, const std::shared_ptr<Batch>& batch,
                      Encode&& encode);
  void drain(uint32_t pair);
  void drain_some(uint32_t first_pair, uint32_t n_pairs);
  uint32_t nth_pair(uint32_t first_pair, uint32_t n) const;

  std::vector<Sqe> sq_;
  std::vector<CqeWords> cq_;
  std::vector<uint32_t> doorbells_;
  std::vector<QueueWords> words_;
  std::vector<uint16_t> free_cids_;
  std::vector<QueuePairState> pairs_;
  std::vector<Owner> owners_;  // of outstanding commands: pair * depth + command id
  std::atomic<uint64_t> next_pair_{0};
  std::atomic<QueueLife> life_{QueueLife::open};
  std::atomic<uint64_t> commands_{0}, sq_doorbell_writes_{0}, cq_doorbell_writes_{0}, max_outstanding_{0},
      timeouts_{0};
};

}  // namespace bam
