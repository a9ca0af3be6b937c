// Queue pairs, and host threads that send commands through them (host only).
//
// The queue pairs lie in memory of their own, with plain words for doorbells (the software controller answers them),
// or in memory that somebody else provides (a drive reads and writes it, and the doorbells are its registers).
//
// Any number of threads may call at once. A thread that waits drains the queues it uses, for itself and for whoever
// else has commands there, so no thread of its own is needed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
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
  uint32_t dw0;       // of the failed command; done: of the first one
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

struct OutstandingCommand {
  uint32_t queue_id;
  uint32_t cid;
  uint64_t age_ms;
};
static_assert(sizeof(OutstandingCommand) == 16, "ABI");

constexpr uint32_t kRunCommands = 32;  // most commands published by one doorbell write

// Who will answer: somebody, perhaps; nobody new commands; nobody at all.
enum class QueueLife : uint32_t { open = 0, closing = 1, dead = 2 };

// Who sent commands. finish() is called by whoever drains, in any thread, before the command's id is free again.
class CommandOwner {
 public:
  virtual ~CommandOwner() = default;
  virtual void finish(uint32_t pair, uint64_t position, const Completion& completion) = 0;
};

// The entry of command number `position`, to be sent through queue pair number `pair`.
using EncodeCommand = std::function<Sqe(uint64_t position, uint32_t pair, uint16_t cid)>;
// That command succeeded; its id, and what goes with the id, is still its own.
using DeliverBytes = std::function<void(uint64_t position, uint32_t pair, uint16_t cid)>;

// Commands that one call sends and waits for.
struct BatchPlan {
  uint64_t count;
  uint32_t first_pair;
  uint32_t n_pairs;
  uint32_t timeout_ms;
  EncodeCommand encode;
  DeliverBytes deliver = nullptr;
  // What to do about commands that take too long: ends all that were outstanding in `epoch`. Without it, or if that
  // did not help, the batch times out.
  std::function<void(uint64_t epoch)> recover = nullptr;
};

class HostQueues {
 public:
  // In memory of their own. `depth` as valid_depth() wants it.
  HostQueues(uint32_t n_pairs, uint32_t depth);
  // Entries and doorbells lie where `pairs` says; all are of one depth. `words` and `free_cids` in it are not used.
  explicit HostQueues(const std::vector<QueuePairState>& pairs);
  ~HostQueues();
  HostQueues(const HostQueues&) = delete;
  HostQueues& operator=(const HostQueues&) = delete;

  const std::vector<QueuePairState>& pairs() const { return pairs_; }

  BatchOutcome read(const BlockReads& reads);
  // One command as it is, but for its command id, through queue pair number `pair`.
  BatchOutcome command(uint32_t pair, const Sqe& sqe, uint32_t timeout_ms);
  // Deals runs of commands to the queue pairs in turn, then waits for all.
  BatchOutcome run_batch(const BatchPlan& plan);

  // Without waiting: publishes commands first, first + 1 ... as many of `count` as one run and the credit allow, and
  // returns how many. `owner` is kept until they have finished, and is told numbers[i] (null: first + i) of each.
  uint32_t submit_run(uint32_t pair, uint64_t first, uint64_t count, const std::shared_ptr<CommandOwner>& owner,
                      const EncodeCommand& encode, const uint64_t* numbers = nullptr);
  // Hands what has completed to the owners.
  void drain(uint32_t pair);
  uint32_t next_pair() { return static_cast<uint32_t>(next_pair_.fetch_add(1, std::memory_order_relaxed) % pairs_.size()); }

  // closing: calls submit nothing more, and return once what they submitted has completed.
  // dead: the controller is gone for good, so they return at once. Lives only advance.
  void set_life(QueueLife life);
  QueueLife life() const { return life_.load(std::memory_order_acquire); }  // pairs with the release in set_life()
  QueueCounters counters() const;

  // ---- while the controller is reset; only of queues in provided memory

  // After it returns nobody touches entries or doorbells, until resume().
  void pause();
  void resume();
  // The controller has forgotten everything: whatever was outstanding ends with `lost`, and the queues are as new,
  // but still paused.
  void restart(const Completion& lost);
  // The controller is gone: whatever was outstanding ends with `lost`, nobody ever touches its memory again.
  void abandon(const Completion& lost);
  // Number of restarts.
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }  // pairs with the release in restart()
  std::vector<OutstandingCommand> outstanding_commands();  // only while paused

 private:
  struct Owner;
  void set_up(uint32_t n_pairs, uint32_t depth);
  void drain_some(uint32_t first_pair, uint32_t n_pairs);
  void finish_all(const Completion& lost);
  uint32_t nth_pair(uint32_t first_pair, uint32_t n) const;
  // Held by whoever touches entries or doorbells; false: paused. Free of cost where nothing is ever reset.
  bool enter(std::shared_lock<std::shared_mutex>* inside);

  const bool provided_;
  std::vector<Sqe> sq_;
  std::vector<CqeWords> cq_;
  std::vector<uint32_t> doorbells_;
  std::vector<QueueWords> words_;
  std::vector<uint16_t> free_cids_;
  std::vector<QueuePairState> pairs_;
  std::vector<Owner> owners_;  // of outstanding commands: pair * depth + command id
  std::shared_mutex gate_;     // exclusive: who pauses or restarts
  std::atomic<bool> paused_{false};  // set before the gate is asked for, so that nobody new enters meanwhile
  std::atomic<uint64_t> epoch_{0};
  std::atomic<uint64_t> next_pair_{0};
  std::atomic<QueueLife> life_{QueueLife::open};
  std::atomic<uint64_t> commands_{0}, sq_doorbell_writes_{0}, cq_doorbell_writes_{0}, max_outstanding_{0},
      timeouts_{0};
};

}  // namespace bam
